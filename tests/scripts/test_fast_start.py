"""What a command loads before it answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from locigraph.kg.store import Store
from tests.fakes_graph import TEXT_DIM

ROOT = Path(__file__).parents[2]

HEAVY = ("torch", "lightning", "torch_geometric", "sentence_transformers", "transformers", "pymilvus")
#: Never needed by a memory, beside its text encoder.
OF_TRAINING = ("lightning", "torch_geometric", "wandb", "sentence_transformers", "sklearn")


#: Runs commands, and prints after each its exit code and what is loaded by then.
RUN = """
import json, sys
from locigraph.scripts import cli
for words in COMMANDS:
    code = 0
    try:
        cli.main(words)
    except SystemExit as end:
        code = end.code
    print(json.dumps([" ".join(words), code, [name for name in NAMES if name in sys.modules]]))
"""


def ended(commands: list[list[str]], folder: Path) -> list[tuple[str, int, list[str]]]:
    """Each command, run one after the other in a process, with its exit code and the heavy packages loaded by then."""
    code = RUN.replace("COMMANDS", repr(commands)).replace("NAMES", repr(HEAVY))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    return [(words, code, found) for words, code, found in map(json.loads, ran.stdout.splitlines())]


@pytest.mark.long
def test_what_cannot_be_asked_is_refused_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    commands = [
        ["recall", "Who?", "--space", "ana", "--store", "absent.sqlite"],
        ["recall", "Who?", "--space", "ana", "--top_k", "0"],
        ["recall", "Who?"],
        ["explain", "Who?", "--space", "ana", "--store", "absent.sqlite"],
        ["forget", "--space", "ana", "--store", "absent.sqlite", "--yes"],
        ["verify", "--store", "absent.sqlite"],
        ["train", "--store", "absent.sqlite"],
        ["adapt", "--corpus.path", "absent.jsonl"],
        ["ablate", "--corpus.path", "absent.jsonl"],
        ["evaluate", "--corpus.path", "absent.jsonl"],
        ["transfer", "--graphs", '{"a": {"store": "absent.sqlite", "corpus": {"path": "sample"}}}'],
    ]
    assert ended(commands, tmp_path) == [(" ".join(words), 2, []) for words in commands]


def test_a_checkpoint_that_is_not_there_is_refused_before_anything_heavy_is_loaded(tmp_path: Path) -> None:
    Store(tmp_path / "graph.sqlite").close()
    absent = ["--store", "graph.sqlite", "--checkpoint", "absent"]
    commands = [
        [*words, *absent]
        for words in (["refresh"], ["drift"], ["serve", "--port", "0"], ["recall", "Who?", "--space", "a"])
    ]
    assert ended(commands, tmp_path) == [(" ".join(words), 2, []) for words in commands]


ASK = """
import sys
from pathlib import Path
from locigraph import Memory
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.assembly import opening
from tests.fakes import FakeEncoder

class Encoder(CachedTextEncoder):
    model_id = "fake"

    def load(self):
        pass

    def _run(self, texts):
        return FakeEncoder(DIM).encode(texts)

opening.text_encoder = lambda settings: Encoder("fake", cache=Path("cache.sqlite"))
with Memory.open("memory.sqlite", checkpoint="checkpoint") as memory:
    memory.add(space="ana", session="s1", speaker="Ana", text="I sold the blue bike to Tom.")
    strategy = memory.recall("Who bought the bike?", space="ana").strategy
print(strategy, *[name for name in NAMES if name in sys.modules])
"""


def asked(code: str, names: tuple[str, ...], folder: Path) -> list[str]:
    """The strategy that answers in a process of its own, and which of some packages it has loaded."""
    code = code.replace("DIM", str(TEXT_DIM)).replace("NAMES", repr(names))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder, env=environment
    )
    assert not ran.returncode, ran.stderr
    return ran.stdout.split()


@pytest.mark.long
def test_a_memory_loads_nothing_that_only_training_needs(place: Path) -> None:
    assert asked(ASK, OF_TRAINING, place) == ["v2"]


@pytest.mark.long
def test_v2_answers_from_embeddings_that_are_there_without_pytorch(place: Path) -> None:
    assert asked(ASK, ("torch",), place) == ["v2", "torch"]  # a new turn is to be encoded
    again = "\n".join(line for line in ASK.splitlines() if "memory.add" not in line)
    assert asked(again, ("torch", *OF_TRAINING), place) == ["v2"]

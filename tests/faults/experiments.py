"""Experiments that are stopped: the same command again must end with the results of one that was never stopped.

Trainings, evaluations, ablations and transfers of a few seconds, over four conversations. They are stopped in
the ways of ``cuts``, at a call that writes or anywhere.
"""

from __future__ import annotations

import importlib
import json
import random
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from locigraph.assembly import opening
from locigraph.assembly.settings import CorpusSettings, EncoderSettings, GraphSettings
from locigraph.scripts.commands.memory.build import build
from locigraph.scripts.commands.research.ablate import ablate
from locigraph.scripts.commands.research.evaluate import evaluate
from locigraph.scripts.commands.research.transfer import transfer
from locigraph.scripts.commands.training.adapt import adapt
from locigraph.scripts.commands.training.train import train
from locigraph.training.config import AdapterConfig
from tests.fakes_graph import CPU, small_settings
from tests.fakes_models import tiny_text_encoder
from tests.faults import cuts, workbench
from tests.faults.children import ChildError, in_child
from tests.faults.workbench import FakeCachedEncoder

_AT_A_CALL = ("exit", "kill", "interrupt", "full disk", "power loss")
_ANYWHERE = ("killed", "interrupted")
_SPACES = {"corpus": ("harbor", "meadow", "quay", "ridge"), "other": ("island",)}
#: Questions by the turn that answers each; the name of the space keeps those of two spaces apart.
_ASKED = {"t0": "Who repairs boats at {}?", "t1": "Who met Carla near {}?", "t3": "Which bicycle was bought in {}?"}
_FOLDS: dict[str, Any] = {"folds": 2, "validation": 1}
# SQLite and Milvus Lite wait for the disk by themselves, which is not seen here; ``cuts`` tries what these may lose.
_BY_SQLITE = re.compile(r".*\.(sqlite|index\.db)\b.*")
#: Keys of a result that say how fast it was made, and in its manifest with what.
_OF_THE_RUN = re.compile("manifest|.*_ms|.*seconds")


def load() -> None:
    """Import what experiments import when they run, so that their processes need not."""
    for name in (
        "research.experiments.evaluation",
        "research.experiments.transfer_matrix",
    ):
        importlib.import_module(f"locigraph.{name}")
    for name in ("adapter", "fusion", "graph_training"):
        importlib.import_module(f"locigraph.training.{name}")


def prepare(folder: Path) -> None:
    """Write a corpus with questions, the graph of it and a text encoder that can be adapted."""
    folder.mkdir(parents=True, exist_ok=True)
    _fake(folder)
    with workbench.quiet():
        tiny_text_encoder(folder / "tiny")
        for name, spaces in _SPACES.items():
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(_told(space)) + "\n" for space in spaces))
            build(corpus=_corpus(folder, name), store=_store(folder, name), checkpoint=None)


def _told(space: str) -> dict[str, Any]:
    told = workbench.conversation(space, (*workbench.TURNS, f"The {space} is quiet."))
    told["questions"] = [
        {
            "question_id": turn, "text": asked.format(space), "category": "single-hop", "evidence_turn_ids": [turn],
        }
        for turn, asked in _ASKED.items()
    ]  # fmt: skip
    return told


def _fake(folder: Path) -> None:
    opening.text_encoder = lambda settings: FakeCachedEncoder("fake", cache=folder / "cache.sqlite")


def _corpus(folder: Path, name: str = "corpus") -> CorpusSettings:
    return CorpusSettings(path=str(folder / f"{name}.jsonl"))


def _store(folder: Path, name: str = "corpus") -> str:
    return str(folder / f"{name}.sqlite")


def commands(folder: Path) -> dict[str, Callable[[], None]]:
    """Experiments on the corpus in a folder; each writes to its folder ``out``."""
    _fake(folder)
    corpus, out = _corpus(folder), str(folder / "out")
    settings = small_settings(pretrain=1, finetune=2)
    network: dict[str, Any] = {"model": settings.model, "training": settings.training, "trainer": CPU, "output": out}
    graphs = {name: GraphSettings(_store(folder, name), _corpus(folder, name)) for name in _SPACES}
    return {
        "train": lambda: train(corpus=corpus, store=_store(folder), encoder=EncoderSettings(), validation=1, **network),
        "adapt": lambda: adapt(
            corpus=corpus, store=_store(folder), encoder=str(folder / "tiny"), trainer=CPU, validation=1, output=out,
            adapter=AdapterConfig(rank=2, epochs=2, questions=4, negatives=5),
        ),
        "evaluate": lambda: evaluate(corpus=corpus, strategies="v1,v2,fusion,dense", **_FOLDS, **network),
        "ablate": lambda: ablate(corpus=corpus, variants=["no dates"], **_FOLDS, **network),
        "transfer": lambda: transfer(
            graphs=graphs, train={"a": ["corpus"]}, test=["other"], encoder=EncoderSettings(adapter="any"),
            validation=1, **network,
        ),
    }  # fmt: skip


def _run(folder: Path, command: str) -> tuple[int, str]:
    """Exit code of an experiment, with its output or error."""
    return workbench.ended(commands(folder)[command])


def results(folder: Path) -> dict[str, Any]:
    """What an experiment has found, without times; weights by their bytes."""
    found: dict[str, Any] = {}
    for path in sorted((folder / "out").rglob("*")):
        name = str(path.relative_to(folder / "out"))
        if (path.suffix == ".safetensors" and "checkpoint" in path.parts) or path.name == "adapter_model.safetensors":
            found[name] = path.read_bytes()
        elif path.suffix == ".json" and path.parent == folder / "out":
            found[name] = _without_times(json.loads(path.read_text()))
    return found


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_times(each) for name, each in value.items() if not _OF_THE_RUN.fullmatch(name)}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class _Whole:
    """An experiment that nothing stopped: its writing calls, its seconds of processor and its results."""

    calls: int
    seconds: float
    wanted: Mapping[str, Any]


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Tries without end: an experiment, a way to be stopped, a moment."""
    start = folder / "start"  # experiments run in another folder, always the same, since results name their files
    in_child(lambda: prepare(start))
    randomness = random.Random(seed)
    wholes: dict[str, _Whole] = {}
    names = list(in_child(lambda: [*commands(start)]))
    while True:
        for command in randomness.sample(names, len(names)):
            if command not in wholes:
                wholes[command] = _whole(start, folder / "try", command)
            way = randomness.choice(_AT_A_CALL + _ANYWHERE)
            whole = wholes[command]
            at = randomness.randrange(whole.calls) + 1 if way in _AT_A_CALL else randomness.uniform(0.01, whole.seconds)
            yield partial(_check, start, folder / "try", command, whole, way, at)


def _whole(start: Path, place: Path, command: str) -> _Whole:
    def succeeding(folder: Path, command: str) -> tuple[int, str]:
        code, said = _run(folder, command)
        assert code == 0, said
        return code, said

    def measured() -> tuple[int, float]:
        started = time.process_time()
        return cuts.counted(place, command, 0, "", run=succeeding), time.process_time() - started

    _copy(start, place)
    calls, seconds = in_child(measured)
    wanted = results(place)
    assert wanted, f"{command} wrote nothing"
    return _Whole(calls, seconds, wanted)


def _copy(start: Path, place: Path) -> None:
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(start, place)


def _check(start: Path, place: Path, command: str, whole: _Whole, way: str, at: float) -> None:
    what = f"{command}, stopped by {way} at {at}"
    _copy(start, place)
    try:
        if way in _AT_A_CALL:
            cuts.synced(place).unlink(missing_ok=True)
            in_child(lambda: cuts.counted(place, command, int(at), way, run=_run))
            if way == "power loss":
                cuts.empty_lost_files(place, place / "out", but=_BY_SQLITE)
        else:
            in_child(lambda: cuts.stopped_after(at, way, place, command, run=_run))
        code, said = in_child(lambda: _run(place, command))
    except ChildError as error:
        raise AssertionError(f"{what}: {error}") from error
    assert code == 0, f"{what}, and again: {said}"
    found = results(place)
    assert found.keys() == whole.wanted.keys(), f"{what}: {found.keys() ^ whole.wanted.keys()}"
    for name, value in whole.wanted.items():
        assert found[name] == value, f"{what}: {name} differs{_difference(found[name], value)}"


def _difference(found: Any, wanted: Any) -> str:
    """Where two results first differ."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        if found.keys() != wanted.keys():
            return f": {found.keys() ^ wanted.keys()}"
        return next(
            (f".{key}{_difference(found[key], wanted[key])}" for key in wanted if found[key] != wanted[key]), ""
        )
    if isinstance(found, list) and isinstance(wanted, list) and len(found) == len(wanted):
        return next(
            (
                f"[{i}]{_difference(*both)}"
                for i, both in enumerate(zip(found, wanted, strict=True))
                if both[0] != both[1]
            ),
            "",
        )
    return f": {str(found)[:200]}, not {str(wanted)[:200]}"

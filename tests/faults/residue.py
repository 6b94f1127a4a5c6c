"""Residue: a marker in text, speaker, id or caption; after forgetting no file may hold it, nor a vector of its texts.

The graph is built by rules or by language models, which may fail at some turns, that are perhaps tried again; it is
perhaps passed over again and refreshed; a turn or its whole space is forgotten, by a command or through a server, whose
log is read as well.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from pyarrow import parquet

from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.scripts.forget import forget
from tests.fakes import FakeEncoder
from tests.fakes_graph import TEXT_DIM
from tests.faults import workbench
from tests.faults.children import in_child
from tests.faults.served import serving

_FIELDS = ("text", "speaker", "turn_id", "image_caption")
_BY_RULES = ("build",)
_FAILING = ("build_by_failing_models",)
_BUILDS = (
    _BY_RULES, _BY_RULES, ("build_by_models",), _FAILING, (*_FAILING, "build_by_models"),
)  # fmt: skip
_PASSES = ("classify", "reflect", "resolve", "link")
_SPACE = "harbor"


@dataclass(frozen=True)
class _Try:
    """A marker, its field and turn, and what is done before and to forget it."""

    marker: str
    field: str
    turn: int
    builds: tuple[str, ...]
    passes: tuple[str, ...]
    is_refreshed: bool
    is_space: bool
    is_served: bool


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Tries without end: a field, a turn, a way to build, to go on and to forget."""
    randomness = random.Random(seed)
    while True:
        made = _Try(
            "".join(randomness.choice("bcdfghjklmnpqrstvwxz") for _ in range(14)),
            randomness.choice(_FIELDS),
            randomness.randrange(len(workbench.TURNS)),
            randomness.choice(_BUILDS),
            tuple(each for each in _PASSES if randomness.random() < 0.3),
            randomness.random() < 0.5,
            randomness.random() < 0.3,
            randomness.random() < 0.3,
        )
        yield partial(_check, folder / "try", made)


def files_with(folder: Path, marker: str, vectors: Sequence[NDArray[np.float32]]) -> list[str]:
    """Files that hold a word, in columns of tables too, or one of some vectors of any width."""
    found = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        content = path.read_bytes()
        if marker.encode() in content.lower():
            found.append(f"{path.name}: the marker")
        if any(vector.tobytes() in content for vector in vectors):
            found.append(f"{path.name}: a vector")
        if path.suffix == ".parquet":
            rows = parquet.read_table(path).to_pylist()
            if marker in str(rows).lower():
                found.append(f"{path.name}: the marker in a column")
            held = [np.asarray(row["vector"]) for row in rows if "vector" in row]
            if any(a.shape == b.shape and np.abs(a - b).max() < 1e-6 for a in held for b in vectors):
                found.append(f"{path.name}: a vector in a column")
    return found


def _utterance(turn: dict[str, Any]) -> str:
    caption = turn.get("image_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" [shares {caption}]" if caption else "")


def _check(place: Path, made: _Try) -> None:
    shutil.rmtree(place, ignore_errors=True)
    workbench.prepare(place)
    told = workbench.conversation(_SPACE)
    turn = told["sessions"][0]["turns"][made.turn]
    marked = f"{made.marker} {turn.get(made.field, '')}".strip()
    turn[made.field] = marked if made.field != "text" else f"I keep a {made.marker} and a spare {made.marker}."
    lines = [json.dumps(told), json.dumps(workbench.conversation("meadow"))]
    (place / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    vectors = in_child(partial(_built, place, made, turn))
    (place / "corpus.jsonl").unlink()
    shutil.rmtree(place / "replies.failed", ignore_errors=True)
    for cassette in place.glob("replies.sqlite*"):  # is no part of a memory, and says what models were asked
        cassette.unlink()
    assert files_with(place, made.marker, vectors), "the marker was never there"
    if made.is_served:
        _forget_served(place, made, turn)
    else:
        in_child(partial(_forget, place, made, turn))
    left = files_with(place, made.marker, vectors)
    assert not left, f"{made}: {left}"
    code, said = in_child(lambda: workbench.run(place, "verify"))
    assert code == 0 or (made.builds == _FAILING and _is_whole_but_for_failed(said)), f"{made}: verify: {code} {said}"


_FAILED = re.compile("failed and (?:is|are) here as said")


def _is_whole_but_for_failed(said: str) -> bool:
    """Whether ``verify`` has nothing to say but that turns failed."""
    lines = [line for line in said.splitlines() if "no graph embeddings were compared" not in line]
    return all(": clean (" in line or _FAILED.search(line) for line in lines)


def _built(place: Path, made: _Try, turn: dict[str, Any]) -> list[NDArray[np.float32]]:
    """Build, and go on; all vectors that are of the marked turn alone."""
    again = ("refresh",) if made.is_refreshed else ()
    workbench.run_all(place, *made.builds, *made.passes, *again)
    with closing(sqlite3.connect(place / "graph.sqlite")) as connection:
        texts = {text for (text,) in connection.execute("SELECT description FROM nodes")}
    if made.builds == _BY_RULES:  # what else models say of a turn nobody knows any more when it is forgotten
        texts |= {*workbench.FakeCachedEncoder.texts}
    # An ID is no part of a text, so the other conversation may say the same.
    marked = {_utterance(turn)} | {text for text in texts if made.marker in text.lower()}
    marked -= {_utterance(each) for each in workbench.conversation("meadow")["sessions"][0]["turns"]}
    # The hash of a marker can cancel that of another word, or be the first bucket, as in a collection's row of its own.
    others = FakeEncoder(TEXT_DIM).encode(sorted(texts - marked))
    own = np.eye(1, TEXT_DIM, dtype=np.float32)
    vectors = _apart(FakeEncoder(TEXT_DIM).encode(sorted(marked)), np.concatenate([others, own]))
    if made.is_refreshed:
        with MilvusIndex(str(place / "graph.index.db")) as index:
            collection = index.open(GRAPH_ALIAS)
            keys = [key for key, row in collection.rows(_SPACE).items() if turn["turn_id"] in row.turn_ids]
            elsewhere = collection.vectors("meadow", collection.node_keys("meadow"))
            vectors += _apart([*collection.vectors(_SPACE, keys).values()], [*elsewhere.values()])
    return vectors


def _apart(vectors: Iterable[NDArray[np.float32]], others: Iterable[NDArray[np.float32]]) -> list[NDArray[np.float32]]:
    """Those of some vectors that are none of others."""
    held = np.stack([*others])
    return [vector for vector in vectors if np.abs(held - vector).max(axis=1).min() > 1e-6]


def _forget(place: Path, made: _Try, turn: dict[str, Any]) -> None:
    workbench.commands(place)  # sets the text encoder
    named = {"yes": True} if made.is_space else {"turns": [turn["turn_id"]]}
    with workbench.quiet():
        forget(space=_SPACE, store=str(place / "graph.sqlite"), **named)


def _forget_served(place: Path, made: _Try, turn: dict[str, Any]) -> None:
    """Forget through a server that was asked about the turn before, rightly and wrongly."""
    said = {"space": _SPACE, "session": "s1", "speaker": turn["speaker"], "turn_id": turn["turn_id"]}
    named = {"whole_space": True} if made.is_space else {"turn_ids": [turn["turn_id"]]}
    with serving(place) as (child, address), httpx.Client(base_url=address, timeout=60) as http:
        for name, asked, status in (
            ("recall", {"space": _SPACE, "question": "Who repairs boats?"}, 200),
            ("add", said | {"text": f"Something else than {made.marker}."}, 409 if made.builds == _BY_RULES else 400),
            ("forget", {"space": _SPACE, **named}, 200),
            ("recall", {"space": "meadow", "question": "Who repairs boats?"}, 200),
        ):
            answer = http.post(f"/v1/{name}", json=asked)
            assert answer.status_code == status, f"{made}: {name} {answer.text[:500]}"
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

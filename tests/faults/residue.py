"""Residue: a marker in text, speaker, ID or caption; after forgetting, no file may hold it or a vector of its texts.

The graph is built by rules, or by language models, which may fail for some turns, and these may be tried again. The
text encoder reads each turn with the one before it, and a turn may arrive late beside the one with the marker. Second
passes and a refresh may follow. Then a turn or its whole space is forgotten, by a command or through a server, whose
log is checked as well.
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
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from pyarrow import parquet

from locigraph.kg.embedded_text import in_context
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.scripts.commands.memory.forget import forget
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
_IN_CONTEXT = "\n(in reply to "  # a text of ``in_context``


@dataclass(frozen=True)
class _Try:
    """A marker, its field and turn, what is done before, and how it is forgotten.

    ``late`` is the place among the turns at which another one arrives later; None if none does. With ``is_inserted`` it
    is the turn with the marker that arrives later, and is put where it was in its session, or before all others.
    """

    marker: str
    field: str
    turn: int
    late: int | None
    builds: tuple[str, ...]
    passes: tuple[str, ...]
    is_refreshed: bool
    is_space: bool
    is_served: bool
    is_inserted: bool


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with a field, a turn, a way to build, further commands and a way to forget."""
    randomness = random.Random(seed)
    while True:
        place = randomness.randrange(len(workbench.TURNS))
        late, builds = randomness.choice((None, None, place, place + 1)), randomness.choice(_BUILDS)
        made = _Try(
            "".join(randomness.choice("bcdfghjklmnpqrstvwxz") for _ in range(14)),
            randomness.choice(_FIELDS),
            place,
            late,
            builds,
            tuple(each for each in _PASSES if randomness.random() < 0.3),
            randomness.random() < 0.5,
            randomness.random() < 0.3,
            randomness.random() < 0.3,
            late is None and builds == _BY_RULES and randomness.random() < 0.5,
        )
        yield partial(_check, folder / "try", made)


def files_with(folder: Path, marker: str, vectors: Sequence[NDArray[np.float32]]) -> list[str]:
    """Files that hold a word or one of the vectors, also in columns of Parquet tables."""
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
    vectors = in_child(partial(_built, place, made, told, turn))
    (place / "corpus.jsonl").unlink()
    shutil.rmtree(place / "replies.failed", ignore_errors=True)
    for cassette in place.glob("replies.sqlite*"):  # not part of a memory, and records what models were asked
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


_FAILED = re.compile("failed, with text but no facts")


def _is_whole_but_for_failed(said: str) -> bool:
    """Whether ``verify`` reports nothing except failed turns."""
    lines = [line for line in said.splitlines() if "no graph embeddings were compared" not in line]
    return all(": clean (" in line or _FAILED.search(line) for line in lines)


def _built(place: Path, made: _Try, told: dict[str, Any], turn: dict[str, Any]) -> list[NDArray[np.float32]]:
    """Build, and run the further commands; returns all vectors that belong to the marked turn only."""
    meadow = workbench.conversation("meadow")

    turns = told["sessions"][0]["turns"]
    following = turns[made.turn + 1]["turn_id"] if made.turn + 1 < len(turns) and not made.passes else None
    if made.is_inserted:
        turns.remove(turn)

    def build() -> None:
        (place / "corpus.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (told, meadow)))
        workbench.run_all(place, *made.builds)

    build()
    if made.late is not None:
        turns.insert(made.late, {"turn_id": "late", "speaker": "Ben", "text": "Wait a moment."})
        build()
    if made.is_inserted:
        workbench.insert(place, _SPACE, turn, before=following)
    workbench.run_all(place, *made.passes, *(("refresh",) if made.is_refreshed else ()))
    with closing(sqlite3.connect(place / "graph.sqlite")) as connection:
        texts = {text for (text,) in connection.execute("SELECT description FROM nodes")}
    # What models replied about a turn is no longer known when it is forgotten, but what was said is.
    texts |= {text for text in workbench.FakeCachedEncoder.texts if made.builds == _BY_RULES or _IN_CONTEXT in text}
    # An ID is not part of a text, so the other conversation may contain the same text.
    said = [_utterance(each) for each in meadow["sessions"][0]["turns"]]
    marked = {text for text in texts if made.marker in text.lower() or _utterance(turn) in text}
    marked -= {*said, *(in_context(after, before) for before, after in pairwise(said))}
    # A marker's hash can cancel that of another word, or fall into the first bucket, like the collection's own row.
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
    """The vectors that differ from all others."""
    held = np.stack([*others])
    return [vector for vector in vectors if np.abs(held - vector).max(axis=1).min() > 1e-6]


def _forget(place: Path, made: _Try, turn: dict[str, Any]) -> None:
    workbench.commands(place)  # sets the text encoder
    named = {"yes": True} if made.is_space else {"turns": [turn["turn_id"]]}
    with workbench.quiet():
        forget(space=_SPACE, store=str(place / "graph.sqlite"), **named)


def _forget_served(place: Path, made: _Try, turn: dict[str, Any]) -> None:
    """Forget through a server that has answered requests about the turn before, valid and invalid ones."""
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

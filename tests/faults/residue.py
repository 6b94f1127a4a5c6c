"""Residue: a marker in text, speaker, id or caption; after ``forget`` no file may hold it, nor a vector of its text."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from locigraph.scripts.forget import forget as forget_command
from tests.fakes import FakeEncoder
from tests.fakes_graph import TEXT_DIM
from tests.faults import workbench
from tests.faults.children import in_child

_FIELDS = ("text", "speaker", "turn_id", "image_caption")


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Tries without end: a field, a place in the conversation, refreshed before or not."""
    randomness = random.Random(seed)
    while True:
        marker = "".join(randomness.choice("bcdfghjklmnpqrstvwxz") for _ in range(14))
        field, at = randomness.choice(_FIELDS), randomness.randrange(len(workbench.TURNS))
        refreshed = randomness.random() < 0.5
        yield lambda m=marker, f=field, a=at, r=refreshed: _check(folder / "try", m, f, a, r)  # type: ignore[misc]


def files_with(folder: Path, marker: str, vectors: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> list[str]:
    """Files that hold a word, in columns of tables too, or one of some vectors."""
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
            held = np.asarray([row["vector"] for row in rows if len(row.get("vector", ())) == vectors.shape[1]])
            if len(held) and len(vectors) and np.abs(held[:, None] - vectors[None]).max(axis=2).min() < 1e-6:
                found.append(f"{path.name}: a vector in a column")
    return found


def _utterance(turn: dict[str, Any]) -> str:
    caption = turn.get("image_caption")
    return f"{turn['speaker']}: {turn['text']}" + (f" [shares {caption}]" if caption else "")


def _check(place: Path, marker: str, field: str, at: int, refreshed: bool) -> None:
    shutil.rmtree(place, ignore_errors=True)
    workbench.prepare(place)
    told = workbench.conversation("harbor")
    turn = told["sessions"][0]["turns"][at]
    turn[field] = f"{marker} {turn.get(field, '')}" if field != "text" else f"I keep a {marker} and a spare {marker}."
    lines = [json.dumps(told), json.dumps(workbench.conversation("meadow"))]
    (place / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    in_child(lambda: workbench.run_all(place, *(("build", "refresh") if refreshed else ("build",))))
    vectors = FakeEncoder(TEXT_DIM).encode([_utterance(turn)])
    # The other conversation keeps its turn of the words before the change. An ID is no part of them, and the hash of a
    # marker can cancel that of another word.
    kept = FakeEncoder(TEXT_DIM).encode([_utterance(workbench.conversation("meadow")["sessions"][0]["turns"][at])])
    if np.allclose(vectors, kept):
        vectors = vectors[:0]
    (place / "corpus.jsonl").unlink()
    assert files_with(place, marker, vectors), "the marker was never there"

    def forget() -> None:
        workbench.commands(place)
        with workbench.quiet():
            forget_command(space="harbor", turns=[turn["turn_id"]], store=str(place / "graph.sqlite"))

    in_child(forget)
    left = files_with(place, marker, vectors)
    assert not left, f"{field} of turn {at}, refreshed {refreshed}: {left}"
    in_child(lambda: workbench.run_all(place, "verify"))

"""``locigraph drift`` over a memory of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locigraph import Memory
from locigraph.kg.errors import LocigraphError, UnknownSpaceError
from locigraph.scripts.commands.training.drift import drift

TURN = {"session": "s1", "speaker": "Ana", "text": "I sold the blue bike to Tom."}


def test_drift_reports_each_space_and_all_and_a_recall_ends_it(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"store": str(place / "memory.sqlite"), "checkpoint": str(place / "checkpoint")}

    def reported() -> dict[str | None, list[float]]:
        drift(**given, json=True)  # type: ignore[arg-type]
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return {row["space"]: [row["turns"], row["missing"], row["stale"], row["share"]] for row in rows}

    with Memory.open(given["store"], checkpoint=given["checkpoint"]) as memory:
        memory.add_many([TURN | {"space": space} for space in ("ana", "ana", "bo")])
    assert reported() == {"ana": [2, 0, 0, 0.0], "bo": [1, 0, 0, 0.0], None: [3, 0, 0, 0.0]}
    memory = Memory.open(given["store"], checkpoint=given["checkpoint"])
    memory.add(**TURN | {"space": "bo"})
    memory.__exit__(KeyboardInterrupt)  # no flush, and no recall
    found = reported()
    assert found["ana"] == [2, 0, 0, 0.0]
    assert found["bo"][:2] == [2, 1]
    assert found[None][3] == (1 + found["bo"][2]) / 4
    with Memory.open(given["store"], checkpoint=given["checkpoint"]) as memory:
        memory.recall("bike", space="bo")
    drift(**given, space="bo")  # type: ignore[arg-type]
    assert capsys.readouterr().out == (
        "bo: 0.0% of 2 turns (0 missing, 0 stale), 0 gone; distance median 0.0000  p95 0.0000  max 0.0000\n"
    )
    with pytest.raises(UnknownSpaceError, match="space 'anna' is not in the store; nearest is 'ana'"):
        drift(**given, space="anna")  # type: ignore[arg-type]
    with pytest.raises(LocigraphError, match="checkpoint is null"):
        drift(store=given["store"], checkpoint=None)

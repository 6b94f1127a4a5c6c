"""Relative dates in questions to a memory."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from locigraph import Memory
from locigraph.training.inference import CheckpointQueryEncoder


@pytest.mark.parametrize("age", [timedelta(), timedelta(days=400)])
def test_v2_reckons_relative_dates_from_today_or_from_the_last_day_of_old_talk(
    place: Path, age: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[tuple[str, datetime | None], None] = {}
    encode = CheckpointQueryEncoder.encode_query

    def encode_query(self: CheckpointQueryEncoder, text: str, *, asked_at: datetime | None = None) -> Any:
        asked[text, asked_at] = None
        return encode(self, text, asked_at=asked_at)

    monkeypatch.setattr(CheckpointQueryEncoder, "encode_query", encode_query)
    said, given = datetime.now(UTC) - age, datetime(2025, 1, 2, 3, tzinfo=UTC)
    with Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        memory.add(space="ana", session="s", speaker="Ana", text="I went to the market.", spoken_at=said)
        memory.recall("Where did I go yesterday?", space="ana", strategy="v2")
        (explained,) = memory.explain("Where did I go yesterday?", space="ana")
        memory.recall("Where did I go?", space="ana", strategy="v2")
        memory.recall("Where did I go yesterday?", space="ana", strategy="v2", as_of=given)
    day = datetime.combine(said.date(), time(), UTC)
    assert [*asked] == [
        ("Where did I go yesterday?", day),
        ("Where did I go?", None),
        ("Where did I go yesterday?", given),
    ]
    assert explained.turn_id

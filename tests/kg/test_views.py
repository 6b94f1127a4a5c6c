from __future__ import annotations

from datetime import datetime, timedelta

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import SpaceId
from locigraph.kg.views import View, Views
from tests.fakes import MONDAY, SPACE, make_turns
from tests.fakes_graph import make_snapshot

TURNS = make_turns(["one", "two", "three"])


def known(space: SpaceId, as_of: datetime | None) -> Snapshot:
    return make_snapshot([turn for turn in TURNS if as_of is None or turn.recorded_at <= as_of])


def test_a_view_hides_later_turns_and_is_read_once() -> None:
    read: list[tuple[SpaceId, datetime | None]] = []

    def load(space: SpaceId, as_of: datetime | None) -> Snapshot:
        read.append((space, as_of))
        return known(space, as_of)

    held = Views(load, {SPACE: TURNS[-1].spoken_at})
    early = held.of(SPACE, MONDAY + timedelta(minutes=1))
    assert early == View(SPACE, MONDAY + timedelta(minutes=1))
    assert held.snapshot(early).turn_ids == ("t0", "t1")
    assert held.snapshot(held.of(SPACE, None)).turn_ids == ("t0", "t1", "t2")
    held.snapshot(early)
    assert read == [(SPACE, early.as_of), (SPACE, None)]


def test_a_time_after_the_last_turn_is_the_present() -> None:
    assert Views(known, {}).of(SPACE, MONDAY) == View(SPACE)  # undated
    dated = Views(known, {SPACE: MONDAY})
    assert dated.of(SPACE, MONDAY) == dated.of(SPACE, None) == View(SPACE)
    assert dated.of(SPACE, MONDAY - timedelta(seconds=1)).as_of is not None

"""How long a space keeps its turns: through the memory, the command line and an export."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from locigraph import Memory
from locigraph.kg.errors import LocigraphError, UnknownSpaceError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.scripts.commands.memory.retain import retain
from locigraph.scripts.commands.memory.spaces import spaces

ANA: dict[str, Any] = {"space": "ana", "session": "s1", "speaker": "Ana"}
DAY = timedelta(days=1)
NOW = datetime.now(UTC).replace(microsecond=0)


def opened(place: Path) -> Memory:
    return Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint"))


def expiries(place: Path) -> dict[str, datetime | None]:
    with Store(place / "memory.sqlite") as store:
        return {turn.turn_id: turn.expires_at for turn in store.turns(SpaceId("ana"))}


def test_turns_expire_so_many_days_after_they_were_spoken_stored_ones_and_new_ones(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**ANA, text="I sold the bike.", turn_id="old", spoken_at=NOW - 5 * DAY)
        memory.add(**ANA, text="I sold the boat.", turn_id="soon", spoken_at=NOW - 4 * DAY, expires_at=NOW + DAY)
        memory.add(**ANA, text="I sold the house.", turn_id="late", spoken_at=NOW - 3 * DAY, expires_at=NOW + 90 * DAY)
        assert memory.retentions() == {}
        assert memory.set_retention("ana", days=30) == 2
        assert memory.retentions() == {"ana": 30 * DAY}
        memory.add(**ANA, text="I sold the car.", turn_id="new", spoken_at=NOW - DAY)
        memory.add(**ANA, text="I sold the kite.", turn_id="own", spoken_at=NOW, expires_at=NOW + 2 * DAY)
        memory.add(space="eve", session="s", speaker="Eve", text="I sold the dog.", turn_id="kept")
    assert expiries(place) == {
        "old": NOW + 25 * DAY, "soon": NOW + DAY, "late": NOW + 27 * DAY, "new": NOW + 29 * DAY, "own": NOW + 2 * DAY,
    }  # fmt: skip
    with Store(place / "memory.sqlite") as store:
        assert [turn.expires_at for turn in store.turns(SpaceId("eve"))] == [None]


def test_a_longer_time_puts_nothing_off_and_without_one_new_turns_are_kept(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**ANA, text="I sold the bike.", turn_id="t0", spoken_at=NOW)
        assert [memory.set_retention("ana", days=days) for days in (10, 20, 0.5, None)] == [1, 0, 1, 0]
        memory.add(**ANA, text="I sold the boat.", turn_id="t1", spoken_at=NOW)
        assert memory.retentions() == {}
    assert expiries(place) == {"t0": NOW + DAY / 2, "t1": None}


def test_turns_of_a_mistyped_year_expire_within_the_times_that_an_import_takes(place: Path, tmp_path: Path) -> None:
    with opened(place) as memory:
        memory.add(**ANA, text="I sold the bike.", turn_id="t0", spoken_at="2950-01-01")
        memory.set_retention("ana", days=36_500)
        memory.add(**ANA, text="I sold the boat.", turn_id="t1", spoken_at="2950-01-02")
    with Store(place / "memory.sqlite") as store, Store(tmp_path / "other.sqlite") as other:
        assert other.import_lines(line for _, line in store.exported())
    assert {time.year for time in expiries(place).values() if time is not None} == {2999}


def test_turns_without_a_time_count_from_when_they_are_added(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**ANA, text="I sold the bike.", turn_id="t0")
        memory.set_retention("ana", days=1)
        memory.add(**ANA, text="I sold the boat.", turn_id="t1")
    found = [at for at in expiries(place).values() if at is not None]
    assert len(found) == 2
    assert all(NOW + DAY <= at <= datetime.now(UTC) + DAY for at in found)


def test_what_expires_by_a_shorter_time_leaves_the_next_answer(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**ANA, text="The code is 7719.", turn_id="t0", spoken_at=NOW - 3 * DAY)
        memory.add(**ANA, text="I sold the bike to Tom.", turn_id="t1", spoken_at=NOW)
        for _ in range(3):  # so that the space is held in memory
            assert "7719" in str(memory.recall("What is the code?", space="ana").as_json())
        memory.set_retention("ana", days=2)
        assert "7719" not in str(memory.recall("What is the code?", space="ana").as_json())
        assert memory.forget_expired() == 1


@pytest.mark.parametrize("days", [0, -1, 36_501, float("nan"), True, "90"])
def test_a_wrong_number_of_days_changes_nothing(place: Path, days: Any) -> None:
    with opened(place) as memory:
        memory.add(**ANA, text="I sold the bike.", turn_id="t0")
        with pytest.raises(LocigraphError, match="expected a number above 0"):
            memory.set_retention("ana", days=days)
        with pytest.raises(UnknownSpaceError):
            memory.set_retention("anna", days=1)
        assert memory.retentions() == {}
    assert expiries(place) == {"t0": None}


def test_the_command_asks_before_stored_turns_expire_at_once(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(place / "memory.sqlite")
    with opened(place) as memory:
        memory.add(**ANA, text="I sold the bike.", turn_id="t0", spoken_at="2024-05-01")
    with pytest.raises(LocigraphError, match=r"1 turn of 1 would expire at once .* add --yes"):
        retain(space="ana", days=90, store=store)
    assert expiries(place) == {"t0": None}
    retain(space="ana", days=36_500, store=store)
    assert "ana keeps its turns for 36500 days; 1 stored turn expire" in capsys.readouterr().out
    spaces(store=store)
    assert "kept for 36500 days" in capsys.readouterr().out
    retain(space="ana", days=90, yes=True, store=store)
    with opened(place) as memory:
        assert memory.forget_expired() == 1
    retain(space="ana", days=None, store=store)
    assert "for ever" in capsys.readouterr().out


def test_a_retention_is_lifted_only_by_name(place: Path) -> None:
    store = str(place / "memory.sqlite")
    with opened(place) as memory:
        memory.add(**ANA, text="I sold the bike.")
        memory.set_retention("ana", days=30)
    with pytest.raises(LocigraphError, match="days is 0 or missing; give a number, such as --days 90, or --days null"):
        retain(space="ana", store=store)
    with Store(store) as graph:
        assert graph.retentions() == {SpaceId("ana"): timedelta(days=30)}


def test_an_export_takes_it_along(place: Path, tmp_path: Path) -> None:
    with opened(place) as memory:
        memory.add(**ANA, text="I sold the bike.", turn_id="t0", spoken_at=NOW)
        memory.set_retention("ana", days=30)
    with Store(place / "memory.sqlite") as store, Store(tmp_path / "second.sqlite") as second:
        second.import_lines(line for _, line in store.exported())
        assert second.retentions() == {"ana": 30 * DAY}

"""What a space is about."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from locigraph.kg.errors import LocigraphError, UnknownSpaceError
from locigraph.memory import Memory, SessionOverview

SAID = [
    ("s1", "Ana", "I sold the blue bike to Tom.", "2024-05-02T09:00"),
    ("s1", "Tom", "The blue bike, at last.", "2024-05-01T10:00"),
    ("s2", "Ana", "I miss the blue bike.", None),
]


def told(place: Path) -> Memory:
    memory = Memory.open(place / "memory.sqlite", checkpoint=None)
    for session, speaker, text, at in SAID:
        memory.add(space="ana", session=session, speaker=speaker, text=text, spoken_at=at)
    return memory


def test_an_overview_counts_sessions_speakers_and_topics_of_several_turns(place: Path) -> None:
    with told(place) as memory:
        overview = memory.overview("ana")
    first = datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert overview.sessions == (SessionOverview("s1", 2, first), SessionOverview("s2", 1, None))
    assert list(overview.speakers.items()) == [("Ana", 2), ("Tom", 1)]
    assert overview.topics == {"blue bike": 3}


def test_what_has_expired_is_in_no_overview_and_at_no_time(place: Path) -> None:
    with told(place) as memory:
        past = datetime.now(UTC) - timedelta(seconds=1)
        common = {"space": "ana", "session": "s3", "speaker": "Eve", "expires_at": past}
        memory.add(**common, text="The blue bike is rusty now.", spoken_at="2024-06-01")  # type: ignore[arg-type]
        overview = memory.overview("ana")
        assert [each.session for each in overview.sessions] == ["s1", "s2"]
        assert "Eve" not in overview.speakers
        assert overview.topics == {"blue bike": 3}
        assert max(memory.times("ana")).date().isoformat() == "2024-05-02"


def test_at_most_so_many_topics_are_named(place: Path) -> None:
    with told(place) as memory:
        for text in ("The night train, or the blue bike.", "The night train."):
            memory.add(space="ana", session="s4", speaker="Ana", text=text)
        assert memory.overview("ana", most_topics=1).topics == {"blue bike": 4}
        assert memory.overview("ana").topics == {"blue bike": 4, "night train": 2}
        with pytest.raises(LocigraphError, match="most_topics is 0; expected at least 1"):
            memory.overview("ana", most_topics=0)
        with pytest.raises(UnknownSpaceError):
            memory.overview("eve")

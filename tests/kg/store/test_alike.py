from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.store.alike import Mark, marks_of, recognised
from locigraph.kg.types import Turn, TurnId
from tests.fakes import make_turn

#: 3 April, which may be read as 4 March, and a day that can be read in one way.
APRIL, MARCH, LATE = (datetime(2024, month, day, 10, tzinfo=UTC) for month, day in ((4, 3), (3, 4), (4, 13)))
TURNS = st.lists(
    st.builds(
        lambda speaker, text, time: replace(make_turn(0, text), speaker=speaker, spoken_at=time),
        st.sampled_from(["Ana", "Ben"]),
        st.sampled_from(["Yes.", "No."]),
        st.sampled_from([None, APRIL, MARCH, LATE]),
    ),
    max_size=6,
)


def found(exported: list[Turn], known: list[Turn]) -> dict[int, int]:
    """Index of the known turn that each exported one is taken for."""
    marks: defaultdict[Mark, list[int]] = defaultdict(list)
    for number, turn in enumerate(known):
        for mark in marks_of(turn):
            marks[mark].append(number)
    asked = [replace(turn, turn_id=TurnId(f"e{number}")) for number, turn in enumerate(exported)]
    return {int(turn_id[1:]): number for turn_id, number in recognised(asked, marks).items()}


def said(speaker: str, text: str, time: datetime | None) -> Turn:
    return replace(make_turn(0, text), speaker=speaker, spoken_at=time)


def test_a_turn_is_recognised_by_what_has_not_changed() -> None:
    known = [said("Ana", "My PIN is 4711.", APRIL)]
    assert found([said("Ana Smith", "My PIN is 4711.", APRIL)], known) == {0: 0}
    assert found([said("Ana", "My PIN is 4712.", APRIL)], known) == {0: 0}
    assert found([said("Ana", "My PIN is 4711.", MARCH)], known) == {0: 0}
    assert found([said("Ana", "My PIN is 4711.", LATE)], known) == {}
    assert found([said("Ben", "No.", APRIL)], known) == {}
    untimed = [said("Ana", "My PIN is 4711.", None)]
    assert found([said("Ana", "My PIN is 4711.", LATE)], untimed) == {0: 0}
    assert found([said("Ana", "My PIN is 4711.", None)], known) == {}  # a list without times says too little


def test_unchanged_words_count_more_than_an_unchanged_speaker() -> None:
    known = [said("Ana", "Yes.", APRIL), said("Ben", "No.", APRIL)]
    assert found([said("Ana", "No.", APRIL), said("Ben", "Yes.", APRIL)], known) == {0: 1, 1: 0}


@given(exported=TURNS, known=TURNS)
def test_every_known_turn_is_recognised_at_most_once_and_by_a_likeness(exported: list[Turn], known: list[Turn]) -> None:
    pairs = found(exported, known)
    assert len({*pairs.values()}) == len(pairs)
    for place, number in pairs.items():
        one, other = exported[place], known[number]
        same = (one.speaker == other.speaker, one.text == other.text, one.spoken_at == other.spoken_at)
        assert sum(same) >= 2

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.times import epoch
from locigraph.retrieval.strategies.turn_signals import GRAPH_SIGNALS, SIGNALS, TurnSignals
from tests.fakes import FakeEncoder, make_turn, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, make_snapshot

ENCODER = FakeEncoder(TEXT_DIM)
LINES = [
    "I bought a canoe",
    "nice one",
    "the bread rose well",
    "and the jam set",
    "so long",
    "bye",
    "see you",
    "take care",
]


def space_of() -> Snapshot:
    count = len(LINES)
    extras = [Extra("concept", "boats", (0,)), Extra("event_node", "Ben went sailing", (1,))]
    extras += [Extra("concept", name) for name in ("bread", "jam")]
    snapshot = make_snapshot(make_turns(LINES), extras, [(2, "HAS_CONCEPT", count), (3, "HAS_CONCEPT", count)])
    snapshot.valid_from[:count] = [epoch(datetime(2023, month, 5, tzinfo=UTC)) for month in range(1, count + 1)]
    snapshot.valid_from[count + 1] = epoch(datetime(2021, 7, 9, tzinfo=UTC))
    return snapshot


def values(query: str, *names: str, asked_at: datetime | None = None) -> list[list[float]]:
    vector = ENCODER.encode([query])[0]
    return TurnSignals(space_of(), names).of(query, vector, asked_at=asked_at).tolist()  # type: ignore[no-any-return]


def test_the_turn_before_counts_for_the_one_after_it_alone() -> None:
    assert values("canoe", "bm25_before") == [[0, 1, 0, 0, 0, 0, 0, 0]]
    dense = values("canoe", "dense_before")[0]
    assert int(np.argmax(dense)) == 1


def test_a_wide_window_reaches_two_turns_to_either_side() -> None:
    assert [value > 0 for value in values("canoe", "bm25_wide")[0]] == [True, True, True, *[False] * 5]


@pytest.mark.parametrize(("signal", "found"), [("bm25_window", [0, 2]), ("bm25_wide", [0, 2, 4]), ("bm25_before", [2])])
def test_windows_are_of_a_session_s_own_turns_where_sessions_alternate(signal: str, found: list[int]) -> None:
    snapshot = make_snapshot([make_turn(i, text, session=1 + i % 2) for i, text in enumerate(LINES)])
    (scores,) = TurnSignals(snapshot, [signal]).of("canoe", ENCODER.encode(["canoe"])[0])
    assert np.flatnonzero(scores).tolist() == found


def test_a_topic_counts_for_the_turns_that_an_edge_joins_to_it() -> None:
    # Not for turn 0, from which it was drawn: there is no edge.
    assert values("boats", "bm25_topics") == [[0, 0, 1, 1, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ("question", "signal", "expected"),
    [
        ("What happened in March 2023?", "date", 2),
        ("What happened in July 2021?", "event_date", 1),
        ("What happened?", "date", None),
    ],
)
def test_dates_in_a_question_find_turns_and_events_of_that_time(
    question: str, signal: str, expected: int | None
) -> None:
    found = values(question, signal)[0]
    assert [turn for turn, value in enumerate(found) if value == 1] == ([] if expected is None else [expected])


def test_relative_dates_are_read_from_the_time_of_the_question() -> None:
    asked = datetime(2023, 3, 6, tzinfo=UTC)
    assert int(np.argmax(values("What happened yesterday?", "date", asked_at=asked)[0])) == 2
    assert values("What happened yesterday?", "date") == [[0] * 8]


def test_a_named_person_finds_the_turns_that_they_said() -> None:
    snapshot = space_of()
    speakers = snapshot.speakers
    name = speakers[0].split()[0].capitalize()
    found = TurnSignals(snapshot, ["speaker"]).of(f"What did {name} buy?", ENCODER.encode(["x"])[0])[0]
    assert found.tolist() == [float(speaker == speakers[0]) for speaker in speakers]


def test_the_signals_come_in_the_order_asked_for() -> None:
    assert set(GRAPH_SIGNALS) < set(SIGNALS)
    one, other = values("canoe", "bm25", "bm25_before")
    assert [other, one] == values("canoe", "bm25_before", "bm25")


def test_an_archived_topic_is_none_of_a_turn() -> None:
    snapshot = space_of()
    snapshot.active[len(LINES)] = False
    assert not TurnSignals(snapshot, ["bm25_topics"]).of("boats", ENCODER.encode(["boats"])[0]).any()


def test_a_wide_window_reaches_two_turns_ahead() -> None:
    assert [value > 0 for value in values("care", "bm25_wide")[0]] == [*[False] * 5, True, True, True]

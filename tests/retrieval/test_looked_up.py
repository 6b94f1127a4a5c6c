from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.looked_up import DEPTH, LookedUp
from locigraph.retrieval.protocols import Hit


def hits_of(texts: Sequence[str]) -> list[Hit]:
    """Hits whose scores fall by .01."""
    return [
        Hit(NodeId(str(n)), "episode", text, (TurnId(f"t{n}"),), 1 - n / 100, {"graph": 1 - n / 100})
        for n, text in enumerate(texts)
    ]


def order(question: str, *texts: str) -> list[int]:
    return [int(hit.node_id) for hit in LookedUp.by(question).first(hits_of(texts))]


@pytest.mark.parametrize(
    ("question", "sought"),
    [
        ("kestrel", {"kestrel"}),
        ("Anna Costa", {"anna", "costa"}),
        ("order QX-4711", {"order", "qx", "4711"}),
        ("Where did Anna Costa spend her holiday?", {"anna", "costa"}),
        ("Which parcel has the number QX-4711?", {"qx", "4711"}),
        ("What was said about the kestrel?", set()),
        ("Kestrel?", set()),
        ("What happened?", set()),
        ("", set()),
    ],
)
def test_few_words_without_a_sentence_are_looked_up_and_in_a_sentence_names_and_codes(
    question: str, sought: set[str]
) -> None:
    assert LookedUp.by(question).terms == sought


def test_what_has_the_word_that_was_typed_comes_first() -> None:
    assert order("kestrel", "Ben: boats", "Ben: a boat", "Ben: Our boat is the Kestrel, " + "and so on " * 200) == [
        2,
        0,
        1,
    ]


def test_who_is_named_in_full_comes_before_a_namesake() -> None:
    texts = ["Ben: Anna Berg was in Rome", "Ben: Anna Berg went home", "Ben: Anna Costa was in Oslo"]
    assert order("Where did Anna Costa spend her holiday?", *texts) == [2, 0, 1]


def test_a_full_name_is_told_from_a_namesake_however_often_it_stands_there() -> None:
    texts = ["Anna Berg: I went to Madeira", "Anna Costa: I went to Oslo", "Anna Costa: I am back", "Ben: Anna"]
    assert order("Where did Anna Costa spend her holiday?", *texts) == [1, 2, 0, 3]
    assert order("Where did Anna spend her holiday?", *texts) == [0, 1, 2, 3]
    assert order("Where did Anna Costa spend her holiday?", *texts[1:]) == [0, 1, 2]  # nobody else is called Anna


def test_a_word_of_several_hits_tells_nothing() -> None:
    texts = ["Ben: no", "Ann: boat", "Ben: boat", "Ann: boat", "Ben: boat"]
    assert order("boat", *texts) == [0, 1, 2, 3, 4]
    assert order("boat", *texts[:4]) == [1, 2, 3, 0]


def test_a_raised_hit_says_so() -> None:
    (first, second) = LookedUp.by("kestrel").first(hits_of(["Ben: no", "Ben: kestrel"]))
    assert first.score == pytest.approx(2.99)
    assert first.signals == {"graph": 0.99, "looked_up": 2.0}
    assert second.signals == {"graph": 1.0}


@given(st.lists(st.sampled_from(["Ben: kestrel", "Ben: no", "Ann: kestrel and Anna"]), max_size=DEPTH + 20))
def test_no_hit_is_lost_and_those_beyond_the_depth_stay(texts: list[str]) -> None:
    found = hits_of(texts)
    raised = LookedUp.by("kestrel").first(found)
    assert {hit.node_id for hit in raised} == {hit.node_id for hit in found}
    assert list(raised[DEPTH:]) == found[DEPTH:]
    assert [hit.score for hit in raised[:DEPTH]] == sorted((hit.score for hit in raised[:DEPTH]), reverse=True)

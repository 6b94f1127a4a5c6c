from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.language.terms import terms
from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.looked_up import LookedUp, _starts, _Texts
from locigraph.retrieval.protocols import Hit, VectorMatch


def looked_up(question: str, texts: Sequence[str], *, top_k: int = 2_000) -> tuple[Hit, ...]:
    """Hits of texts whose scores fall by .01, or, of more than fifty, by .5 in all."""
    step = min(0.01, 0.5 / max(1, len(texts)))
    matches = [VectorMatch(NodeId(str(n)), "episode", (TurnId(f"t{n}"),), 1 - n * step) for n in range(len(texts))]
    text_of = {match.node_id: text for match, text in zip(matches, texts, strict=True)}
    return LookedUp.by(question).first(matches, text_of, signal="graph", top_k=top_k)


def order(question: str, *texts: str) -> list[int]:
    return [int(hit.node_id) for hit in looked_up(question, texts)]


@pytest.mark.parametrize(
    ("question", "sought", "depth"),
    [
        ("kestrel", {"kestrel"}, 1_000),
        ("Anna Costa", {"anna", "costa", "anna costa"}, 1_000),
        ("order QX-4711", {"order", "qx", "4711", "order qx", "qx 4711"}, 1_000),
        ("Where did Anna Costa spend her holiday?", {"anna", "costa", "anna costa"}, 1_000),
        ("Where did Anna spend her holiday?", {"anna"}, 50),
        ("Which parcel has the number QX-4711?", {"4711", "qx 4711"}, 1_000),
        ("What began on 14 March 1982?", {"14", "1982", "14 march", "march 1982", "march"}, 1_000),
        ("When did anybody last mention the kestrel?", {"kestrel"}, 1_000),
        ("Kestrel?", {"kestrel"}, 1_000),
        ("What colour was the old kestrel?", set(), 0),
        ("What?", set(), 0),
        ("", set(), 0),
    ],
)
def test_what_is_looked_up_are_typed_words_and_in_a_sentence_names_figures_and_its_only_words(
    question: str, sought: set[str], depth: int
) -> None:
    found = LookedUp.by(question)
    assert {term for group in found.sought for term in group.terms} == sought
    assert found.depth == depth


@pytest.mark.parametrize(
    ("question", "having"),
    [
        ("Where was the kestrel?", "We saw a kestrel"),
        ("What about Anna Costa?", "It was Anna Costa who called"),
        ("What has QX-4711 on it?", "It says QX-4711 on it"),
        ("What came to 21301 then?", "It came to 21301"),
        ("What began on 14 March 1982?", "It began on 14 March 1982"),
    ],
)
@pytest.mark.parametrize("words", [5, 2_000])
def test_the_one_turn_of_a_thousand_that_has_it_comes_first_however_long_it_is(
    question: str, having: str, words: int
) -> None:
    others = ["Ben: Anna Berg and Eva Costa came on 14 May 1981, the 13 March 1983 or so"] * 2
    texts = [*others, *["Ben: we talked of birds, came home, and then began again"] * 900]
    assert order(question, *texts, f"Ben: {'and so on ' * (words // 3)}{having}")[0] == len(texts)


def test_a_word_that_more_of_the_hits_have_than_three_in_a_thousand_tells_nothing_in_a_sentence() -> None:
    birds = ["Ben: kestrel"] * 4
    assert order("Where was the kestrel?", *["Ben: no"] * 996, *birds)[0] == 0
    assert order("Where was the kestrel?", *["Ben: no"] * 997, *birds[:3])[:3] == [997, 998, 999]


def test_of_a_question_with_one_rare_word_and_one_that_many_have_neither_counts() -> None:
    assert order("Who sold the kestrel?", *["Ben: sold"] * 9, "Ben: kestrel") == [*range(10)]


@given(st.from_regex(r"[a-z]{1,20}", fullmatch=True) | st.sampled_from(["dying", "happy", "hoping", "skies", "4x4"]))
def test_no_word_is_missed_by_what_its_stem_begins_with(word: str) -> None:
    if LookedUp.by(word).sought:  # no function word
        assert order(word, "Ben: 12", f"Ben: it is {word}") == [1, 0]


def test_what_has_the_word_that_was_typed_comes_first() -> None:
    assert order("kestrel", "Ben: boats", "Ben: a boat", "Ben: Our boat is the Kestrel, " + "and so on " * 200) == [
        2,
        0,
        1,
    ]


def test_of_typed_words_that_tells_most_which_has_most_of_them() -> None:
    assert order("Anna Costa", "Ben: Eva Costa", "Ben: Anna Berg", "Ben: no", "Ben: Anna Costa")[0] == 3
    assert order("order QX-4711", "Ben: in order to sleep", "Ben: no", "Ben: QX-4711")[0] == 2


def test_a_part_of_a_date_or_code_that_nobody_says_counts_little() -> None:
    for question, chance in (
        ("What happened on 2024-03-20?", "Ben: I paid 20 euros"),
        ("What did Anna do on 14 March?", "Ben: it is 14 now"),
    ):
        (first, *_) = looked_up(question, ["Ben: no", chance])
        assert first.signals.get("looked_up", 0.0) <= 0.5


@pytest.mark.parametrize("question", ["What happened in July?", "What happened last week?", "Wer hat das gesagt?"])
def test_words_of_time_and_of_other_languages_are_no_only_words(question: str) -> None:
    texts = ["Ben: no", "Ben: in July, last week", "Ben: Das hat er gesagt"]
    assert all(hit.signals.get("looked_up", 0.0) <= 0.2 for hit in looked_up(question, texts))


def test_a_question_that_is_a_long_text_looks_up_a_bounded_number_of_figures() -> None:
    text = " ".join(f"error {number}" for number in range(5_000)) + "?"
    assert all(len(group.terms) <= 40 for group in LookedUp.by(text).sought)


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
    (first, second) = looked_up("kestrel", ["Ben: no", "Ben: kestrel"])
    assert first.score == pytest.approx(2.99)
    assert first.signals == {"graph": 0.99, "looked_up": 2.0}
    assert second.signals == {"graph": 1.0}


@given(st.lists(st.sampled_from(["Ben: kestrel", "Ben: no", "Ann: kestrel and Anna"]), max_size=70))
def test_no_hit_is_lost_and_those_beyond_the_depth_stay(texts: list[str]) -> None:
    for question, depth in (("kestrel", 1_000), ("What colour did they paint the boat for Anna?", 50)):
        assert LookedUp.by(question).depth == depth
        raised = looked_up(question, texts)
        assert {int(hit.node_id) for hit in raised} == {*range(len(texts))}
        assert [int(hit.node_id) for hit in raised[depth:]] == [*range(len(texts))][depth:]
        for top_k in (0, 1, 5, 60):
            assert looked_up(question, texts, top_k=top_k) == raised[:top_k]
        assert [hit.score for hit in raised[:depth]] == sorted((hit.score for hit in raised[:depth]), reverse=True)


def test_a_word_within_an_identifier_is_found() -> None:
    assert order("user_id", "Ben: my id is old", "Ben: set user_id now") == [1, 0]


@given(st.text(alphabet="abisu0_'- .", max_size=30))
def test_no_term_of_a_text_is_left_out_before_it_is_divided_into_terms(text: str) -> None:
    found = terms(text)
    held = _Texts([text], [text.lower()])
    for term in (*found, *map(" ".join, pairwise(found))):
        assert held.has(0, term, list(map(_starts, term.split())))

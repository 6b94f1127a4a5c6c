from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from locigraph.retrieval.budgets import count_tokens
from locigraph.retrieval.excerpts import Excerpts

TURN = (
    "Ana: The boat was wet. We painted the kitchen in the morning. The kitchen is green now. "
    "Later we went to the market. The deposit for the boat was ninety pounds. It rained all day."
)


def excerpt(question: str, text: str, tokens: int, *others: str) -> str:
    return Excerpts(question, [text, *others]).of(text, tokens)


def test_a_short_turn_is_shown_as_it_is() -> None:
    assert excerpt("What was the deposit?", TURN, count_tokens(TURN)) == TURN


def test_the_sentences_that_share_words_with_the_question_are_kept_in_their_order() -> None:
    shown = excerpt("How much was the deposit for the boat?", TURN, 17)
    assert shown == "Ana: The boat was wet. ... The deposit for the boat was ninety pounds. ..."


def test_a_word_counts_the_more_the_fewer_sentences_have_it() -> None:
    # "boat" is in many other sentences, "market" in one.
    shown = excerpt("Was the boat at the market?", TURN, 9, "Ben: A boat. The boat. Our boat. My boat. Her boat.")
    assert shown == "Ana: ... Later we went to the market. ..."


def test_without_a_word_of_the_question_the_beginning_is_shown() -> None:
    assert excerpt("Who plays chess?", TURN, 17) == "Ana: The boat was wet. We painted the kitchen in the morning. ..."


def test_a_list_without_full_stops_is_divided_at_words() -> None:
    listed = "Ana: " + " ".join(f"item{n} costs {n} pounds," for n in range(200))
    shown = excerpt("What does item150 cost?", listed, 45)
    assert "item150 costs 150 pounds," in shown
    assert count_tokens(shown) <= 45 + count_tokens("Ana: ......")


@given(st.text(max_size=600), st.text(max_size=80), st.integers(0, 200))
def test_no_excerpt_is_longer_than_asked_for_and_each_is_part_of_the_text(
    words: str, question: str, tokens: int
) -> None:
    text = f"Ana: {words}"
    shown = excerpt(question, text, tokens)
    if shown != text:
        speaker, _, rest = shown.partition(": ")
        parts = [part for part in rest.split() if part != "..."]
        assert speaker == "Ana"
        assert count_tokens(" ".join(parts)) <= tokens
        left = iter(words.split())
        assert all(part in left for part in parts)

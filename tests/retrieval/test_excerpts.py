from __future__ import annotations

import pytest
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


@given(st.text(max_size=600), st.text(max_size=80), st.integers(1, 200))
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
        whole = " ".join(words.split())
        assert all(part in whole for part in parts)


@pytest.mark.parametrize(
    ("words", "question", "sought"),
    [
        ("我们去年夏天去了北京,参观了故宫。" * 20 + "长城很长。" + "我们吃了烤鸭。" * 20, "长城在哪里", "长城很长。"),
        ("ฉันชอบกินข้าวผัดมาก" * 60, "ข้าวผัด", "ข้าวผัด"),
        ("🎉" * 300, "party?", "🎉🎉🎉"),
        ("https://example.org/" + "a1" * 300, "Where is example?", "https://example.org/"),
    ],
)
def test_a_text_without_blanks_is_divided_too(words: str, question: str, sought: str) -> None:
    shown = excerpt(question, f"Ana: {words}", 60)
    assert sought in shown
    assert count_tokens(shown) <= 60 + count_tokens("Ana: ......")


def test_if_no_sentence_fits_the_beginning_of_the_best_is_shown() -> None:
    text = "Ana: The weather was fine all day long. The deposit for the boat was ninety pounds in the end."
    assert excerpt("How much was the deposit?", text, 5) == "Ana: ... The deposit for the ..."

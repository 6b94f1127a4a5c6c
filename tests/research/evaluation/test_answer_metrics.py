from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.text import bleu_score, squad

from locigraph.research.evaluation.answer_metrics import bleu_1, token_f1, token_f1_of_parts, word_stems

# Words that are their own stems, since the referees do not stem.
WORDS = ["red", "boat", "tom", "lake", "may", "seven", "the", "a", "2023"]
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)


def test_words_are_compared_without_case_punctuation_articles_and_endings() -> None:
    assert word_stems("The boats, and a CANOE!") == ["boat", "cano"]
    assert token_f1("She was running.", "she was run") == 1.0


def test_token_f1_by_hand() -> None:
    # Shared: red, boat. Precision 2/3, recall 2/4.
    assert token_f1("red boat tom", "red boat seven lakes") == pytest.approx(2 * (2 / 3) * 0.5 / (2 / 3 + 0.5))
    assert token_f1("", "red") == token_f1("the", "red") == 0.0
    assert token_f1("red red", "red") == pytest.approx(2 / 3)  # a word counts as often as both have it


def test_parts_of_a_listing_are_matched_one_by_one() -> None:
    # Of "red", "boat lake" the answer has the first, and half of the words of the second: F1 2/3.
    assert token_f1_of_parts("lake, red", "red, boat lake") == pytest.approx((1 + 2 / 3) / 2)


def test_bleu_by_hand() -> None:
    # Two of three words, no penalty; then one word for three: exp(1 - 3).
    assert bleu_1("red boat tom", "red boat") == pytest.approx(2 / 3)
    assert bleu_1("Red", "red boat lake") == pytest.approx(math.exp(-2))
    assert bleu_1("", "red") == bleu_1("tom", "red") == 0.0
    assert bleu_1("red, boat", "red, boat") == 1.0


@given(TEXTS, TEXTS)
def test_token_f1_equals_that_of_another_library(answer: str, reference: str) -> None:
    theirs = squad(
        [{"prediction_text": answer, "id": "1"}],
        [{"answers": {"answer_start": [0], "text": [reference]}, "id": "1"}],
    )["f1"]
    if word_stems(answer) or word_stems(reference):  # two empty ones are no match here, as in LoCoMo's own code
        assert token_f1(answer, reference) == pytest.approx(float(theirs) / 100, abs=1e-5)


@given(TEXTS, TEXTS)
def test_bleu_equals_that_of_another_library(answer: str, reference: str) -> None:
    assert bleu_1(answer, reference) == pytest.approx(float(bleu_score([answer], [[reference]], n_gram=1)), abs=1e-5)

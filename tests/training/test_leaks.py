from __future__ import annotations

import pytest

from locigraph.training.errors import LeakError
from locigraph.training.leaks import Fold, check_text_leak, copied_evidence


def test_a_repeated_question_is_found_in_other_case_and_punctuation() -> None:
    train = ["What did Ann buy?", "Where does Bob live?"]
    check_text_leak(train, ["What did Ann sell?"])
    with pytest.raises(LeakError, match=r"'WHAT did  Ann buy \?!' is also a training question"):
        check_text_leak(train, ["Who?", "WHAT did  Ann buy ?!"])


def test_text_in_full_width_letters_is_the_same_text() -> None:
    with pytest.raises(LeakError):
        check_text_leak(["who?"], ["Ｗｈｏ？"])


def test_evidence_that_a_training_conversation_repeats_is_found_whatever_its_id() -> None:
    long = "We moved the piano to the attic before the winter storms came."
    texts = {
        "a": {"a1": long, "a2": "Thanks!"},
        "b": {"b1": long.upper().replace(".", "!"), "b2": "Thanks!"},  # other case and signs, the same words
        "c": {"c1": "Nothing of the kind was ever said in this third one."},
    }
    folds = (
        Fold(0, train=("b",), validation=("c",), test=("a",)),
        Fold(1, train=("c",), validation=(), test=("b",)),
    )
    evidence = {"qa": ("a", ["a2", "a1"]), "short": ("a", ["a2"]), "qb": ("b", ["b1"])}
    assert copied_evidence(folds, evidence, texts) == ["qa"]

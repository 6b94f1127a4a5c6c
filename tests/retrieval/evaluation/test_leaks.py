from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.retrieval.evaluation.errors import EvaluationError, LeakError
from locigraph.retrieval.evaluation.leaks import Fold, check_folds, check_text_leak, copied_evidence, make_folds

TEN = [f"conv-{index}" for index in range(10)]


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[str], int, int, int]:
    """Conversations, folds, validation conversations and seed that fit together."""
    count = draw(st.integers(min_value=3, max_value=14))
    folds = draw(st.integers(min_value=2, max_value=count))
    left = count - -(-count // folds)
    validation = draw(st.integers(min_value=0, max_value=left - 1))
    return [f"s{index}" for index in range(count)], folds, validation, draw(st.integers(0, 99))


@given(splits())
def test_made_folds_pass_the_check_and_are_balanced(split: tuple[list[str], int, int, int]) -> None:
    spaces, count, validation, seed = split
    folds = make_folds(spaces, folds=count, validation=validation, seed=seed)
    check_folds(folds, spaces=spaces)
    sizes = [len(fold.test) for fold in folds]
    assert max(sizes) - min(sizes) <= 1
    for index, fold in enumerate(folds):
        assert fold.index == index
        assert len(fold.validation) == validation
        assert fold.train
        assert sorted(fold.train + fold.validation + fold.test) == sorted(spaces)


def test_as_many_folds_as_conversations_leaves_one_out() -> None:
    folds = make_folds(TEN, folds=10, validation=2, seed=0)
    assert [len(fold.test) for fold in folds] == [1] * 10
    assert [len(fold.train) for fold in folds] == [7] * 10
    served = Counter(space for fold in folds for space in fold.validation)
    assert set(served.values()) == {2}


def test_heavy_and_light_conversations_are_used_for_validation() -> None:
    weights = {f"c{i:02}": float(i + 1) for i in range(15)}
    folds = make_folds(list(weights), folds=5, validation=1, seed=0, weights=weights)
    used = sorted(weights[space] for fold in folds for space in fold.validation)
    assert len({*used}) == 5
    # Of 15 conversations the five heaviest have weights from 11.
    assert used[0] <= 5
    assert used[-1] > 10


def test_folds_depend_on_the_seed_and_not_on_the_order_of_the_conversations() -> None:
    folds = make_folds(TEN, folds=5, validation=1, seed=3)
    assert make_folds(TEN[::-1], folds=5, validation=1, seed=3) == folds
    assert make_folds(TEN, folds=5, validation=1, seed=4) != folds


def test_weights_balance_the_number_of_questions() -> None:
    # Dealt 8 | 7, then the heaviest left to the lightest: 2 to the 7 and 1 to the 8, so 9 and 9.
    weights = {"a": 8, "b": 7, "c": 2, "d": 1}
    folds = make_folds("abcd", folds=2, validation=0, seed=0, weights=weights)
    assert sorted(fold.test for fold in folds) == [("a", "d"), ("b", "c")]


@pytest.mark.parametrize(
    ("folds", "message"),
    [
        ([Fold(0, ("a", "b"), (), ("a",))], "fold 0: conversation 'a' is in test and in train"),
        ([Fold(3, ("a", "b"), ("b",), ("c",))], "fold 3: conversation 'b' is in validation and in train"),
        ([Fold(0, ("a",), ("b",), ("b",))], "conversation 'b' is in test and in validation"),
        ([Fold(0, ("b",), (), ("a",)), Fold(1, ("b",), (), ("a",))], "'a' is tested 2 times"),
        ([Fold(0, ("c",), (), ("a", "a"))], "'a' is tested 2 times"),
        ([Fold(0, ("b", "c"), (), ("a",)), Fold(1, ("a", "c"), (), ("b",))], "no fold tests conversation 'c'"),
    ],
)
def test_a_leaking_split_is_refused_by_name(folds: list[Fold], message: str) -> None:
    with pytest.raises(LeakError, match=message):
        check_folds(folds)


def test_a_conversation_that_no_fold_mentions_is_missed_when_all_are_named() -> None:
    folds = [Fold(0, ("b",), (), ("a",)), Fold(1, ("a",), (), ("b",))]
    check_folds(folds)
    with pytest.raises(LeakError, match="no fold tests conversation 'c'"):
        check_folds(folds, spaces="abc")


@pytest.mark.parametrize(
    ("spaces", "folds", "validation", "message"),
    [
        ("aab", 2, 0, "'a' is listed more than once"),
        ("abc", 1, 0, "folds is 1 for 3 conversations"),
        ("abc", 4, 0, "folds is 4 for 3 conversations"),
        ("abc", 3, 2, "validation is 2"),
        ("abc", 3, -1, "validation is -1"),
    ],
)
def test_impossible_splits_are_refused(spaces: str, folds: int, validation: int, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        make_folds(spaces, folds=folds, validation=validation, seed=0)


def test_a_conversation_without_a_weight_is_refused() -> None:
    with pytest.raises(EvaluationError, match="'b' has no weight"):
        make_folds("ab", folds=2, validation=0, seed=0, weights={"a": 1.0})


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

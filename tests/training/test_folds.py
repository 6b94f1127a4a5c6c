from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.types import Question, SpaceId, TurnId
from locigraph.kg.views import Views
from locigraph.retrieval.text.text_adapter import TextAdapter
from locigraph.training import folds
from locigraph.training.errors import LeakError, TrainingError
from locigraph.training.folds import (
    FoldTrainer,
    plan_folds,
    refuse_trained_on,
    refuse_validation_on_adapter_data,
    without_wordings,
)
from locigraph.training.leaks import Fold
from locigraph.training.snapshots import TrainingSet
from tests.fakes import make_turns
from tests.fakes_graph import CPU, make_snapshot, small_settings
from tests.training.planted import ENCODER, QUESTIONS, VIEWS


def question(space: str, name: str, text: str) -> Question:
    return Question(SpaceId(space), name, text, "1", (TurnId("t0"),))


def validating(*spaces: str) -> TrainingSet:
    return TrainingSet((), ("a",), spaces, VIEWS)


def test_an_adapter_may_not_know_what_is_tested_nor_have_learnt_what_decides_when_to_stop() -> None:
    identity = {"train": ["a"], "validation": ["b"]}
    adapter = TextAdapter(Path("adapter"), "m", "123", {"identity": identity})
    for space in "ab":
        with pytest.raises(LeakError, match=f"encoder.adapter 123 was trained or validated on space '{space}'"):
            refuse_trained_on(adapter, [question("c", "1", "?"), question(space, "2", "?")], option="encoder.adapter")
    refuse_trained_on(adapter, [question("c", "1", "?")], option="encoder.adapter")
    with pytest.raises(
        LeakError, match=r"validation space 'a' decides when to stop, .*adapter was trained on it.*--validation"
    ):
        refuse_validation_on_adapter_data(adapter, [validating("b"), validating("c", "a")])
    refuse_validation_on_adapter_data(adapter, [validating("b", "c")])
    refuse_validation_on_adapter_data(None, [validating("a")])


def questions_about(sizes: Mapping[str, int]) -> list[Question]:
    """Conversation -> number of questions, as questions."""
    return [question(space, f"{space}-{i}", "what?") for space, count in sizes.items() for i in range(count)]


TEN = questions_about({f"conv-{index}": 1 for index in range(10)})


@given(st.integers(3, 14), st.integers(2, 14), st.integers(0, 12), st.integers(0, 99))
def test_folds_never_share_spaces_and_test_each_once(spaces: int, count: int, validation: int, seed: int) -> None:
    sizes = {f"s{i}": 1 + i % 3 for i in range(spaces)}
    count = min(count, spaces)
    validation = min(validation, spaces - -(-spaces // count) - 1)  # leaves one to train on
    planned = plan_folds(questions_about(sizes), folds=count, validation=validation, seed=seed)
    for index, fold in enumerate(planned):
        assert fold.index == index
        assert sorted([*fold.train, *fold.validation, *fold.test]) == sorted(sizes)
        assert len(fold.validation) == validation
        assert fold.train
    assert sorted(space for fold in planned for space in fold.test) == sorted(sizes)
    assert max(len(fold.test) for fold in planned) - min(len(fold.test) for fold in planned) <= 1


def test_as_many_folds_as_conversations_leaves_one_out() -> None:
    planned = plan_folds(TEN, folds=10, validation=2, seed=0)
    assert [len(fold.test) for fold in planned] == [1] * 10
    assert [len(fold.train) for fold in planned] == [7] * 10
    served = Counter(space for fold in planned for space in fold.validation)
    assert set(served.values()) == {2}


def test_large_and_small_conversations_are_used_for_validation() -> None:
    sizes = {f"c{i:02}": i + 1 for i in range(15)}
    planned = plan_folds(questions_about(sizes), folds=5, validation=1, seed=0)
    used = sorted(sizes[space] for fold in planned for space in fold.validation)
    assert len({*used}) == 5
    # Of 15 conversations the five largest have from 11 questions on.
    assert used[0] <= 5
    assert used[-1] > 10


def test_folds_depend_on_the_seed_and_not_on_the_order_of_the_questions() -> None:
    planned = plan_folds(TEN, folds=5, validation=1, seed=3)
    assert plan_folds(TEN[::-1], folds=5, validation=1, seed=3) == planned
    assert plan_folds(TEN, folds=5, validation=1, seed=4) != planned


def test_folds_have_about_the_same_number_of_questions() -> None:
    # Dealt 8 | 7, then the largest left to the smallest: 2 to the 7 and 1 to the 8, so 9 and 9.
    planned = plan_folds(questions_about({"a": 8, "b": 7, "c": 2, "d": 1}), folds=2, validation=0, seed=0)
    assert sorted(fold.test for fold in planned) == [("a", "d"), ("b", "c")]


@pytest.mark.parametrize(
    ("count", "validation", "message"),
    [
        (1, 0, "folds is 1; expected 2 to 3"),
        (4, 0, "folds is 4; expected 2 to 3"),
        (3, 2, "validation is 2: of 3 conversations a fold tests 1, so it must be from 0 to 1"),
        (3, -1, "validation is -1"),
    ],
)
def test_impossible_folds_are_refused(count: int, validation: int, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        plan_folds(questions_about({"a": 1, "b": 1, "c": 1}), folds=count, validation=validation, seed=0)


def test_a_corpus_of_one_conversation_has_no_folds() -> None:
    with pytest.raises(TrainingError, match="folds need at least 2 conversations with questions; the corpus has 1"):
        plan_folds(questions_about({"a": 3}), folds=2, validation=0, seed=0)


@pytest.mark.parametrize(
    "text", ["What did Ann buy?", "what  did ann BUY?", "What did Ann buy", "\uff37hat did Ann buy!"]
)
def test_questions_with_a_tested_questions_wording_are_left_out(text: str) -> None:
    tested = [question("test", "q1", "What did Ann buy?")]
    kept = without_wordings([question("train", "q2", text), question("train", "q3", "Who?")], tested)
    assert [q.question_id for q in kept] == ["q3"]


FOLD = Fold(0, ("planted1",), (), ("planted2",))


def trainer(*also: TrainingSet, questions: Sequence[Question] = QUESTIONS) -> FoldTrainer:
    return FoldTrainer(questions, VIEWS, CPU, encoder=ENCODER, details={"commit": "c"}, also=also)


def test_a_fold_is_trained_without_its_test_conversations_and_their_wordings(tmp_path: Path) -> None:
    leaking = replace(QUESTIONS[0], text=next(q.text for q in QUESTIONS if q.space == "planted2"))
    held = trainer(questions=(leaking, *QUESTIONS[1:]))
    made = [held.train(FOLD, small_settings(finetune=1), folder=tmp_path / str(n), seed=0, name="a") for n in range(2)]
    assert made[0].version == made[1].version
    assert made[0].details["identity"]["train"] == ["planted1"]
    assert (made[0].details["commit"], made[0].details["fold"], made[0].details["name"]) == ("c", 0, "a")
    assert held.notes == ["fold 0: 1 training questions left out, since test questions have the same wording"]
    assert held.data(FOLD) is held.data(FOLD)  # which is looked for once
    # As if it had not been there.
    clean = trainer(questions=QUESTIONS[1:])
    without = clean.train(FOLD, small_settings(finetune=1), folder=tmp_path / "c", seed=0, name="a")
    assert without.version == made[0].version
    assert clean.notes == []


def test_a_fold_learns_from_other_corpora_too_but_not_the_wordings_it_is_tested_on(tmp_path: Path) -> None:
    third = tuple(q for q in QUESTIONS if q.space == "planted3")
    leaking = replace(third[0], text=next(q.text for q in QUESTIONS if q.space == "planted2"))
    own = tuple(q for q in QUESTIONS if q.space != "planted3")
    versions: list[str] = []
    for questions in ((leaking, *third[1:]), third[1:], third):
        held = trainer(TrainingSet(questions, ("planted3",), (), VIEWS), questions=own)
        made = held.train(FOLD, small_settings(finetune=1), folder=tmp_path / str(len(versions)), seed=0, name="a")
        assert made.details["identity"]["train"] == ["planted1", "planted3"]
        versions.append(made.version)
    assert versions[0] == versions[1] != versions[2]


def test_the_turns_of_other_corpora_are_seen_in_every_fold_but_not_their_questions() -> None:
    long = "We finally bought the old red canoe from the neighbour near the lake"
    snapshot = make_snapshot(make_turns([long, "It is ours"], space=SpaceId("copy")))
    asked = question("copy", "q", "What was bought from the neighbour who lives near the lake?")
    seen = trainer(TrainingSet((asked,), ("copy",), (), Views(lambda space, as_of: snapshot, {}))).seen_elsewhere()
    assert long in seen
    assert asked.text not in seen  # a test question of this wording would have been left out of the training
    assert len(trainer().seen_elsewhere()) == 0


def test_a_corpus_to_learn_from_that_holds_a_test_conversation_is_refused(tmp_path: Path) -> None:
    held = trainer(TrainingSet(QUESTIONS, ("planted2", "planted3"), (), VIEWS))
    with pytest.raises(LeakError, match="fold 0 tests space 'planted2', which is also in a corpus to learn from"):
        held.train(FOLD, small_settings(finetune=1), folder=tmp_path, seed=0, name="a")


def test_training_in_folds_refuses_several_devices() -> None:
    several = dataclasses.replace(CPU, devices=2)
    with pytest.raises(TrainingError, match="devices is 2; training in folds uses one"):
        FoldTrainer(QUESTIONS, VIEWS, several, encoder=ENCODER, details={})


def test_a_wording_that_slips_through_is_refused_before_it_is_learnt_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaking = replace(QUESTIONS[0], text=next(q.text for q in QUESTIONS if q.space == "planted2"))
    monkeypatch.setattr(
        folds, "without_wordings", lambda questions, tested: tuple(questions)
    )  # the fault that is planted
    with pytest.raises(LeakError, match="is also a training question"):
        trainer(questions=(leaking, *QUESTIONS[1:])).train(
            FOLD, small_settings(finetune=1), folder=tmp_path, seed=0, name="a"
        )

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locigraph.kg.types import Question, SpaceId, TurnId
from locigraph.kg.views import Views
from locigraph.retrieval.evaluation import Fold, LeakError, check_folds
from locigraph.retrieval.text.text_adapter import TextAdapter
from locigraph.training import folds
from locigraph.training.errors import TrainingError
from locigraph.training.folds import FoldTrainer, plan_folds, refuse_fitted, refuse_known, without_wordings
from locigraph.training.snapshots import TrainingSet
from tests.fakes import make_turns
from tests.fakes_graph import CPU, make_snapshot, small_settings
from tests.training.planted import EMBED, QUESTIONS, VIEWS


def question(space: str, name: str, text: str) -> Question:
    return Question(SpaceId(space), name, text, "1", (TurnId("t0"),))


def test_an_adapter_may_not_know_what_is_tested_nor_have_learnt_what_decides_when_to_stop() -> None:
    identity = {"train": ["a"], "validation": ["b"]}
    adapter = TextAdapter(Path("adapter"), "m", "123", {"identity": identity})
    for space in "ab":
        with pytest.raises(LeakError, match=f"encoder.adapter 123 was trained or validated on space '{space}'"):
            refuse_known(adapter, [question("c", "1", "?"), question(space, "2", "?")], option="encoder.adapter")
    refuse_known(adapter, [question("c", "1", "?")], option="encoder.adapter")
    with pytest.raises(
        LeakError, match=r"validation space 'a' decides when to stop, .*adapter was trained on it.*--validation"
    ):
        refuse_fitted(adapter, ["b", "a"])
    refuse_fitted(adapter, ["b", "c"])
    refuse_fitted(None, ["a"])


@settings(max_examples=40)
@given(st.integers(2, 9), st.integers(2, 9), st.integers(0, 2), st.integers(0, 99))
def test_folds_never_share_spaces_and_test_each_once(spaces: int, folds: int, validation: int, seed: int) -> None:
    asked = [question(f"s{i}", f"q{i}-{j}", "what?") for i in range(spaces) for j in range(1 + i % 3)]
    folds = min(folds, spaces)
    if validation >= spaces - -(-spaces // folds):
        return  # nothing would be left to train on
    planned = plan_folds(asked, folds=folds, validation=validation, seed=seed)
    for fold in planned:
        sides = [*fold.train, *fold.validation, *fold.test]
        assert sorted(sides) == sorted(set(sides)) == sorted(f"s{i}" for i in range(spaces))
        assert fold.train
    assert sorted(space for fold in planned for space in fold.test) == sorted(f"s{i}" for i in range(spaces))


def test_a_planted_leak_between_the_sides_fails() -> None:
    with pytest.raises(LeakError, match="'b'"):
        check_folds([Fold(0, ("a", "b"), (), ("b",))])


@pytest.mark.parametrize(
    "text", ["What did Ann buy?", "what  did ann BUY?", "What did Ann buy", "\uff37hat did Ann buy!"]
)
def test_questions_with_a_tested_questions_wording_are_left_out(text: str) -> None:
    tested = [question("test", "q1", "What did Ann buy?")]
    kept = without_wordings([question("train", "q2", text), question("train", "q3", "Who?")], tested)
    assert [q.question_id for q in kept] == ["q3"]


FOLD = Fold(0, ("planted1",), (), ("planted2",))


def trainer(*also: TrainingSet, questions: Sequence[Question] = QUESTIONS) -> FoldTrainer:
    return FoldTrainer(questions, VIEWS, CPU, embed=EMBED, text_encoder="fake-bow", details={"commit": "c"}, also=also)


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


def test_more_folds_than_conversations_are_refused() -> None:
    asked = [question(space, f"q-{space}", f"what of {space}?") for space in ("a", "b")]
    with pytest.raises(TrainingError, match="expected 2 to 2"):
        plan_folds(asked, folds=3, validation=0, seed=0)


def test_training_in_folds_refuses_several_devices() -> None:
    several = dataclasses.replace(CPU, devices=2)
    with pytest.raises(TrainingError, match="devices is 2; training in folds uses one"):
        FoldTrainer(QUESTIONS, VIEWS, several, embed=EMBED, text_encoder="fake-bow", details={})


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

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kg.snapshot import Snapshot
from kg.types import NodeId, Question, SpaceId, TurnId
from retrieval.evaluation import Fold, LeakError, check_folds
from retrieval.milvus import MilvusIndex
from tests.fakes import MONDAY, SPACE, FakeEncoder, make_turns
from tests.fakes_graph import CPU, TEXT_DIM, make_snapshot, planted_space, small_config
from training.config import StageConfig
from training.errors import TrainingDataError, TrainingError
from training.experiment import (
    Comparison,
    TrainingSet,
    Views,
    drop_leaked,
    joined_runs,
    outcomes,
    plan_folds,
    train_checkpoint,
)
from training.refresh import GRAPH_ALIAS, View, refresh

EMBED = FakeEncoder(TEXT_DIM).encode
PLANTED = {space.space: (space, questions) for space, questions in map(planted_space, range(1, 4))}
# Each space's wording is its own, or the planted spaces would leak into each other.
QUESTIONS = tuple(
    replace(q, text=f"{q.text} asks {q.space}") for _, questions in PLANTED.values() for q in questions
)  # fmt: skip


def question(space: str, name: str, text: str) -> Question:
    return Question(SpaceId(space), name, text, "1", (TurnId("t0"),))


def views() -> Views:
    return Views(lambda space, as_of: PLANTED[space][0], {})


def train(folder: Path, questions: tuple[Question, ...] = QUESTIONS, *, epochs: int = 1) -> tuple[str, float]:
    """Version of the checkpoint and when it was written."""
    data = TrainingSet(questions, ("planted1", "planted2"), ("planted3",))
    made = train_checkpoint(
        data, views(), small_config(finetune=epochs), CPU, embed=EMBED, text_encoder="fake-bow", folder=folder,
        seed=0, details={},
    )  # fmt: skip
    return made.version, (folder / "checkpoint" / "manifest.json").stat().st_mtime_ns


@settings(max_examples=40, deadline=None)
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
def test_training_questions_with_a_test_questions_wording_are_left_out(text: str) -> None:
    asked = [
        question("test", "q1", "What did Ann buy?"),
        question("train", "q2", text),
        question("train", "q3", "Who?"),
    ]
    kept, left_out = drop_leaked(asked, Fold(0, ("train",), (), ("test",)))
    assert [q.question_id for q in kept] == ["q3"]
    assert left_out == 1


def test_questions_of_other_folds_spaces_are_not_on_the_training_side() -> None:
    asked = [question(space, f"q-{space}", f"what of {space}?") for space in ("a", "b", "c", "d")]
    kept, left_out = drop_leaked(asked, Fold(0, ("a",), ("b",), ("c",)))
    assert [q.space for q in kept] == ["a", "b"]
    assert left_out == 0


# --- views -----------------------------------------------------------------------------------------------------


def test_a_view_hides_later_turns_and_is_read_once() -> None:
    turns = make_turns(["one", "two", "three"])
    read: list[tuple[SpaceId, datetime | None]] = []

    def load(space: SpaceId, as_of: datetime | None) -> Snapshot:
        read.append((space, as_of))
        return make_snapshot([turn for turn in turns if as_of is None or turn.recorded_at <= as_of])

    held = Views(load, {SPACE: turns[-1].spoken_at})
    early = held.of(SPACE, MONDAY + timedelta(minutes=1))
    assert early == View(SPACE, MONDAY + timedelta(minutes=1))
    assert held.snapshot(early).turn_ids == ("t0", "t1")
    assert held.snapshot(held.of(SPACE, None)).turn_ids == ("t0", "t1", "t2")
    held.snapshot(early)
    assert read == [(SPACE, early.as_of), (SPACE, None)]


def test_a_time_after_the_last_turn_is_the_present() -> None:
    held = views()
    assert held.of(SpaceId("planted1"), MONDAY) == View(SpaceId("planted1"))  # undated
    dated = Views(lambda space, as_of: PLANTED[space][0], {SPACE: MONDAY})
    assert dated.of(SPACE, MONDAY) == dated.of(SPACE, None) == View(SPACE)
    assert dated.of(SPACE, MONDAY - timedelta(seconds=1)).as_of is not None


# --- training --------------------------------------------------------------------------------------------------


def test_a_finished_training_is_loaded_and_another_made_when_anything_differs(tmp_path: Path) -> None:
    first = train(tmp_path)
    assert train(tmp_path) == first
    corrected = (replace(QUESTIONS[0], evidence=(TurnId("t5"),)), *QUESTIONS[1:])
    for changed in (train(tmp_path, corrected), train(tmp_path, epochs=2)):
        assert changed[1] != first[1]


def test_a_training_of_other_code_is_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(tmp_path)
    assert list(tmp_path.glob("*.ckpt")) == []
    monkeypatch.setattr("training.experiment.source_digest", lambda: "another")
    assert train(tmp_path)[1] != first[1]


def test_graphs_of_another_extractor_are_learnt_from_as_well(tmp_path: Path) -> None:
    bare = Views(lambda space, as_of: make_snapshot(make_turns(["one", "two"], space=space)), {})
    made = train_checkpoint(
        TrainingSet(QUESTIONS, ("planted1",), ("planted3",)), views(), small_config(finetune=1), CPU, embed=EMBED,
        text_encoder="fake-bow", folder=tmp_path, seed=0, details={}, also=[bare],
    )  # fmt: skip
    assert sorted(made.details["identity"]["graphs"]) == [
        "graph 2: planted1", "graph 2: planted3", "planted1", "planted3",
    ]  # fmt: skip


def test_a_manifest_holds_no_words_of_a_question(tmp_path: Path) -> None:
    train(tmp_path)
    manifest = (tmp_path / "checkpoint" / "manifest.json").read_text()
    assert not any(question.text in manifest for question in QUESTIONS)


def test_pseudo_questions_beside_the_fine_tuning_need_no_pretraining(tmp_path: Path) -> None:
    versions = set()
    for weight in (0.0, 0.5):
        config = small_config(finetune=1)
        config = replace(config, finetune=replace(config.finetune, fact_questions=weight))
        made = train_checkpoint(
            TrainingSet(QUESTIONS, ("planted1",), ()), views(), config, CPU, embed=EMBED, text_encoder="fake-bow",
            folder=tmp_path / str(weight), seed=0, details={},
        )  # fmt: skip
        versions.add(made.version)
    assert len(versions) == 2


def test_more_folds_than_conversations_are_refused() -> None:
    asked = [question(space, f"q-{space}", f"what of {space}?") for space in ("a", "b")]
    with pytest.raises(TrainingError, match="expected 2 to 2"):
        plan_folds(asked, folds=3, validation=0, seed=0)


def test_a_damaged_checkpoint_is_made_anew(tmp_path: Path) -> None:
    version, _ = train(tmp_path)
    (tmp_path / "checkpoint" / "manifest.json").write_text("{")
    assert train(tmp_path)[0] == version


def test_a_model_without_lexical_and_context_part_can_be_trained(tmp_path: Path) -> None:
    config = small_config(finetune=1)
    config = replace(config, model=replace(config.model, lexical_dim=0, speaker_dim=0, date_dim=0))
    data = TrainingSet(QUESTIONS, ("planted1",), ())
    made = train_checkpoint(
        data, views(), config, CPU, embed=EMBED, text_encoder="fake-bow", folder=tmp_path, seed=0, details={}
    )
    assert made.sketch.dim == 0


def test_fine_tuning_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="no training space has a question"):
        train(tmp_path, tuple(q for q in QUESTIONS if q.space == "planted3"))


def test_a_fast_dev_run_writes_no_checkpoint(tmp_path: Path) -> None:
    config = replace(small_config(), pretrain=StageConfig(epochs=1, fact_questions=1.0))
    train_checkpoint(
        TrainingSet(QUESTIONS, ("planted1",), ()), views(), config, replace(CPU, fast_dev_run=True), embed=EMBED,
        text_encoder="fake-bow", folder=tmp_path, seed=0, details={},
    )  # fmt: skip
    assert not (tmp_path / "checkpoint").exists()


def test_a_comparison_asks_every_question_once_and_leaves_nothing_in_the_index(tmp_path: Path) -> None:
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        comparison = Comparison(
            index=index, views=views(), embed=EMBED, text_encoder="fake-bow", describe=lambda s, n: str(n),
            folder=tmp_path / "runs", details={},
        )  # fmt: skip
        planned = plan_folds(QUESTIONS, folds=3, validation=1, seed=0)
        runs = [comparison.fold(fold, QUESTIONS, small_config(finetune=1), CPU, seed=0) for fold in planned]
        joined = joined_runs(runs)
        assert sorted(joined.rankings) == sorted(q.question_id for q in QUESTIONS)
        for q in QUESTIONS:
            assert sorted(joined.rankings[q.question_id]) == [f"t{i}" for i in range(6)]
        assert index.collections() == []
        assert comparison.notes == []

        # Embeddings that a refresh has put in use stay, though the comparison makes the same.
        checkpoint = train_checkpoint(
            TrainingSet(QUESTIONS, ("planted1",), ()), views(), small_config(finetune=1), CPU, embed=EMBED,
            text_encoder="fake-bow", folder=tmp_path / "one", seed=0, details={},
        )  # fmt: skip
        view = View(SpaceId("planted2"))
        done = refresh(index, checkpoint, [view], views().snapshot, progress=None)
        comparison.zero_shot(checkpoint, [q for q in QUESTIONS if q.space == "planted2"])
        assert index.alias_target(GRAPH_ALIAS) == done.collection
    folds = {space: fold.index for fold in planned for space in fold.test}
    assert {o.fold for o in outcomes(QUESTIONS, folds)} == {0, 1, 2}
    assert np.isfinite(list(joined.search_ms.values())).all()
    assert NodeId("n0") in PLANTED[SpaceId("planted1")][0].ids

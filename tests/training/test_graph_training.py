from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from locigraph.kg.types import Question, TurnId
from locigraph.training.config import StageConfig
from locigraph.training.errors import TrainingDataError
from locigraph.training.snapshots import TrainingSet
from locigraph.training.snapshots import Views
from tests.fakes import make_turns
from tests.fakes_graph import CPU, make_snapshot, small_settings
from tests.training.planted import QUESTIONS, VIEWS, made_of


def train(folder: Path, questions: tuple[Question, ...] = QUESTIONS, *, epochs: int = 1) -> tuple[str, float]:
    """Version of the checkpoint and when it was written."""
    made = made_of(folder, TrainingSet(questions, ("planted1", "planted2"), ("planted3",), VIEWS), epochs=epochs)
    return made.version, (folder / "checkpoint" / "manifest.json").stat().st_mtime_ns


def test_a_finished_training_is_loaded_and_another_made_when_anything_differs(tmp_path: Path) -> None:
    first = train(tmp_path)
    assert train(tmp_path) == first
    corrected = (replace(QUESTIONS[0], evidence=(TurnId("t5"),)), *QUESTIONS[1:])
    for changed in (train(tmp_path, corrected), train(tmp_path, epochs=2)):
        assert changed[1] != first[1]


def test_a_training_of_other_code_is_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = train(tmp_path)
    assert list(tmp_path.glob("*.ckpt")) == []
    monkeypatch.setattr("locigraph.training.run.source_digest", lambda: "another")
    assert train(tmp_path)[1] != first[1]


def test_graphs_of_another_extractor_are_learnt_from_as_well(tmp_path: Path) -> None:
    bare = Views(lambda space, as_of: make_snapshot(make_turns(["one", "two"], space=space)), {})
    sides = (("planted1",), ("planted3",))
    made = made_of(tmp_path, TrainingSet(QUESTIONS, *sides, VIEWS), TrainingSet(QUESTIONS, *sides, bare))
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
        config = small_settings(finetune=1)
        config = replace(config, finetune=replace(config.finetune, fact_questions=weight))
        versions.add(made_of(tmp_path / str(weight), config=config).version)
    assert len(versions) == 2


def test_a_damaged_checkpoint_is_made_anew(tmp_path: Path) -> None:
    version, _ = train(tmp_path)
    (tmp_path / "checkpoint" / "manifest.json").write_text("{")
    assert train(tmp_path)[0] == version


def test_a_model_without_lexical_and_context_part_can_be_trained(tmp_path: Path) -> None:
    config = small_settings(finetune=1)
    config = replace(config, model=replace(config.model, lexical_dim=0, speaker_dim=0, date_dim=0))
    assert made_of(tmp_path, config=config).sketch.dim == 0


def test_fine_tuning_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="no training space has a question"):
        train(tmp_path, tuple(q for q in QUESTIONS if q.space == "planted3"))


def test_a_fast_dev_run_writes_no_checkpoint(tmp_path: Path) -> None:
    config = replace(small_settings(), pretrain=StageConfig(epochs=1, fact_questions=1.0))
    made_of(tmp_path, config=config, trainer=replace(CPU, fast_dev_run=True))
    assert not (tmp_path / "checkpoint").exists()


def test_a_corpus_is_learnt_from_beside_another(tmp_path: Path) -> None:
    alone = made_of(tmp_path / "1", TrainingSet(QUESTIONS, ("planted1",), (), VIEWS))
    both = made_of(
        tmp_path / "2",
        TrainingSet(QUESTIONS, ("planted1",), (), VIEWS),
        TrainingSet(QUESTIONS, ("planted2",), ("planted3",), VIEWS),
    )
    assert both.version != alone.version
    identity = both.details["identity"]
    assert (identity["train"], identity["validation"]) == (["planted1", "planted2"], ["planted3"])


def test_a_space_that_one_corpus_learns_from_and_another_validates_on_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="space 'planted1' is to be learnt from and to decide when to stop"):
        made_of(
            tmp_path,
            TrainingSet(QUESTIONS, ("planted1",), (), VIEWS),
            TrainingSet(QUESTIONS, ("planted2",), ("planted1",), VIEWS),
        )


def test_questions_of_another_writer_make_another_training(tmp_path: Path) -> None:
    class Shouting:
        name = "shouting"

        def write(self, statements: list[str]) -> list[list[str]]:
            return [[f"WHAT ABOUT {statement}?"] for statement in statements]

    config = replace(small_settings(finetune=1), pretrain=StageConfig(epochs=1, fact_questions=1.0))
    versions = [made_of(tmp_path, config=config).version, made_of(tmp_path, config=config, writer=Shouting()).version]
    assert versions[0] != versions[1]
    # Where no fact is asked about, the writer decides nothing.
    silent = [made_of(tmp_path).version, made_of(tmp_path, writer=Shouting()).version]
    assert silent[0] == silent[1]

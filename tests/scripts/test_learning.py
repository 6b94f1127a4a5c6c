from __future__ import annotations

import json
from pathlib import Path

import pytest

from locigraph.assembly.learning import question_writer, settings_of, training_set
from locigraph.assembly.settings import WriterSettings
from locigraph.consolidation.errors import LimitReachedError
from locigraph.kg.corpora import Corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.types import Question, SpaceId
from locigraph.kg.views import Views
from locigraph.training.config import ModelConfig, Settings, TrainingConfig
from tests.consolidation.endpoints import endpoint
from tests.fakes import make_conversation

VIEWS = Views(lambda space, as_of: pytest.fail("nothing needs to be read"), {})


def corpus_of(spaces: list[SpaceId], questions: tuple[Question, ...]) -> Corpus:
    conversations = tuple(make_conversation(["Hello"], space=space) for space in spaces)
    return Corpus(conversations, questions, format="jsonl", path="x", sha256="0")


def test_settings_with_an_unknown_encoder_loss_or_relation_are_refused() -> None:
    with pytest.raises(LocigraphError, match="'hgtt' is not known"):
        settings_of(ModelConfig(encoder="hgtt"), TrainingConfig())
    with pytest.raises(LocigraphError, match="'lnik' is not known"):
        settings_of(ModelConfig(), TrainingConfig(pretrain_losses={"lnik": 1.0}))
    with pytest.raises(LocigraphError, match="'nxet' is not known"):
        settings_of(ModelConfig(excluded_relations=["nxet"]), TrainingConfig())
    assert settings_of(ModelConfig(), TrainingConfig()) == Settings()


def test_conversations_without_questions_are_all_learnt_from_since_none_could_judge() -> None:
    spaces = [SpaceId(f"s{i}") for i in range(4)]
    made = training_set(VIEWS, corpus_of(spaces, ()), validation=2)
    assert (made.train, made.validation) == (tuple(spaces), ())
    asked = tuple(Question(space, f"q{space}", "Hello?", "c", ()) for space in spaces)
    made = training_set(VIEWS, corpus_of(spaces, asked), validation=2)
    assert (made.train, made.validation) == (("s1", "s3"), ("s0", "s2"))


def test_conversations_without_questions_beside_others_are_left_out_and_this_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spaces = [SpaceId(f"s{i}") for i in range(4)]
    asked = tuple(Question(space, f"q{space}", "Hello?", "c", ()) for space in spaces[:3])
    assert training_set(VIEWS, corpus_of(spaces, asked), validation=0).train == ("s0", "s1", "s2")
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "1 conversation without questions is left out"
    ]


def test_a_negative_number_of_conversations_cannot_be_held_back() -> None:
    spaces = [SpaceId(f"s{i}") for i in range(4)]
    asked = tuple(Question(space, f"q{space}", "Hello?", "c", ()) for space in spaces)
    with pytest.raises(LocigraphError, match="validation is -1; expected 0 or more"):
        training_set(VIEWS, corpus_of(spaces, asked), validation=-1)


def test_a_model_that_writes_questions_has_the_limits_and_parameters_of_other_models(tmp_path: Path) -> None:
    def answer(messages: list[dict[str, str]]) -> tuple[int, str]:
        return 200, json.dumps({"answers": [{"statement": 1, "questions": ["Who left?"]}]})

    with endpoint(answer) as (url, seen):
        given = WriterSettings(url, "m", cassette=str(tmp_path / "c.sqlite"), max_tokens=500, max_output_tokens=90)
        writer = question_writer(given)
        assert writer.write(["Ben left"]) == [["Who left?"]]
        assert (seen[0]["temperature"], seen[0]["max_tokens"]) == (0.0, 90)
        with pytest.raises(LimitReachedError, match="stopped by max_tokens 500"):
            writer.write([f"Ann left {place}" for place in "abcdefgh"])
    assert len(seen) == 1
    with pytest.raises(LocigraphError, match=r"^writer\.max_cost is 1\.0, but writer\.input_price"):
        question_writer(WriterSettings(url, "m", max_cost=1.0))
    with pytest.raises(LocigraphError, match=r"^writer\.timeout_s is 0"):
        question_writer(WriterSettings(url, "m", timeout_s=0))

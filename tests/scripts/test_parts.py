from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from locigraph.kg.corpora import Corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.types import Question, SpaceId
from locigraph.retrieval.evaluation import Fold
from locigraph.scripts import recall
from locigraph.scripts.parts.learning import configs_of_folds, training_set
from locigraph.scripts.parts.opening import vector_index
from locigraph.scripts.parts.strategies import STRATEGIES
from locigraph.scripts.settings import IndexSettings
from locigraph.training.config import TrainConfig
from locigraph.training.views import Views
from tests.fakes import make_conversation

VIEWS = Views(lambda space, as_of: pytest.fail("nothing needs to be read"), {})


def test_every_store_has_an_index_file_of_its_own(tmp_path: Path) -> None:
    names = ["graph.sqlite", "graph.rules", "graph.recorded", "graph.db"]
    uris = []
    for name in names:
        with vector_index(IndexSettings(), str(tmp_path / name)) as index:
            uris.append(Path(index.uri).name)
    assert uris == ["graph.index.db", "graph.rules.index.db", "graph.recorded.index.db", "graph.db.index.db"]


def test_recall_knows_the_strategies_of_an_evaluation_but_the_untested_checkpoint() -> None:
    listed = get_args(get_type_hints(recall.recall)["strategy"])
    assert {*listed, "v2-zero"} == {*STRATEGIES}  # v2 of recall is any checkpoint
    assert inspect.signature(recall.recall).parameters["strategy"].default == "v1"


def corpus_of(spaces: list[SpaceId], questions: tuple[Question, ...]) -> Corpus:
    conversations = tuple(make_conversation(["Hello"], space=space) for space in spaces)
    return Corpus("jsonl", "x", "0", conversations, questions, {})


def test_conversations_without_questions_are_all_learnt_from_since_none_could_judge() -> None:
    spaces = [SpaceId(f"s{i}") for i in range(4)]
    made = training_set(VIEWS, corpus_of(spaces, ()), validation=2)
    assert (made.train, made.validation) == (tuple(spaces), ())
    asked = tuple(Question(space, f"q{space}", "Hello?", "c", ()) for space in spaces)
    made = training_set(VIEWS, corpus_of(spaces, asked), validation=2)
    assert (made.train, made.validation) == (("s1", "s3"), ("s0", "s2"))


def test_a_search_of_other_data_or_another_text_encoder_is_not_used(tmp_path: Path) -> None:
    fold = Fold(0, ("a",), ("b",), ("c",))
    settings = {"corpus": "123", "text_encoder": "m+1"}
    found = {"folds": [{"test": ["c"], "trials": [], "best": {"model.layers": 2}}], "manifest": {"settings": settings}}
    file = tmp_path / "search.json"
    file.write_text(json.dumps(found))
    (config,) = configs_of_folds(TrainConfig(), [fold], str(file), **settings)
    assert config.model.layers == 2
    with pytest.raises(LocigraphError, match=r"the search had text_encoder 'm\+1', this evaluation has 'm'"):
        configs_of_folds(TrainConfig(), [fold], str(file), corpus="123", text_encoder="m")
    assert configs_of_folds(TrainConfig(), [fold], None, corpus="other") == [TrainConfig()]

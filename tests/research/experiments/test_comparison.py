from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from locigraph.kg.types import NodeId, Question, SpaceId
from locigraph.kg.views import View
from locigraph.research.evaluation.asking import joined_runs, outcomes, run_strategy
from locigraph.research.evaluation.outcomes import StrategyRun
from locigraph.research.experiments.comparison import searchable
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.embedding_refresh import refresh
from locigraph.training.errors import LeakError
from locigraph.training.snapshots import TrainingSet
from tests.training.planted import ENCODER, PLANTED, QUESTIONS, VIEWS, made_of


def run(checkpoint: Checkpoint, questions: Sequence[Question], *, index: MilvusIndex | None = None) -> StrategyRun:
    with searchable(checkpoint, questions, views=VIEWS, encoder=ENCODER, index=index) as (retriever, packer):
        return run_strategy(retriever, questions, VIEWS, packer=packer)


def test_a_comparison_asks_every_question_once_and_leaves_nothing_in_the_index(tmp_path: Path) -> None:
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        ask = partial(run, index=index)
        runs = []
        for space in PLANTED:
            others = tuple(s for s in PLANTED if s != space)
            trained = made_of(tmp_path / space, TrainingSet(QUESTIONS, others, (), VIEWS))
            runs.append(ask(trained, [q for q in QUESTIONS if q.space == space]))
        joined = joined_runs(runs)
        assert sorted(joined.rankings) == sorted(q.question_id for q in QUESTIONS)
        for q in QUESTIONS:
            assert sorted(joined.rankings[q.question_id]) == [f"t{i}" for i in range(6)]
        assert index.collections() == []
        # Six short turns fit into any context, and stand in the order in which they were said.
        for held in joined.contexts.values():
            assert [context.turns for context in held.values()] == [tuple(f"t{i}" for i in range(6))] * 3
            assert {len(context.lines) for context in held.values()} == {6}
            assert 0 < held[500].tokens <= 500

        # Embeddings that a refresh has put in use stay, though the comparison makes the same.
        checkpoint = made_of(tmp_path / "one")
        view = View(SpaceId("planted2"))
        done = refresh(index, checkpoint, [view], VIEWS.snapshot, progress=None)
        ask(checkpoint, [q for q in QUESTIONS if q.space == "planted2"])
        assert index.alias_target(GRAPH_ALIAS) == done.collection
    folds: dict[str, int] = {space: number for number, space in enumerate(PLANTED)}
    assert {o.fold for o in outcomes(QUESTIONS, folds)} == {0, 1, 2}
    assert np.isfinite(list(joined.search_ms.values())).all()
    assert NodeId("n0") in PLANTED[SpaceId("planted1")][0].ids


def test_a_checkpoint_is_not_asked_about_what_it_was_trained_or_validated_on(tmp_path: Path) -> None:
    known, held_back, unseen = PLANTED
    trained = made_of(tmp_path / "run", TrainingSet(QUESTIONS, (known,), (held_back,), VIEWS))
    for space in (known, held_back):
        asked = [q for q in QUESTIONS if q.space == space]
        with pytest.raises(LeakError, match=f"was trained or validated on space '{space}'"):
            run(trained, asked)
        with (
            MilvusIndex(str(tmp_path / "index.db")) as index,
            pytest.raises(LeakError, match=f"was trained or validated on space '{space}'"),
        ):
            run(trained, asked, index=index)
    asked = [q for q in QUESTIONS if q.space == unseen]
    assert len(run(trained, asked).rankings) == len(asked)


def test_a_search_in_memory_finds_what_the_index_finds_and_packs_the_same_contexts(tmp_path: Path) -> None:
    made = made_of(tmp_path / "run", TrainingSet(QUESTIONS, (next(iter(PLANTED)),), (), VIEWS))
    asked = [q for q in QUESTIONS if q.space not in made.spaces]
    in_memory = run(made, asked)
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        indexed = run(made, asked, index=index)
    assert in_memory.name == indexed.name == "v2"
    assert in_memory.rankings == indexed.rankings
    assert in_memory.contexts == indexed.contexts
    assert in_memory.contexts

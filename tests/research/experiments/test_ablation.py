from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from locigraph.gnn.encoders import GRAPH_ENCODERS
from locigraph.gnn.relations import RELATIONS, network_relations
from locigraph.kg.corpora.corpus import Corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.types import Question, SpaceId
from locigraph.research.evaluation.ablation_report import ablation_figure, ablation_rows, ablation_table
from locigraph.research.evaluation.outcomes import QuestionOutcome, StrategyRun
from locigraph.research.evaluation.results import Summary
from locigraph.research.evaluation.summary import summarise
from locigraph.research.experiments.ablation import FULL, compared_variants, variants_of
from locigraph.training.config import Settings, TrainerConfig, changed
from locigraph.training.objectives import LOSSES


def test_every_shipped_variant_changes_the_default_configuration() -> None:
    default = Settings()
    assert [name for name, changes in variants_of(default).items() if changed(default, changes) == default] == []


def test_every_shipped_variant_names_losses_encoders_and_relations_that_there_are() -> None:
    for name, changes in variants_of(Settings()).items():
        settings = changed(Settings(), changes)
        assert settings.model.encoder in GRAPH_ENCODERS, name
        assert set(settings.training.pretrain_losses) <= set(LOSSES), name
        kept = network_relations(settings.model.excluded_relations)  # refuses an unknown name
        assert (len(kept) < len(RELATIONS)) == bool(settings.model.excluded_relations), name


def test_a_variant_leaves_the_other_losses_and_relations_of_a_model_as_they_are() -> None:
    full = changed(
        Settings(),
        {"training.pretrain_losses": {"link": 0.7, "views": 0.4}, "model.excluded_relations": ["topic"]},
    )
    variants = {name: changed(full, changes) for name, changes in variants_of(full).items()}
    assert variants["no two views"].training.pretrain_losses == {"link": 0.7}
    assert variants["no pseudo-questions"] == full  # which has none
    assert variants["no facts"].model.excluded_relations == ["topic", "fact"]
    assert variants["no topics"] == full


def planted_summary(variants: Sequence[str]) -> Summary:
    gold = [QuestionOutcome(f"s{space}:{i}", f"s{space}", "c", ("t0",)) for space in range(6) for i in range(4)]
    rng = np.random.default_rng(0)
    runs = []
    for name in (FULL, *variants):
        chance = 0.9 if name == FULL else 0.4
        rankings = {o.question_id: ("t0",) if rng.random() < chance else ("t1",) for o in gold}
        no_time = dict.fromkeys(rankings, 0.0)
        runs.append(StrategyRun(name, rankings, no_time, no_time))
    pairs = [(name, FULL) for name in variants]
    return summarise(gold, runs, comparisons=pairs, metrics=("recall@10",), seed=0)


def test_a_variant_that_finds_less_is_shown_below_the_full_model() -> None:
    summary = planted_summary(["without a", "without <b>"])
    deltas = [row["delta"] for row in ablation_rows(summary)]
    assert deltas == sorted(deltas)
    assert deltas[0] < -0.2
    assert ablation_table(summary).splitlines()[2].startswith(f"| {FULL} |")
    assert "without &lt;b&gt;" in ablation_figure(summary)


def test_the_sketch_is_tried_with_four_other_widths() -> None:
    found = {
        int(name.split()[1]): changes for name, changes in variants_of(Settings()).items() if name.startswith("sketch")
    }
    assert found == {width: {"model.lexical_dim": width} for width in (256, 512, 2048, 4096)}


def test_where_every_question_was_learnt_nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Question(SpaceId("s"), "q", "Who?", "c", ())
    corpus = Corpus((), (question,), path="learnt.jsonl")
    folded: Any = SimpleNamespace(corpus=corpus, folds=(), encoder=SimpleNamespace(adapter=None))
    monkeypatch.setattr("locigraph.research.experiments.result_files.learnt_questions", lambda *_: ["q"])
    with pytest.raises(LocigraphError, match=r"learnt\.jsonl: the adapter has learnt from all 1 questions"):
        compared_variants(folded, Settings(), {}, TrainerConfig(), seed=0)

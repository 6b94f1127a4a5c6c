from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from locigraph.gnn.encoders import GRAPH_ENCODERS
from locigraph.gnn.relations import RELATIONS, network_relations
from locigraph.retrieval.evaluation.ablation_report import ablation_figure, ablation_rows, ablation_table
from locigraph.retrieval.evaluation.leaks import Fold
from locigraph.retrieval.evaluation.outcomes import QuestionOutcome, StrategyRun
from locigraph.training.ablation import FULL, ablate, variants_of
from locigraph.training.config import Settings, changed
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


def planted_summary(variants: Sequence[str]) -> tuple[str, str, list[float]]:
    spaces = [f"s{i}" for i in range(6)]
    gold = [QuestionOutcome(f"{s}:{i}", s, "c", ("t0",)) for s in spaces for i in range(4)]
    rng = np.random.default_rng(0)

    def run_fold(name: str, settings: Settings, fold: Fold) -> StrategyRun:
        chance = 0.9 if name == FULL else 0.4
        tested = [o for o in gold if o.space in fold.test]
        rankings = {o.question_id: ("t0",) if rng.random() < chance else ("t1",) for o in tested}
        no_time = dict.fromkeys(rankings, 0.0)
        return StrategyRun(name, rankings, no_time, no_time)

    folds = [Fold(i, (), (), tuple(spaces[2 * i : 2 * i + 2])) for i in range(3)]
    summary = ablate({v: {} for v in variants}, Settings(), folds, gold, run_fold, seed=0)
    return ablation_table(summary), ablation_figure(summary), [row["delta"] for row in ablation_rows(summary)]


def test_a_variant_that_finds_less_is_shown_below_the_full_model() -> None:
    table, figure, deltas = planted_summary(["without a", "without <b>"])
    assert deltas == sorted(deltas)
    assert deltas[0] < -0.2
    assert table.splitlines()[2].startswith(f"| {FULL} |")
    assert "without &lt;b&gt;" in figure


def test_questions_that_are_left_out_are_in_the_means_but_in_no_comparison() -> None:
    gold = [QuestionOutcome(f"q{space}", space, "c", ("t0",)) for space in ("a", "b")]

    def run_fold(name: str, settings: Settings, fold: Fold) -> StrategyRun:
        rankings = {f"q{space}": ("t0",) if name == FULL or space == "b" else ("t1",) for space in fold.test}
        no_time = dict.fromkeys(rankings, 0.0)
        return StrategyRun(name, rankings, no_time, no_time)

    folds = [Fold(0, ("b",), (), ("a",)), Fold(1, ("a",), (), ("b",))]
    summary = ablate({"variant": {}}, Settings(), folds, gold, run_fold, seed=0, left_out=["qa"])
    assert summary["strategies"]["variant"]["overall"]["recall@10"] == 0.5
    (row,) = summary["comparisons"]
    assert (row["clusters"], row["delta"]) == (1, 0.0)  # without "qa", which only the full model finds

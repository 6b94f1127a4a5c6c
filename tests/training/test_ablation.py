from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from locigraph.retrieval.evaluation import Fold, QuestionOutcome, StrategyRun
from locigraph.retrieval.evaluation.ablation_report import ablation_figure, ablation_rows, ablation_table
from locigraph.training.ablation import FULL, VARIANTS, ablate
from locigraph.training.config import TrainConfig, changed
from locigraph.training.errors import TrainingError
from locigraph.training.experiment import rank_exactly
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from locigraph.training.views import Views
from tests.fakes import FakeEncoder
from tests.fakes_graph import TEXT_DIM, planted_space, small_checkpoint

EMBED = FakeEncoder(TEXT_DIM).encode


def test_every_shipped_variant_changes_the_default_configuration() -> None:
    default = TrainConfig()
    assert [name for name, changes in VARIANTS.items() if changed(default, changes) == default] == []


def test_a_change_of_an_unknown_field_names_the_nearest() -> None:
    with pytest.raises(TrainingError, match=r"model\.layrs.*'layers'"):
        changed(TrainConfig(), {"model.layrs": 1})
    with pytest.raises(TrainingError, match=r"modle\.layers.*'model'"):
        changed(TrainConfig(), {"modle.layers": 1})


def test_exact_ranking_equals_a_loop_over_all_turns() -> None:
    snapshot, questions = planted_space(1)
    checkpoint = small_checkpoint()
    run = rank_exactly(checkpoint, questions, Views(lambda space, as_of: snapshot, {}), EMBED, name="x", top_k=3)
    stored = encode_graph(checkpoint, snapshot)
    for question in questions:
        query = CheckpointQueryEncoder(checkpoint, EMBED).encode_query(question.text)
        scores = {snapshot.turns_of[row][0]: float(stored[row] @ query) for row in snapshot.episode_rows}
        kept = [scores[turn] for turn in run.rankings[question.question_id]]
        assert kept == pytest.approx(sorted(scores.values(), reverse=True)[:3], abs=1e-5)


def planted_summary(variants: Sequence[str]) -> tuple[str, str, list[float]]:
    spaces = [f"s{i}" for i in range(6)]
    gold = [QuestionOutcome(f"{s}:{i}", s, "c", ("t0",)) for s in spaces for i in range(4)]
    rng = np.random.default_rng(0)

    def run_fold(name: str, config: TrainConfig, fold: Fold) -> StrategyRun:
        chance = 0.9 if name == FULL else 0.4
        tested = [o for o in gold if o.space in fold.test]
        rankings = {o.question_id: ("t0",) if rng.random() < chance else ("t1",) for o in tested}
        no_time = dict.fromkeys(rankings, 0.0)
        return StrategyRun(name, rankings, no_time, no_time)

    folds = [Fold(i, (), (), tuple(spaces[2 * i : 2 * i + 2])) for i in range(3)]
    summary = ablate({v: {} for v in variants}, TrainConfig(), folds, gold, run_fold, seed=0)
    return ablation_table(summary), ablation_figure(summary), [row["delta"] for row in ablation_rows(summary)]


def test_a_variant_that_finds_less_is_shown_below_the_full_model() -> None:
    table, figure, deltas = planted_summary(["without a", "without <b>"])
    assert deltas == sorted(deltas)
    assert deltas[0] < -0.2
    assert table.splitlines()[2].startswith(f"| {FULL} |")
    assert "without &lt;b&gt;" in figure

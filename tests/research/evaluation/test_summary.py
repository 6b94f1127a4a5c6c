from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from locigraph.research.errors import EvaluationError, IncompleteRunError
from locigraph.research.evaluation.outcomes import QuestionOutcome, StrategyRun
from locigraph.research.evaluation.results import CURVE_TOP_KS
from locigraph.research.evaluation.significance import (
    cluster_bootstrap,
    holm,
    question_level_test,
    sign_flip_test,
    smallest_p,
)
from locigraph.research.evaluation.summary import summarise
from locigraph.retrieval.metrics import CONTEXT_METRICS, METRICS
from tests.research.evaluation.planted import (
    CONVERSATIONS,
    planted_questions,
    planted_run,
    planted_summary,
    run_of,
)


def mixed_questions() -> list[QuestionOutcome]:
    """24 questions in 8 conversations, 3 categories."""
    return [QuestionOutcome(f"q{i}", f"c{i % 8}", "abc"[i % 3], ("g1", "g2")) for i in range(24)]


def random_run(name: str, seed: int) -> StrategyRun:
    rng = np.random.default_rng(seed)
    turns = ["g1", "g2", *(f"t{index}" for index in range(28))]
    return run_of(name, {q.question_id: tuple(rng.permutation(turns).tolist()) for q in mixed_questions()})


def test_means_are_over_questions_and_within_categories() -> None:
    questions = [
        QuestionOutcome("q1", "c1", "x", ("g",)),
        QuestionOutcome("q2", "c1", "x", ("g", "h")),
        QuestionOutcome("q3", "c2", "y", ("g",)),
    ]
    run = run_of("only", {"q1": ("g",), "q2": ("a", "g"), "q3": ("a", "b")})
    entry = summarise(questions, [run])["strategies"]["only"]
    # Recalls 1, 1/2, 0; reciprocal ranks 1, 1/2, 0.
    assert entry["overall"]["recall@10"] == pytest.approx(0.5)
    assert entry["overall"]["mrr"] == pytest.approx(0.5)
    assert entry["overall"]["all_recall@10"] == pytest.approx(1 / 3)
    assert entry["by_category"]["x"]["recall@10"] == pytest.approx(0.75)
    assert entry["by_category"]["y"]["recall@10"] == 0
    # At k = 1: 1, 0, 0; from 2 on as above.
    assert entry["recall_curve"]["k"] == list(CURVE_TOP_KS)
    assert entry["recall_curve"]["mean"] == pytest.approx([1 / 3] + [0.5] * 8)


def test_the_summary_has_exactly_the_promised_shape() -> None:
    summary = planted_summary()
    assert set(summary) == {"strategies", "comparisons"}
    entry = summary["strategies"]["v2"]
    keys = "overall by_category intervals recall_curve latency_ms encode_ms by_seed context_tokens"
    assert " ".join(entry) == keys
    assert set(entry["overall"]) == set(entry["by_category"]["odd"]) == set(entry["intervals"]) == set(METRICS)
    assert list(entry["recall_curve"]) == ["k", "mean", "low", "high"]
    assert {len(entry["recall_curve"][key]) for key in ("k", "mean", "low", "high")} == {9}
    comparison = summary["comparisons"][0]
    keys = "a b metric delta ci_low ci_high t_low t_high p p_holm p_question_level clusters by_category"
    assert " ".join(comparison) == keys
    assert set(comparison["by_category"]["even"]) == {"delta", "ci_low", "ci_high", "questions"}
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_contexts_are_scored_by_what_they_hold_and_compared_like_rankings() -> None:
    # 100 tokens a turn: 5, 10 and 40 turns. The gold is at ranks 1-2 or 5-6: all of it, or half of it in five turns.
    runs = [
        planted_run("v2", first_gold_rank=1, tokens_a_turn=100),
        planted_run("dense", first_gold_rank=5, tokens_a_turn=100),
    ]
    summary = summarise(planted_questions(), runs, comparisons=[("v2", "dense")])
    entry = summary["strategies"]["dense"]
    assert [entry["overall"][name] for name in CONTEXT_METRICS] == [0.5, 1.0, 1.0]
    assert entry["by_category"]["odd"]["recall@500tokens"] == 0.5
    assert entry["intervals"]["recall@500tokens"] == pytest.approx([0.5, 0.5])
    assert entry["context_tokens"] == {
        "recall@500tokens": 500.0, "recall@1000tokens": 1000.0, "recall@4000tokens": 4000.0,
    }  # fmt: skip
    compared = {row["metric"]: row["delta"] for row in summary["comparisons"]}
    assert list(compared) == ["recall@10", "ndcg@10", *CONTEXT_METRICS]
    assert compared["recall@500tokens"] == pytest.approx(0.5)
    assert compared["recall@1000tokens"] == 0.0


def test_a_run_without_the_contexts_that_another_has_is_refused() -> None:
    runs = [planted_run("v2", first_gold_rank=1, tokens_a_turn=100), planted_run("v1", first_gold_rank=1)]
    with pytest.raises(IncompleteRunError, match="'v1' has no entry in 'contexts' for question 'c0/q0'"):
        summarise(planted_questions(), runs)


def test_a_planted_difference_is_found_in_the_right_direction() -> None:
    # v2 has both gold turns at ranks 1-2, dense at ranks 10-11: recall@10 of 1 and of 1/2, in every question.
    runs = [planted_run("v2", first_gold_rank=1), planted_run("dense", first_gold_rank=10)]
    (comparison,) = summarise(planted_questions(), runs, comparisons=[("v2", "dense")], metrics=["recall@10"])[
        "comparisons"
    ]
    assert (comparison["a"], comparison["b"]) == ("v2", "dense")
    assert comparison["delta"] == pytest.approx(0.5)
    assert (comparison["ci_low"], comparison["ci_high"]) == pytest.approx((0.5, 0.5))
    assert comparison["p"] == comparison["p_holm"] == smallest_p(CONVERSATIONS)
    assert comparison["clusters"] == CONVERSATIONS
    assert comparison["by_category"]["odd"]["questions"] == 12
    assert comparison["by_category"]["odd"]["delta"] == pytest.approx(0.5)


def test_comparisons_equal_the_single_functions() -> None:
    questions = mixed_questions()
    one, other = random_run("one", 1), random_run("other", 2)
    summary = summarise(questions, [one, other], comparisons=[("one", "other")], metrics=["mrr", "hit@10"], seed=5)
    first, second = summary["comparisons"]
    assert [first["metric"], second["metric"]] == ["mrr", "hit@10"]

    def mrr(run: StrategyRun, question_id: str) -> float:
        ranking = list(run.rankings[question_id])
        return 1 / (1 + min(ranking.index("g1"), ranking.index("g2")))

    differences = [mrr(one, q.question_id) - mrr(other, q.question_id) for q in questions]
    clusters = [q.space for q in questions]
    assert first["delta"] == pytest.approx(np.mean(differences))
    assert first["p"] == pytest.approx(sign_flip_test(differences, clusters, seed=5))
    assert first["p_question_level"] == pytest.approx(question_level_test(differences, seed=5))
    assert (first["ci_low"], first["ci_high"]) == pytest.approx(tuple(cluster_bootstrap(differences, clusters, seed=5)))
    assert [first["p_holm"], second["p_holm"]] == [first["p"], second["p"]]  # one pair: nothing to correct for
    in_b = [index for index, question in enumerate(questions) if question.category == "b"]
    expected = tuple(cluster_bootstrap([differences[i] for i in in_b], [clusters[i] for i in in_b], seed=5))
    category = first["by_category"]["b"]
    assert (category["ci_low"], category["ci_high"]) == pytest.approx(expected)


def test_the_intervals_of_a_strategy_are_bootstraps_of_its_mean() -> None:
    questions = mixed_questions()
    summary = summarise(questions, [random_run("one", 1), random_run("other", 2)])
    ranks = [list(random_run("other", 2).rankings[q.question_id]) for q in questions]
    recalls = [sum(ranking.index(gold) < 20 for gold in ("g1", "g2")) / 2 for ranking in ranks]
    expected = tuple(cluster_bootstrap(recalls, [q.space for q in questions]))
    assert tuple(summary["strategies"]["other"]["intervals"]["recall@20"]) == pytest.approx(expected)
    curve = summary["strategies"]["other"]["recall_curve"]
    assert (curve["low"][6], curve["high"][6]) == pytest.approx(expected)  # k = 20


def test_swapping_a_comparison_changes_only_its_sign() -> None:
    runs = [random_run("one", 1), random_run("other", 2)]
    (there,) = summarise(mixed_questions(), runs, comparisons=[("one", "other")], metrics=["mrr"])["comparisons"]
    (back,) = summarise(mixed_questions(), runs, comparisons=[("other", "one")], metrics=["mrr"])["comparisons"]
    assert back["delta"] == pytest.approx(-there["delta"])
    assert back["p"] == there["p"]


def test_the_order_of_the_questions_does_not_matter() -> None:
    runs = [random_run("one", 1), random_run("other", 2)]
    forwards, backwards = summarise(mixed_questions(), runs), summarise(mixed_questions()[::-1], runs)
    for there, back in zip(forwards["comparisons"], backwards["comparisons"], strict=True):
        assert (there["delta"], there["p"]) == pytest.approx((back["delta"], back["p"]))
        assert there["ci_low"] == pytest.approx(back["ci_low"])


def test_latency_is_given_as_percentiles() -> None:
    entry = planted_summary()["strategies"]["v1"]
    # 2, 4, ..., 48 ms: the median lies between 24 and 26, p95 at position 21.85 from 0: 2 * 22.85.
    assert entry["latency_ms"] == pytest.approx({"p50": 25.0, "p95": 45.7})
    assert entry["encode_ms"] == {"p50": 5.0, "p95": 5.0}


def test_with_one_conversation_intervals_are_unknown_and_nothing_is_significant() -> None:
    questions = [dataclasses.replace(question, space="only") for question in planted_questions()]
    runs = [planted_run("v2", first_gold_rank=1), planted_run("v1", first_gold_rank=10)]
    summary = summarise(questions, runs)
    assert summary["strategies"]["v2"]["intervals"]["recall@10"] == [None, None]
    assert set(summary["strategies"]["v2"]["recall_curve"]["low"]) == {None}
    assert summary["comparisons"][0]["ci_low"] is None
    assert summary["comparisons"][0]["p"] == 1
    json.dumps(summary, allow_nan=False)


def test_unless_told_otherwise_each_other_strategy_is_compared_with_the_first() -> None:
    runs = [planted_run(name, first_gold_rank=1) for name in ("one", "two", "three")]
    pairs = [(entry["a"], entry["b"]) for entry in summarise(planted_questions(), runs)["comparisons"]]
    assert pairs == [("two", "one"), ("three", "one")] * 2  # for each of two metrics
    assert summarise(planted_questions(), runs[:1])["comparisons"] == []


def test_eight_strategies_over_ten_conversations_leave_room_for_a_significant_result() -> None:
    assert smallest_p(10, comparisons=2 * 7) < 0.05


def test_a_missing_ranking_is_an_error_and_never_an_empty_result() -> None:
    run = planted_run("v1", first_gold_rank=1)
    rankings = {key: value for key, value in run.rankings.items() if key != "c3/q1"}
    broken = dataclasses.replace(run, rankings=rankings)
    with pytest.raises(IncompleteRunError, match="'v1' has no entry in 'rankings' for question 'c3/q1'"):
        summarise(planted_questions(), [broken])


@pytest.mark.parametrize("field", ["search_ms", "encode_ms"])
def test_a_missing_time_is_an_error(field: str) -> None:
    run = planted_run("v1", first_gold_rank=1)
    broken = dataclasses.replace(run, search_ms={}) if field == "search_ms" else dataclasses.replace(run, encode_ms={})
    with pytest.raises(IncompleteRunError, match=f"'{field}'"):
        summarise(planted_questions(), [broken])


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_an_impossible_time_is_an_error(value: float) -> None:
    run = planted_run("v1", first_gold_rank=1)
    broken = dataclasses.replace(run, search_ms={**run.search_ms, "c0/q0": value})
    with pytest.raises(EvaluationError, match="question 'c0/q0': search_ms is"):
        summarise(planted_questions(), [broken])


def test_a_ranking_with_a_turn_twice_names_strategy_and_question() -> None:
    run = planted_run("v1", first_gold_rank=1)
    broken = dataclasses.replace(run, rankings={**run.rankings, "c0/q1": ("a", "a")})
    with pytest.raises(EvaluationError, match="strategy 'v1', question 'c0/q1': ranking holds turn 'a' twice"):
        summarise(planted_questions(), [broken])


def test_questions_of_a_run_that_are_not_asked_are_not_looked_at() -> None:
    run = planted_run("v1", first_gold_rank=1)
    summary = summarise(planted_questions()[:4], [run])
    assert summary["strategies"]["v1"]["overall"]["recall@5"] == 1


def test_scores_of_several_seeds_are_averaged_by_question_before_they_are_compared() -> None:
    questions = [QuestionOutcome(f"q{i}", f"c{i}", "x", ("g",)) for i in range(2)]
    hits = [("g", "a"), ("a", "b")]
    # q0: found by one seed of two; q1: by both. The baseline finds neither.
    first = dataclasses.replace(run_of("v2", {"q0": hits[0], "q1": hits[0]}), seed=0)
    second = dataclasses.replace(run_of("v2", {"q0": hits[1], "q1": hits[0]}), seed=1)
    runs = [first, run_of("v1", {"q0": hits[1], "q1": hits[1]}), second]
    summary = summarise(questions, runs, comparisons=[("v2", "v1")])
    assert list(summary["strategies"]) == ["v2", "v1"]
    assert summary["strategies"]["v2"]["overall"]["recall@10"] == pytest.approx(0.75)
    assert {seed: s["recall@10"] for seed, s in summary["strategies"]["v2"]["by_seed"].items()} == {"0": 1.0, "1": 0.5}
    assert summary["strategies"]["v1"]["by_seed"] == {}
    assert summary["comparisons"][0]["delta"] == pytest.approx(0.75)


def test_malformed_requests_are_refused() -> None:
    questions, run = planted_questions(), planted_run("v1", first_gold_rank=1)
    other = planted_run("v2", first_gold_rank=2)
    with pytest.raises(EvaluationError, match="no questions"):
        summarise([], [run])
    with pytest.raises(EvaluationError, match="no strategies"):
        summarise(questions, [])
    with pytest.raises(EvaluationError, match="'c0/q0' occurs more than once"):
        summarise([*questions, questions[0]], [run])
    with pytest.raises(EvaluationError, match="name 'v1' occurs more than once with seed None"):
        summarise(questions, [run, run])
    with pytest.raises(EvaluationError, match="'c0/q0' has no gold evidence"):
        summarise([dataclasses.replace(questions[0], gold=())], [run])
    with pytest.raises(EvaluationError, match="there is no strategy 'v3'; known: 'v1', 'v2'"):
        summarise(questions, [run, other], comparisons=[("v3", "v1")])
    with pytest.raises(EvaluationError, match="compares a strategy with itself"):
        summarise(questions, [run], comparisons=[("v1", "v1")])
    with pytest.raises(EvaluationError, match="metric 'recall@11' is not computed; nearest is 'recall@10'"):
        summarise(questions, [run], metrics=["recall@11"])
    with pytest.raises(EvaluationError, match="comparison is listed twice"):
        summarise(questions, [run, other], comparisons=[("v1", "v2"), ("v1", "v2")])


def test_holm_corrects_for_all_pairs_within_each_metric() -> None:
    questions = planted_questions()
    runs = [planted_run(name, first_gold_rank=rank) for name, rank in (("v1", 4), ("v2", 1), ("bm25", 11))]
    pairs = [("v2", "v1"), ("v2", "bm25"), ("v1", "bm25")]
    found = summarise(questions, runs, comparisons=pairs)["comparisons"]
    assert [entry["metric"] for entry in found] == ["recall@10"] * 3 + ["ndcg@10"] * 3
    for of_metric in (found[:3], found[3:]):
        assert [entry["p_holm"] for entry in of_metric] == pytest.approx(holm([entry["p"] for entry in of_metric]))

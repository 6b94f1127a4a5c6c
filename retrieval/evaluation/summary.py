"""From the rankings of several strategies to one table of results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from locigraph.kg.errors import nearest
from locigraph.retrieval.evaluation.errors import EvaluationError
from locigraph.retrieval.evaluation.metrics import METRICS, recall_curve, score_ranking
from locigraph.retrieval.evaluation.outcomes import QuestionOutcome, StrategyRun, check_questions, check_runs
from locigraph.retrieval.evaluation.results import (
    CLAIMANT,
    CURVE_TOP_KS,
    CategoryDelta,
    Comparison,
    Percentiles,
    RecallCurve,
    StrategySummary,
    Summary,
)
from locigraph.retrieval.evaluation.significance import (
    FloatArray,
    cluster_bootstraps,
    holm,
    question_level_tests,
    sign_flip_tests,
)


def summarise(
    questions: Sequence[QuestionOutcome],
    runs: Sequence[StrategyRun],
    *,
    comparisons: Sequence[tuple[str, str]] | None = None,
    metrics: Sequence[str] = ("recall@10", "ndcg@10"),
    seed: int = 0,
) -> Summary:
    """Score, average and compare strategies over the same questions.

    Means are over questions; where a strategy was run with several seeds, a question's score is the mean over them.
    Intervals are 95% cluster bootstraps; p-values come from the sign-flip test over
    conversations, and ``p_holm`` corrects for all pairs, within each metric: two metrics of one ranking make one claim.

    Args:
        questions: Questions with gold evidence; those without are counted by the caller.
        runs: One per strategy and seed; may hold further questions, which are not looked at.
        comparisons: Pairs (a, b) of names, reported as a minus b; None: ``default_comparisons``.
        metrics: Which of ``METRICS`` are compared; the comparisons are grouped by it.
        seed: Of bootstrap and random sign patterns.

    Raises:
        IncompleteRunError: If a run lacks a question's ranking or time.
        EvaluationError: If there are no questions or runs, an id or a name and seed occur twice, a question has no
            gold, a ranking holds a turn twice, a time is negative or not finite, or a pair or a metric is
            unknown.
    """
    check_questions(questions)
    check_runs(questions, runs)
    repetitions: dict[str, list[StrategyRun]] = {}
    for run in runs:
        repetitions.setdefault(run.name, []).append(run)
    tables = {name: [_score_table(questions, run) for run in same] for name, same in repetitions.items()}
    scores = {name: np.mean(held, axis=0) for name, held in tables.items()}
    pairs = default_comparisons(list(scores)) if comparisons is None else list(comparisons)
    _check_comparisons(pairs, metrics, list(scores))
    clusters = [question.space for question in questions]
    categories = _rows_by_category(questions)

    low, high = cluster_bootstraps(np.hstack(list(scores.values())), clusters, seed=seed)
    width = len(METRICS) + len(CURVE_TOP_KS)
    strategies = {
        name: _strategy_summary(
            same,
            questions,
            tables=tables[name],
            scores=scores[name],
            low=low[index * width : (index + 1) * width],
            high=high[index * width : (index + 1) * width],
            categories=categories,
        )
        for index, (name, same) in enumerate(repetitions.items())
    }
    return Summary(
        strategies=strategies,
        comparisons=_compare(scores, pairs, metrics, clusters=clusters, categories=categories, seed=seed),
    )


def default_comparisons(names: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs that are compared when nobody says: "v2" and each other one, or each later one and the first.

    Not all pairs, and not both lists at once: Holm's correction multiplies by their number, and with 10
    conversations 26 comparisons can no longer give a significant result, whatever the data
    (``significance.smallest_p``).

    Args:
        names: Strategies in the order of the runs; without "v2" the first is the baseline.

    Returns:
        Pairs (a, b), to be read as a minus b; empty for fewer than two names.
    """
    if CLAIMANT in names:
        return [(CLAIMANT, name) for name in names if name != CLAIMANT]
    return [(name, names[0]) for name in names[1:]]


def _check_comparisons(pairs: Sequence[tuple[str, str]], metrics: Sequence[str], names: Sequence[str]) -> None:
    for a, b in pairs:
        for name in (a, b):
            if name not in names:
                raise EvaluationError(f"comparison ({a!r}, {b!r}): no strategy {name!r}{nearest(name, names)}")
        if a == b:
            raise EvaluationError(f"comparison ({a!r}, {b!r}) sets a strategy against itself")
    for metric in metrics:
        if metric not in METRICS:
            raise EvaluationError(f"metric {metric!r} is not computed{nearest(metric, METRICS)}")
    for label, entries in (("comparison", list(pairs)), ("metric", list(metrics))):
        if len(set(entries)) < len(entries):
            # Holm would count it twice and so punish all the others.
            raise EvaluationError(f"a {label} is listed twice in {entries}")


def _score_table(questions: Sequence[QuestionOutcome], run: StrategyRun) -> FloatArray:
    """Scores of each question, shape [questions, metrics + depths of the curve]."""
    rows = []
    for question in questions:
        ranking, gold = run.rankings[question.question_id], frozenset(question.gold)
        try:
            scores = score_ranking(ranking, gold)
            curve = recall_curve(ranking, gold, CURVE_TOP_KS)
        except ValueError as error:
            raise EvaluationError(f"strategy {run.name!r}, question {question.question_id!r}: {error}") from error
        rows.append([scores[metric] for metric in METRICS] + curve)
    return np.array(rows, dtype=np.float64)


def _rows_by_category(questions: Sequence[QuestionOutcome]) -> dict[str, list[int]]:
    """Positions of the questions of each category, categories in sorted order."""
    rows: dict[str, list[int]] = {category: [] for category in sorted({q.category for q in questions})}
    for index, question in enumerate(questions):
        rows[question.category].append(index)
    return rows


def _strategy_summary(
    same: Sequence[StrategyRun],
    questions: Sequence[QuestionOutcome],
    *,
    tables: Sequence[FloatArray],
    scores: FloatArray,
    low: FloatArray,
    high: FloatArray,
    categories: Mapping[str, Sequence[int]],
) -> StrategySummary:
    means = scores.mean(axis=0)
    curve = slice(len(METRICS), None)
    ids = [question.question_id for question in questions]
    return StrategySummary(
        overall=_by_metric(means),
        by_category={name: _by_metric(scores[list(rows)].mean(axis=0)) for name, rows in categories.items()},
        intervals={metric: [_known(low[index]), _known(high[index])] for index, metric in enumerate(METRICS)},
        recall_curve=RecallCurve(
            k=list(CURVE_TOP_KS),
            mean=[float(value) for value in means[curve]],
            low=[_known(value) for value in low[curve]],
            high=[_known(value) for value in high[curve]],
        ),
        latency_ms=_percentiles([run.search_ms[name] for run in same for name in ids]),
        encode_ms=_percentiles([run.encode_ms[name] for run in same for name in ids]),
        by_seed={str(run.seed): _by_metric(table.mean(axis=0)) for run, table in zip(same, tables, strict=True)}
        if len(same) > 1
        else {},
    )


def _compare(
    scores: Mapping[str, FloatArray],
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str],
    *,
    clusters: Sequence[str],
    categories: Mapping[str, Sequence[int]],
    seed: int,
) -> list[Comparison]:
    asked = [(a, b, metric) for metric in metrics for a, b in pairs]
    if not asked:
        return []
    columns = [METRICS.index(metric) for _, _, metric in asked]
    # [questions, comparisons]
    differences = np.stack(
        [scores[a][:, column] - scores[b][:, column] for (a, b, _), column in zip(asked, columns, strict=True)],
        axis=1,
    )
    low, high = cluster_bootstraps(differences, clusters, seed=seed)
    p_values = [float(p) for p in sign_flip_tests(differences, clusters, seed=seed)]
    families = [p_values[start : start + len(pairs)] for start in range(0, len(asked), len(pairs))]  # one a metric
    adjusted = [p for family in families for p in holm(family)]
    question_level = question_level_tests(differences, seed=seed)
    within = {
        name: _category_deltas(differences[list(rows)], [clusters[row] for row in rows], seed)
        for name, rows in categories.items()
    }
    return [
        Comparison(
            a=a,
            b=b,
            metric=metric,
            delta=float(differences[:, index].mean()),
            ci_low=_known(low[index]),
            ci_high=_known(high[index]),
            p=p_values[index],
            p_holm=adjusted[index],
            p_question_level=float(question_level[index]),
            clusters=len(set(clusters)),
            by_category={name: deltas[index] for name, deltas in within.items()},
        )
        for index, (a, b, metric) in enumerate(asked)
    ]


def _category_deltas(differences: FloatArray, clusters: Sequence[str], seed: int) -> list[CategoryDelta]:
    """One entry per comparison, from the questions [questions, comparisons] of one category."""
    low, high = cluster_bootstraps(differences, clusters, seed=seed)
    return [
        CategoryDelta(
            delta=float(differences[:, index].mean()),
            ci_low=_known(low[index]),
            ci_high=_known(high[index]),
            questions=len(differences),
        )
        for index in range(differences.shape[1])
    ]


def _by_metric(values: FloatArray) -> dict[str, float]:
    return {metric: float(values[index]) for index, metric in enumerate(METRICS)}


def _known(value: float) -> float | None:
    """JSON has no NaN: an unknown end of an interval is None."""
    return None if math.isnan(value) else float(value)


def _percentiles(times_ms: Sequence[float]) -> Percentiles:
    p50, p95 = np.percentile(times_ms, [50.0, 95.0])
    return Percentiles(p50=float(p50), p95=float(p95))

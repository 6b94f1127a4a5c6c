"""Computes the results of a comparison from the rankings of several strategies."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from locigraph.kg.errors import nearest
from locigraph.research.errors import EvaluationError
from locigraph.research.evaluation.outcomes import (
    QuestionOutcome,
    StrategyRun,
    by_strategy,
    check_questions,
    check_runs,
    of_question,
)
from locigraph.research.evaluation.results import (
    CURVE_TOP_KS,
    CategoryDelta,
    Comparison,
    Percentiles,
    RecallCurve,
    StrategySummary,
    Summary,
)
from locigraph.research.evaluation.significance import (
    FloatArray,
    cluster_bootstrap,
    cluster_t_interval,
    holm,
    question_level_test,
    sign_flip_test,
)
from locigraph.retrieval.metrics import CONTEXT_METRICS, METRICS, context_recall, recall_curve, score_ranking

#: Metrics that are compared by default, in addition to those of contexts.
_COMPARED = ("recall@10", "ndcg@10")


def summarise(
    questions: Sequence[QuestionOutcome],
    runs: Sequence[StrategyRun],
    *,
    comparisons: Sequence[tuple[str, str]] | None = None,
    metrics: Sequence[str] | None = None,
    left_out: Collection[str] = (),
    seed: int = 0,
) -> Summary:
    """Score, average and compare strategies over the same questions.

    Means are over questions; where a strategy was run with several seeds, a question's score is the mean over them.
    Intervals are 95% cluster bootstraps, p-values come from the sign-flip test over conversations, and ``p_holm``
    corrects for all pairs within each metric, since two metrics of one ranking make one claim.

    Args:
        questions: Questions with gold evidence; those without are counted by the caller.
        runs: One per strategy and seed; other questions that they hold are ignored.
        comparisons: Pairs (a, b) of names, reported as a minus b; None compares each other strategy with the first.
            Name few: Holm's correction multiplies p by their number (see ``significance.smallest_p``).
        metrics: Names of the metrics that are compared; the comparisons are grouped by metric. None for recall@10,
            nDCG@10 and, with contexts, ``CONTEXT_METRICS``.
        left_out: IDs of questions that are excluded from all comparisons, since their evidence was trained on; the
            means of the strategies include them. If all questions are left out, nothing is compared.
        seed: Random seed of the bootstrap and of the sign patterns.

    Raises:
        IncompleteRunError: If a run lacks a question's ranking or time.
        EvaluationError: If there are no questions or runs, an id or a name and seed occur twice, a question has no
            gold, a ranking holds a turn twice, a time is negative or not finite, or a pair or a metric is
            unknown.
    """
    check_questions(questions)
    check_runs(questions, runs)
    repetitions = by_strategy(runs)
    columns = columns_of(runs)
    tables = {name: [score_table(questions, run, columns) for run in same] for name, same in repetitions.items()}
    scores = {name: np.mean(repeated, axis=0) for name, repeated in tables.items()}
    names = list(scores)
    pairs = [(name, names[0]) for name in names[1:]] if comparisons is None else list(comparisons)
    metrics = [*_COMPARED, *columns[len(METRICS) :]] if metrics is None else metrics
    check_comparisons(pairs, metrics, names, columns)
    clusters = [question.space for question in questions]
    categories = rows_by_category(questions)
    kept = [row for row, question in enumerate(questions) if question.question_id not in left_out]

    ends = cluster_bootstrap(np.hstack(list(scores.values())), clusters, seed=seed)
    ends_of = np.split(ends, len(scores), axis=1)
    strategies = {
        name: _strategy_summary(same, questions, tables[name], columns, ends, categories)
        for (name, same), ends in zip(repetitions.items(), ends_of, strict=True)
    }
    return Summary(
        strategies=strategies,
        comparisons=compare(
            {name: table[kept] for name, table in scores.items()},
            columns,
            pairs if kept else (),
            metrics,
            clusters=[clusters[row] for row in kept],
            categories=rows_by_category([questions[row] for row in kept]),
            seed=seed,
        ),
    )


def check_comparisons(
    pairs: Sequence[tuple[str, str]], metrics: Sequence[str], names: Sequence[str], columns: Sequence[str]
) -> None:
    """Raise EvaluationError for a pair or a metric that is unknown or listed twice, or a pair of one strategy."""
    for a, b in pairs:
        for name in (a, b):
            if name not in names:
                raise EvaluationError(f"comparison ({a!r}, {b!r}): there is no strategy {name!r}{nearest(name, names)}")
        if a == b:
            raise EvaluationError(f"comparison ({a!r}, {b!r}) compares a strategy with itself")
    for metric in metrics:
        if metric not in columns:
            raise EvaluationError(f"metric {metric!r} is not computed{nearest(metric, columns)}")
    for label, entries in (("comparison", list(pairs)), ("metric", list(metrics))):
        if len(set(entries)) < len(entries):
            # Holm's correction would count it twice and so raise the p-values of all the others.
            raise EvaluationError(f"a {label} is listed twice in {entries}")


def columns_of(runs: Sequence[StrategyRun]) -> list[str]:
    """Names of the metrics of some runs: ``METRICS``, and ``CONTEXT_METRICS`` if contexts were packed."""
    return [*METRICS, *(CONTEXT_METRICS if any(run.contexts for run in runs) else ())]


def score_table(questions: Sequence[QuestionOutcome], run: StrategyRun, columns: Sequence[str]) -> FloatArray:
    """Scores of each question: ``columns_of``, then recall at each depth of the curve, [questions, columns].

    Raises:
        IncompleteRunError: If the columns name contexts and the run lacks those of a question.
    """
    rows = []
    for question in questions:
        ranking, gold = run.rankings[question.question_id], frozenset(question.gold)
        try:
            scores = score_ranking(ranking, gold)
            curve = recall_curve(ranking, gold, CURVE_TOP_KS)
        except ValueError as error:
            raise EvaluationError(f"strategy {run.name!r}, question {question.question_id!r}: {error}") from error
        of_contexts = []
        if len(columns) > len(METRICS):
            contexts = of_question(run, "contexts", run.contexts, question.question_id)
            of_contexts = [
                context_recall(contexts[CONTEXT_METRICS[name]].turns, gold) for name in columns[len(METRICS) :]
            ]
        rows.append([*scores.values(), *of_contexts, *curve])
    return np.array(rows, dtype=np.float64)


def rows_by_category(questions: Sequence[QuestionOutcome]) -> dict[str, list[int]]:
    """Positions of the questions of each category, categories in sorted order."""
    rows: dict[str, list[int]] = {category: [] for category in sorted({q.category for q in questions})}
    for index, question in enumerate(questions):
        rows[question.category].append(index)
    return rows


def _strategy_summary(
    same: Sequence[StrategyRun],
    questions: Sequence[QuestionOutcome],
    tables: Sequence[FloatArray],
    columns: Sequence[str],
    ends: FloatArray,
    categories: Mapping[str, list[int]],
) -> StrategySummary:
    """Results of the repetitions of one strategy, from their score tables and the interval ends [2, columns]."""
    scores = np.mean(tables, axis=0)
    low, high = ([_known(value) for value in row] for row in ends)
    ids, curve = [question.question_id for question in questions], slice(len(columns), None)
    return StrategySummary(
        overall=_means(scores, columns),
        by_category={name: _means(scores[rows], columns) for name, rows in categories.items()},
        intervals={metric: [low[index], high[index]] for index, metric in enumerate(columns)},
        recall_curve=RecallCurve(
            k=list(CURVE_TOP_KS), mean=scores.mean(axis=0)[curve].tolist(), low=low[curve], high=high[curve]
        ),
        latency_ms=_percentiles([run.search_ms[name] for run in same for name in ids]),
        encode_ms=_percentiles([run.encode_ms[name] for run in same for name in ids]),
        by_seed={
            str(run.seed): _means(table, columns) for run, table in zip(same, tables, strict=True) if len(same) > 1
        },
        context_tokens={
            name: float(np.mean([run.contexts[each][CONTEXT_METRICS[name]].tokens for run in same for each in ids]))
            for name in columns[len(METRICS) :]
        },
    )


def compare(
    scores: Mapping[str, FloatArray],
    columns: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    metrics: Sequence[str],
    *,
    clusters: Sequence[str],
    categories: Mapping[str, list[int]],
    seed: int,
) -> list[Comparison]:
    """Compare strategies by their scores.

    Args:
        scores: Scores of each question by strategy, [questions, at least these columns].
        columns: Names of the metrics, by column.
        pairs: As ``comparisons`` in ``summarise``.
        metrics: As in ``summarise``.
        clusters: Conversation of each question, [questions].
        categories: Positions of the questions of each category.
        seed: As in ``summarise``.
    """
    compared = [(a, b, metric) for metric in metrics for a, b in pairs]
    if not compared:
        return []
    column = {metric: index for index, metric in enumerate(columns)}
    # [questions, comparisons]
    differences = np.stack([(scores[a] - scores[b])[:, column[metric]] for a, b, metric in compared], axis=1)
    low, high = cluster_bootstrap(differences, clusters, seed=seed)
    t_low, t_high = cluster_t_interval(differences, clusters)
    p_values = [float(p) for p in sign_flip_test(differences, clusters, seed=seed)]
    families = [p_values[start : start + len(pairs)] for start in range(0, len(compared), len(pairs))]  # per metric
    adjusted = [p for family in families for p in holm(family)]
    question_level = question_level_test(differences, seed=seed)
    within = {
        name: _category_deltas(differences[rows], [clusters[row] for row in rows], seed)
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
            t_low=_known(t_low[index]),
            t_high=_known(t_high[index]),
            p=p_values[index],
            p_holm=adjusted[index],
            p_question_level=float(question_level[index]),
            clusters=len(set(clusters)),
            by_category={name: deltas[index] for name, deltas in within.items()},
        )
        for index, (a, b, metric) in enumerate(compared)
    ]


def _category_deltas(differences: FloatArray, clusters: Sequence[str], seed: int) -> list[CategoryDelta]:
    """One entry per comparison, from the questions [questions, comparisons] of one category."""
    low, high = cluster_bootstrap(differences, clusters, seed=seed)
    return [
        CategoryDelta(
            delta=float(differences[:, index].mean()),
            ci_low=_known(low[index]),
            ci_high=_known(high[index]),
            questions=len(differences),
        )
        for index in range(differences.shape[1])
    ]


def _means(scores: FloatArray, columns: Sequence[str]) -> dict[str, float]:
    """Mean of each metric over the questions of a score table."""
    return {metric: float(mean) for metric, mean in zip(columns, scores.mean(axis=0), strict=False)}


def _known(value: float) -> float | None:
    """JSON has no NaN: an unknown end of an interval is None."""
    return None if math.isnan(value) else float(value)


def _percentiles(times_ms: Sequence[float]) -> Percentiles:
    p50, p95 = np.percentile(times_ms, [50.0, 95.0])
    return Percentiles(p50=float(p50), p95=float(p95))

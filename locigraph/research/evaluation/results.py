"""Types of the results: plain dictionaries and lists, so that one object is printed, reported and written as JSON.

An interval is ``[low, high]``; both ends are None if it cannot be estimated because all questions come from one
conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

#: Depths of the recall curve; strategies should return at least as many turns as the greatest.
CURVE_TOP_KS: tuple[int, ...] = (1, 2, 3, 5, 10, 15, 20, 30, 50)

Interval = list[float | None]


class RecallCurve(TypedDict):
    """Evidence recall at growing depth ``k``; all lists have the same length."""

    k: list[int]
    mean: list[float]
    low: Interval
    high: Interval


class Percentiles(TypedDict):
    """Milliseconds per question."""

    p50: float
    p95: float


class StrategySummary(TypedDict):
    """One strategy's results; the keys of the inner mappings are ``METRICS`` and, with contexts, ``CONTEXT_METRICS``.

    ``by_seed`` holds the overall scores of each repetition; empty for a strategy that was run once. ``context_tokens``
    holds the tokens that contexts used on average, by ``CONTEXT_METRICS``; empty without contexts.
    """

    overall: dict[str, float]
    by_category: dict[str, dict[str, float]]
    intervals: dict[str, Interval]
    recall_curve: RecallCurve
    latency_ms: Percentiles
    encode_ms: Percentiles
    by_seed: dict[str, dict[str, float]]
    context_tokens: dict[str, float]


class CategoryDelta(TypedDict):
    """A comparison within one category."""

    delta: float
    ci_low: float | None
    ci_high: float | None
    questions: int


class Comparison(TypedDict):
    """Strategy ``a`` minus strategy ``b`` in one metric; ``clusters`` counts conversations.

    ``ci_low`` and ``ci_high`` are of the cluster bootstrap, ``t_low`` and ``t_high`` of ``cluster_t_interval``.
    """

    a: str
    b: str
    metric: str
    delta: float
    ci_low: float | None
    ci_high: float | None
    t_low: float | None
    t_high: float | None
    p: float
    p_holm: float
    p_question_level: float
    clusters: int
    by_category: dict[str, CategoryDelta]


class Summary(TypedDict):
    """What ``summarise`` returns; the order of ``strategies`` is that of the runs."""

    strategies: dict[str, StrategySummary]
    comparisons: list[Comparison]


class CorpusSummary(TypedDict):
    """The corpus of the questions.

    ``sha256`` is that of the file, ``content`` a hash of the conversations and questions that were used of it.
    ``skipped`` counts, by reason, questions that could not be scored. Earlier results lack ``content`` and
    ``conversations``.
    """

    path: str
    sha256: str
    content: NotRequired[str]
    conversations: NotRequired[int]
    questions: int
    skipped: dict[str, int]


class SecondGold(Summary):
    """The same rankings against corrected evidence; ``changed`` counts the questions whose gold differs."""

    changed: int


class Results(Summary):
    """What a report shows: ``summarise``'s output and where it comes from.

    ``manifest`` is any JSON; "command" and "commit" in it are shown among the steps to reproduce. ``left_out`` holds
    the IDs of the questions that are excluded from all comparisons.
    """

    corpus: CorpusSummary
    manifest: Mapping[str, object]
    notes: NotRequired[list[str]]
    left_out: NotRequired[list[str]]
    sessions: NotRequired[Mapping[str, Mapping[str, float]]]
    second_gold: NotRequired[SecondGold | None]

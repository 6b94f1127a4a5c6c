"""Scores of one ranking against the gold evidence of one question.

A ranking is a sequence of turn IDs, best first, without duplicates; gold is a non-empty set of turn IDs.
Every score lies in [0, 1], and higher is better. ``top_k`` counts turns. A ranking shorter than ``top_k`` is scored
as it is: gold turns that were not returned count as not found. All functions raise ``ValueError`` if gold is empty,
the ranking holds a turn twice, or ``top_k`` is below 1.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial


def evidence_recall(ranking: Sequence[str], gold: AbstractSet[str], top_k: int) -> float:
    """Share of the gold turns that are among the first ``top_k``."""
    return recall_curve(ranking, gold, (top_k,))[0]


def recall_curve(ranking: Sequence[str], gold: AbstractSet[str], top_ks: Sequence[int]) -> list[float]:
    """Evidence recall at each of several depths, with one pass over the ranking.

    Returns:
        One value per entry of ``top_ks``, in the same order.
    """
    for top_k in top_ks:
        _check_depth(top_k)
    ranks = _gold_ranks(ranking, gold)
    return [bisect.bisect_right(ranks, top_k) / len(gold) for top_k in top_ks]


def all_evidence_recall(ranking: Sequence[str], gold: AbstractSet[str], top_k: int) -> float:
    """1 when every gold turn is among the first ``top_k``, else 0.

    With more gold turns than ``top_k`` this is always 0.
    """
    return float(evidence_recall(ranking, gold, top_k) == 1.0)


def hit(ranking: Sequence[str], gold: AbstractSet[str], top_k: int) -> float:
    """1 when at least one gold turn is among the first ``top_k``, else 0."""
    return float(evidence_recall(ranking, gold, top_k) > 0.0)


def ndcg(ranking: Sequence[str], gold: AbstractSet[str], top_k: int) -> float:
    """Normalised discounted cumulative gain with gain 1 for gold turns and 0 for others.

    Rank r, from 1, is discounted by log2(1 + r). The ideal puts min(``top_k``, gold turns) gold turns first,
    so 1 is reachable even when there is more gold than ``top_k``.

    Source:
        Järvelin and Kekäläinen 2002, with the discount of Burges et al. 2005.
    """
    _check_depth(top_k)
    gain = sum(_discount(rank) for rank in _gold_ranks(ranking, gold) if rank <= top_k)
    ideal = sum(_discount(rank) for rank in range(1, min(top_k, len(gold)) + 1))
    # The sums run in the same order, so a perfect ranking gives 1 without a rounding error.
    return gain / ideal


def reciprocal_rank(ranking: Sequence[str], gold: AbstractSet[str]) -> float:
    """1 / rank of the first gold turn, rank from 1; 0 when the ranking holds none.

    There is no cut-off, so compare only strategies that return equally many turns.
    """
    ranks = _gold_ranks(ranking, gold)
    return 1.0 / ranks[0] if ranks else 0.0


#: Every metric by its name, in the order in which reports show them; a new one needs a function and a row here.
METRICS: Mapping[str, Callable[[Sequence[str], AbstractSet[str]], float]] = {
    "recall@5": partial(evidence_recall, top_k=5),
    "recall@10": partial(evidence_recall, top_k=10),
    "recall@20": partial(evidence_recall, top_k=20),
    "ndcg@10": partial(ndcg, top_k=10),
    "mrr": reciprocal_rank,
    "hit@10": partial(hit, top_k=10),
    "all_recall@10": partial(all_evidence_recall, top_k=10),
}


#: Sizes of the contexts in which strategies are compared, in tokens.
TOKEN_BUDGETS: tuple[int, ...] = (500, 1_000, 4_000)
#: Metrics of packed contexts: name of the metric -> size of the context in tokens.
CONTEXT_METRICS: Mapping[str, int] = {f"recall@{budget}tokens": budget for budget in TOKEN_BUDGETS}


def context_recall(turns: Sequence[str], gold: AbstractSet[str]) -> float:
    """Share of the gold turns that a context covers, by the turn itself or by a memory extracted from it."""
    return evidence_recall(turns, gold, max(1, len(turns)))


def score_ranking(ranking: Sequence[str], gold: AbstractSet[str]) -> dict[str, float]:
    """Scores of one question by all of ``METRICS``, in that order."""
    return {name: metric(ranking, gold) for name, metric in METRICS.items()}


def _discount(rank: int) -> float:
    return 1.0 / math.log2(1 + rank)


def _check_depth(top_k: int) -> None:
    if top_k < 1:
        raise ValueError(f"top_k is {top_k}; it counts returned turns and must be at least 1")


def _gold_ranks(ranking: Sequence[str], gold: AbstractSet[str]) -> list[int]:
    """Ranks of the gold turns, from 1 and ascending; raises ValueError for input that no score is defined for."""
    if not gold:
        raise ValueError("gold is empty; count questions without evidence separately instead of scoring them")
    if isinstance(ranking, str):
        # A string is a sequence of strings too, and would be scored letter by letter.
        raise ValueError(f"ranking is the string {ranking!r}; expected a sequence of turn ids")
    seen: set[str] = set()
    ranks = []
    for rank, turn_id in enumerate(ranking, start=1):
        if turn_id in seen:
            raise ValueError(f"ranking holds turn {turn_id!r} twice, again at rank {rank}; keep the first mention only")
        seen.add(turn_id)
        if turn_id in gold:
            ranks.append(rank)
    return ranks

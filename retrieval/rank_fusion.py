"""Reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

#: ``rrf_k`` of the paper, which most systems use.
USUAL_RRF_K = 60
#: ``rrf_k`` of v1, of the published memories that fuse rankings, and for fusing the rankings of several queries. Chosen
#: on the bundled corpus `threads`, on both of its graphs, together with the depth of v1 (docs/experiments/history.md,
#: 2026-11-22). With so few rankings the usual 60 gives the first rank hardly more weight than the twentieth, and costs
#: v1 .02 to .04 of recall@10.
FEW_RRF_K = 2
#: Weight of v1's ANN arm when its text encoder has an adapter. Chosen with the adapter of 2026-11-24, not today's, on
#: the conversations of the bundled corpus `threads` that it was not trained on (``python -m benchmarks.fusion``,
#: docs/experiments/history.md, 2026-11-24).
ADAPTED_ANN_WEIGHT = 3.0


_Id = TypeVar("_Id", bound=str)


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[_Id]], *, rrf_k: int = USUAL_RRF_K, weights: Sequence[float] | None = None
) -> list[tuple[_Id, float]]:
    """Fuse rankings by the sum of weight / (``rrf_k`` + rank), rank from 1.

    Args:
        rankings: Lists of IDs, best first; an ID occurs at most once in a list.
        rrf_k: RRF constant, > 0; the greater it is, the smaller is the advantage of the top ranks.
        weights: Weight of each ranking; None for 1 each, as in the paper.

    Returns:
        Pairs (ID, score), best first; ties by ID.

    Raises:
        ValueError: If a ranking repeats an ID, ``rrf_k`` is not positive, or there is not one weight for each ranking.

    Source:
        Cormack, Clarke and Buettcher, SIGIR 2009.
    """
    if rrf_k <= 0:
        raise ValueError(f"rrf_k must be positive, got {rrf_k}")
    scores: dict[_Id, float] = {}
    for ranking, weight in zip(rankings, weights or [1.0] * len(rankings), strict=True):
        if len(set(ranking)) != len(ranking):
            raise ValueError(f"a ranking of {len(ranking)} IDs repeats an id; keep its first mention only")
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + weight / (rrf_k + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))

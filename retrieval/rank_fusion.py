"""Reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Sequence

USUAL_RRF_K = 60


def reciprocal_rank_fusion(rankings: Sequence[Sequence[str]], *, rrf_k: int = USUAL_RRF_K) -> list[tuple[str, float]]:
    """Fuse rankings by the sum of 1 / (``rrf_k`` + rank), rank from 1.

    Args:
        rankings: Ids, best first, each id at most once in a ranking.
        rrf_k: Dampens the top ranks; > 0.

    Returns:
        (id, score), best first; ties by id.

    Raises:
        ValueError: If a ranking repeats an id or ``rrf_k`` is not positive.

    Source:
        Cormack, Clarke and Buettcher, SIGIR 2009.
    """
    if rrf_k <= 0:
        raise ValueError(f"rrf_k must be positive, got {rrf_k}")
    scores: dict[str, float] = {}
    for ranking in rankings:
        if len(set(ranking)) != len(ranking):
            raise ValueError("a ranking repeats an id")
        for rank, item in enumerate(ranking, start=1):
            scores[item] = scores.get(item, 0.0) + 1.0 / (rrf_k + rank)
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))

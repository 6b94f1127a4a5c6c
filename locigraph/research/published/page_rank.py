"""Personalised PageRank on sparse matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array


def transition_matrix(
    source: NDArray[np.integer],
    target: NDArray[np.integer],
    weight: NDArray[np.floating],
    *,
    size: int,
    hub_degree: int | None = None,
) -> csr_array:
    """Transition probabilities along weighted edges.

    Args:
        source, target: Start and end nodes of the directed edges, [edges]; parallel edges add up.
        weight: Weight of each edge, >= 0, [edges].
        size: Number of nodes.
        hub_degree: A node with more outgoing edges than this is a hub; a hub with d edges keeps the share
            ``hub_degree`` / d of its probability mass and loses the rest. None: no node is a hub.

    Returns:
        Matrix [size, size] whose rows sum to 1; those of hubs to less, those of nodes without outgoing edges to 0.
    """
    matrix = csr_array((weight.astype(np.float64), (source, target)), shape=(size, size))
    totals = matrix.sum(axis=1)
    kept = np.divide(1.0, totals, out=np.zeros(size), where=totals > 0)
    if hub_degree is not None:
        kept *= np.minimum(1.0, hub_degree / np.maximum(np.bincount(source, minlength=size), 1))
    return diags_array(kept) @ matrix


def personalized_page_rank(
    transition: csr_array,
    teleport: NDArray[np.floating],
    *,
    damping: float,
    tolerance: float = 1e-6,
    max_steps: int = 200,
) -> NDArray[np.float64]:
    """Personalised PageRank: the stationary distribution of a random walk with restarts.

    rank = damping * rank @ transition + (1 - damping + lost mass) * teleport, where mass is lost at nodes without
    outgoing edges and at hubs.

    Args:
        transition: See ``transition_matrix``.
        teleport: Restart weight of each node, >= 0 and not all 0; need not sum to 1, [size].
        damping: Probability of following an edge; the probability of a restart is 1 - ``damping``.
        tolerance: The iteration stops when the sum of absolute changes falls below this.
        max_steps: Largest number of iterations.

    Returns:
        Probabilities that sum to 1, [size].

    Raises:
        ValueError: If ``teleport`` has no positive sum, or ``damping`` does not lie in [0, 1).

    Source:
        Page et al. 1999, "The PageRank Citation Ranking", section 6; sinks as in Langville and Meyer 2004, eq. 5.1.
    """
    total = float(teleport.sum())
    if not total > 0 or teleport.min() < 0:
        raise ValueError(f"teleport must be at least 0 and sum to more than 0; its sum is {total}")
    if not 0 <= damping < 1:
        raise ValueError(f"damping must lie in [0, 1), got {damping}")
    start = teleport.astype(np.float64) / total
    backward = (damping * transition).T.tocsr()
    rank = start
    for _ in range(max_steps):
        followed = backward @ rank
        moved = followed + (1.0 - followed.sum()) * start
        change = np.abs(moved - rank).sum()
        rank = moved
        if change < tolerance:
            break
    return rank

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
    """Chances to step from node to node along weighted edges.

    Args:
        source, target: Nodes that the directed edges join, [edges]; parallel edges add up.
        weight: Weight of each edge, >= 0, [edges].
        size: Number of nodes.
        hub_degree: Number of edges from which a node is a hub; a hub with d edges keeps the share ``hub_degree`` / d
            of its steps and loses the rest. None: no node is a hub.

    Returns:
        Matrix [size, size] whose rows sum to 1, for hubs to less, and for nodes without edges to 0.
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
    """Where a walker is found who follows edges and now and then starts again.

    rank = damping * rank @ transition + (1 - damping + what the step lost) * teleport, where a step loses the mass of
    nodes without edges and that which hubs withhold.

    Args:
        transition: See ``transition_matrix``.
        teleport: Where the walker starts, >= 0 and not all 0; need not sum to 1, [size].
        damping: Chance to follow an edge; the chance to start again is 1 - ``damping``.
        tolerance: Stops when the sum of all changes in a step is smaller.
        max_steps: Stops after so many steps.

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

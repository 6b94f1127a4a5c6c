"""Spreading activation over weighted links."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


def spread_activation(
    links: csr_array,
    seeds: Mapping[int, float],
    *,
    decay: float,
    threshold: float,
    budget: int,
    ties: NDArray[np.integer],
    least: NDArray[np.floating] | None = None,
) -> dict[int, float]:
    """Spread activation from seeds along links, always from the most active node that has not been expanded yet.

    a(v) = max over links (u, v) of a(u) * weight(u, v) * decay, over the nodes u that were activated before v. If no
    weight * decay exceeds 1 and ``least`` is None, activation only falls along a path, and a(v) is the maximum over all
    paths to v.

    Args:
        links: Weights of the links, [nodes, nodes]; row u holds the links of u.
        seeds: Initial activation by node.
        decay: Multiplies the activation at each link, in (0, 1].
        threshold: Activation must be greater than this to be passed to a node.
        budget: Number of nodes to activate, seeds included.
        ties: Decides between equally active nodes: the smaller number comes first, [nodes].
        least: Lower bound of the activation of each node that is reached at all; negative for a node that cannot be
            reached, [nodes]. None: no bounds.

    Returns:
        Activation by node, in the order in which the nodes were activated.

    Source:
        Collins and Loftus 1975; the formula is that of TEMPR (Latimer et al. 2025, arXiv:2512.12818).
    """
    waiting = [(-round(activation, 9), int(ties[node]), node) for node, activation in seeds.items()]
    heapq.heapify(waiting)
    active: dict[int, float] = {}
    while waiting and len(active) < budget:
        negative, _, node = heapq.heappop(waiting)
        if node in active:
            continue
        active[node] = -negative
        begin, end = links.indptr[node], links.indptr[node + 1]
        passed = -negative * decay * links.data[begin:end]
        for neighbour, activation in zip(links.indices[begin:end].tolist(), passed.tolist(), strict=True):
            best = activation if least is None else max(activation, least[neighbour])
            if best > threshold and neighbour not in active and (least is None or least[neighbour] >= 0):
                heapq.heappush(waiting, (-round(best, 9), int(ties[neighbour]), neighbour))
    return active

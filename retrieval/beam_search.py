"""Beam search over a graph of typed links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

#: Scores that differ by less are equal.
_DIGITS = 7


def beam_search(
    neighbours: Mapping[str, Callable[[int], NDArray[np.integer]]],
    step_scores: Mapping[str, NDArray[np.floating]],
    anchors: Sequence[int],
    *,
    decay: float,
    width: int,
    depth: int,
    budget: int,
    ties: NDArray[np.integer],
) -> dict[int, float]:
    """The nodes that the best steps from the anchors lead to.

    A step by a link of type t to node v gives it the score of the node that it comes from times ``decay``, plus
    ``step_scores[t][v]``. Of all steps to a node the best counts. Each hop goes on from the ``width`` best new nodes.

    Args:
        neighbours: The nodes that each type of link joins with a node.
        step_scores: What a step to a node by each type of link adds, [nodes].
        anchors: Nodes to start from, best first; their score is 1.
        decay: Multiplies the score of the node before.
        width: Number of nodes from which the search goes on after each hop.
        depth: Largest number of hops.
        budget: Largest number of nodes to visit, anchors included.
        ties: Decides between equally good nodes: the smaller number comes first, [nodes].

    Returns:
        Score by node in the order of visits: the anchors, then hop by hop, the best first.
    """
    visited = dict.fromkeys(list(anchors)[:budget], 1.0)
    front = list(visited)
    for _ in range(depth):
        found = np.full(len(ties), -np.inf)
        for name, beside in neighbours.items():
            gains = step_scores[name]
            for node in front:
                reached = beside(node)
                found[reached] = np.maximum(found[reached], visited[node] * decay + gains[reached])
        found[list(visited)] = -np.inf
        rows = np.flatnonzero(found > -np.inf)
        best = rows[np.lexsort((ties[rows], -np.round(found[rows], _DIGITS)))]
        front = best[: min(width, budget - len(visited))].tolist()
        if not front:
            break
        visited.update((node, float(found[node])) for node in front)
    return visited

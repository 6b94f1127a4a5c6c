"""Beam search over a graph of typed links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

#: Scores that agree to this many decimals count as equal.
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
    """Nodes that a beam search from the anchors visits.

    A step along a link of type t from node u to node v scores ``decay`` * score(u) + ``step_scores[t][v]``; the score
    of v is that of the best step to it. Each hop continues from the ``width`` best new nodes.

    Args:
        neighbours: By link type, a function from a node to its neighbours.
        step_scores: By link type, the score that a step to each node adds, [nodes].
        anchors: Nodes to start from, best first; their score is 1.
        decay: Multiplies the score of the previous node.
        width: Number of nodes that are kept after each hop.
        depth: Largest number of hops.
        budget: Largest number of nodes to visit, anchors included.
        ties: Decides between equally good nodes: the smaller number comes first, [nodes].

    Returns:
        Score by node in the order of the visits: the anchors, then hop by hop, the best of each hop first.
    """
    visited = dict.fromkeys(list(anchors)[:budget], 1.0)
    front = list(visited)
    for _ in range(depth):
        scores = np.full(len(ties), -np.inf)
        for name, beside in neighbours.items():
            gains = step_scores[name]
            for node in front:
                reached = beside(node)
                scores[reached] = np.maximum(scores[reached], visited[node] * decay + gains[reached])
        scores[list(visited)] = -np.inf
        rows = np.flatnonzero(scores > -np.inf)
        best = rows[np.lexsort((ties[rows], -np.round(scores[rows], _DIGITS)))]
        front = best[: min(width, budget - len(visited))].tolist()
        if not front:
            break
        visited.update((node, float(scores[node])) for node in front)
    return visited

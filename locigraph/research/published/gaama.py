"""GAAMA: concept-mediated personalised PageRank combined with similarity."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.snapshot import Snapshot
from locigraph.research.published.page_rank import personalized_page_rank, transition_matrix
from locigraph.retrieval.budgets import Budget, ContextRules, KindLimits
from locigraph.retrieval.protocols import SnapshotLoader
from locigraph.retrieval.strategies.memory_graph import (
    Asked,
    GraphRetriever,
    MemoryGraph,
    Ranking,
    max_normalised,
    only,
)

#: Weight of each relation before the rows are normalised.
EDGE_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {"NEXT": 0.8, "DERIVED_FROM": 0.8, "HAS_CONCEPT": 0.8, "ABOUT_CONCEPT": 0.8, "DERIVED_FROM_FACT": 0.5}
)

LIMITS = KindLimits(facts=60, reflections=20, episodes=80)


class GaamaGraph(MemoryGraph):
    """The relations that GAAMA walks along, each in both directions.

    Args:
        snapshot: The graph, with embeddings of length 1.
        weights: Weight by relation; other relations are left out.
    """

    def __init__(self, snapshot: Snapshot, weights: Mapping[str, float]) -> None:
        super().__init__(snapshot)
        #: Nodes that the first search may find: memories, and the topics that mediate between them.
        self.pool = np.union1d(self.memories, self.rows("concept"))
        kept = np.isin(snapshot.relations, list(weights)) & np.all(
            np.isin(np.stack([snapshot.source, snapshot.target]), self.pool), axis=0
        )
        source, target = snapshot.source[kept], snapshot.target[kept]
        base = np.array([weights[label] for label in snapshot.relations[kept].tolist()]) * snapshot.weights[kept]
        self.source, self.target = np.concatenate([source, target]), np.concatenate([target, source])
        self.weight: NDArray[np.float64] = np.concatenate([base, base])


class GaamaRetriever(GraphRetriever[GaamaGraph]):
    """Ranks memories by similarity plus 0.1 times their personalised PageRank around the most similar nodes.

    The 2B most similar nodes are the pool (B is the sum of the limits by kind). The best of them are the seeds, with
    their squared cosine as weight. PageRank is computed in the graph within ``depth`` steps of the seeds; a memory of
    the pool or of that graph scores ``ppr_weight`` * PageRank + ``similarity_weight`` * cosine, each divided by its
    greatest value (eq. 5). Each kind of memory has a limit, and contexts also have a word budget.

    Args:
        load, encoder, name: See ``GraphRetriever``.
        limits: Largest numbers of facts, reflections and episodes.
        words: Largest number of words in a context.
        seeds: Number of nodes where walks start.
        depth: Largest number of steps from a seed to a node of the walked graph.
        edge_weights: Weight by relation; other relations are not walked.
        hub_degree: Number of edges above which a node passes on less; see ``transition_matrix``.
        damping: Chance to follow an edge.
        ppr_weight: Weight of the PageRank; 0 is the paper's ablation with similarity only, which walks nowhere.
        similarity_weight: Weight of the cosine.

    Deviations:
        Events count as facts; the paper does not distinguish them. Sub-events have no edges of these relations and are
        found by similarity alone. Seeds are weighted by the squared cosine; the paper's second version and the authors'
        code use the cosine itself. An edge's own weight is used unchanged; the authors' code squares it. The authors'
        code scales the rows of hubs down before it normalises them, which has no effect; here hubs lose that share,
        which returns to the seeds with the mass of sinks. The word budget does not cut the ranking. It is filled by
        score regardless of kind, and dates and source turns count as words; the authors' code cuts each kind in
        proportion to its limit. All kinds are sorted together by time; in the paper only episodes are. The repair of
        the graph after retrieval (GRAFT), and with it the belief b(n) in eq. 5, is left out.

    Source:
        Paul, Sharma and Sareen 2026, "GAAMA: Graph Augmented Associative Memory for Agents", arXiv:2603.27910,
        section 3.3 (eq. 5 in the second version); what the text leaves open is as in the authors' code
        (swarna-kpaul/gaama).
    """

    def __init__(
        self,
        load: SnapshotLoader,
        encoder: TextEncoder,
        *,
        limits: KindLimits = LIMITS,
        words: int = 1_000,
        seeds: int = 40,
        depth: int = 2,
        edge_weights: Mapping[str, float] = EDGE_WEIGHTS,
        hub_degree: int = 50,
        damping: float = 0.6,
        ppr_weight: float = 0.1,
        similarity_weight: float = 1.0,
        name: str = "gaama",
    ) -> None:
        super().__init__(load, encoder, name=name)
        self._limits = limits
        self.context_rules = ContextRules(Budget(words=words, kinds=limits))
        self._seeds, self._depth = seeds, depth
        self._edge_weights = edge_weights
        self._hub_degree, self._damping = hub_degree, damping
        self._ppr_weight, self._similarity_weight = ppr_weight, similarity_weight

    def prepare(self, snapshot: Snapshot) -> GaamaGraph:
        """The walked relations of a space."""
        return GaamaGraph(snapshot, self._edge_weights)

    def rank(self, graph: GaamaGraph, asked: Asked, *, top_k: int) -> Ranking:
        """See ``GraphRetriever``. Signals: ``cosine``, ``ppr`` (divided by its greatest value)."""
        cosine = np.maximum(graph.cosine(asked.vector), 0.0)
        pool = graph.best(cosine, graph.pool, 2 * self._limits.total)
        ppr = np.zeros(len(cosine))
        if self._ppr_weight and cosine[pool[: self._seeds]].any():
            walked, ppr = self._walk(graph, pool[: self._seeds], cosine)
            pool = np.union1d(pool, walked)
        candidates = np.intersect1d(pool, graph.memories)
        similarity = np.zeros(len(cosine))
        similarity[pool] = max_normalised(cosine[pool])
        scores = self._ppr_weight * ppr + self._similarity_weight * similarity
        rows = graph.best(scores, candidates[scores[candidates] > 0])
        rows = rows[self._limits.mask(graph.snapshot.types[rows].tolist())]
        return Ranking(rows, scores[rows], {"cosine": cosine, "ppr": only(ppr, candidates)})

    def _walk(
        self, graph: GaamaGraph, seeds: NDArray[np.int64], cosine: NDArray[np.float64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The nodes near the seeds, and the PageRank of all nodes, divided by its greatest value."""
        near = np.zeros(len(cosine), dtype=bool)
        near[seeds] = True
        kept = np.zeros(len(graph.source), dtype=bool)
        for _ in range(self._depth):
            kept = near[graph.source] | near[graph.target]
            near[graph.source[kept]] = near[graph.target[kept]] = True
        rows = np.flatnonzero(near)
        local = np.cumsum(near) - 1  # row -> index among the near nodes
        transition = transition_matrix(
            local[graph.source[kept]],
            local[graph.target[kept]],
            graph.weight[kept],
            size=len(rows),
            hub_degree=self._hub_degree,
        )
        teleport = np.zeros(len(rows))
        teleport[local[seeds]] = cosine[seeds] ** 2
        ppr = np.zeros(len(cosine))
        ppr[rows] = max_normalised(personalized_page_rank(transition, teleport, damping=self._damping))
        return rows, ppr

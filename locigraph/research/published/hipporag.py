"""HippoRAG: personalised PageRank over entities and turns, starting from the facts that match the question."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import EPISODE, plannable_types
from locigraph.kg.snapshot import Snapshot
from locigraph.research.published.page_rank import personalized_page_rank, transition_matrix
from locigraph.retrieval.protocols import SnapshotLoader
from locigraph.retrieval.strategies.memory_graph import Asked, GraphRetriever, MemoryGraph, Ranking, min_max, only


class HippoGraph(MemoryGraph):
    """Entities, the turns that name them, and the facts that join them.

    Args:
        snapshot: The graph, with embeddings of length 1.
        synonym_cosine: Entities of at least this cosine are linked.
    """

    def __init__(self, snapshot: Snapshot, synonym_cosine: float) -> None:
        super().__init__(snapshot)
        self.turns = self.rows(EPISODE)
        self.entities = self.rows("entity")
        speaking, spoken_of = self.edges("MENTIONS")
        of_turn = snapshot.types[speaking] == EPISODE
        of_fact = np.isin(snapshot.types[speaking], plannable_types())
        self.fact, self.entity = speaking[of_fact], spoken_of[of_fact]
        #: Facts that name at least one entity.
        self.facts = np.unique(self.fact)
        #: Number of turns that name each entity, [nodes].
        self.turn_counts = np.bincount(spoken_of[of_turn], minlength=snapshot.num_nodes)
        left, right = _joined(self.fact, self.entity)
        near, alike, cosine = self.similar(self.entities, at_least=synonym_cosine)
        source = np.concatenate([speaking[of_turn], spoken_of[of_turn], left, right, near])
        target = np.concatenate([spoken_of[of_turn], speaking[of_turn], right, left, alike])
        weight = np.ones(len(source))
        weight[len(source) - len(near) :] = cosine
        self.transition = transition_matrix(source, target, weight, size=snapshot.num_nodes)


class HippoRagRetriever(GraphRetriever[HippoGraph]):
    """Ranks turns by their personalised PageRank in the graph of entities and turns.

    The walk starts at the entities of the facts that are most similar to the question. Each entity is weighted by the
    mean similarity of these facts, divided by the number of turns that name it. The walk also starts, with a small
    weight, at every turn in proportion to its own similarity.

    Args:
        load, encoder, name: See ``GraphRetriever``.
        facts: Number of facts whose entities the walk may start from.
        entities: Number of entities that the walk starts from, those of greatest weight.
        turn_weight: Factor of the turns' starting weights.
        damping: Chance to follow an edge.
        synonym_cosine: Entities of at least this cosine are linked.

    Deviations:
        Facts, events and sub-events of the graph take the place of the paper's triples; one that names more than two
        entities links all pairs of them, and one that names none or one links nothing. The graph's entities take the
        place of the paper's phrases. No language model filters the facts (the paper's recognition memory). Edges of the
        paper's graph have no direction; here each is stored in both. Where no fact names an entity, turns
        are ranked by their cosine.

    Source:
        Gutiérrez et al. 2025, "From RAG to Memory" (HippoRAG 2), arXiv:2502.14802, section 3 (online retrieval);
        constants as in the authors' code (OSU-NLP-Group/HippoRAG). The division by the number of turns is the node
        specificity of HippoRAG, Gutiérrez et al. 2024, arXiv:2405.14831.
    """

    def __init__(
        self,
        load: SnapshotLoader,
        encoder: TextEncoder,
        *,
        facts: int = 5,
        entities: int = 5,
        turn_weight: float = 0.05,
        damping: float = 0.5,
        synonym_cosine: float = 0.8,
        name: str = "hipporag",
    ) -> None:
        super().__init__(load, encoder, name=name)
        self._facts, self._entities = facts, entities
        self._turn_weight, self._damping = turn_weight, damping
        self._synonym_cosine = synonym_cosine

    def prepare(self, snapshot: Snapshot) -> HippoGraph:
        """The graph of entities and turns."""
        return HippoGraph(snapshot, self._synonym_cosine)

    def rank(self, graph: HippoGraph, asked: Asked, *, top_k: int) -> Ranking:
        """See ``GraphRetriever``. Signals: ``cosine``, ``ppr``."""
        cosine = graph.cosine(asked.vector)
        if not len(graph.facts):
            rows = graph.best(cosine, graph.turns)
            return Ranking(rows, cosine[rows], {"cosine": cosine})
        teleport = self._entity_weights(graph, cosine)
        teleport[graph.turns] = self._turn_weight * _scaled(cosine[graph.turns])
        ppr = personalized_page_rank(graph.transition, teleport, damping=self._damping)
        rows = graph.best(ppr, graph.turns)
        return Ranking(rows, ppr[rows], {"cosine": cosine, "ppr": only(ppr, graph.turns)})

    def _entity_weights(self, graph: HippoGraph, cosine: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights of the starting entities: the mean over their facts of similarity / number of turns, [nodes]."""
        fit = np.zeros(len(cosine))
        fit[graph.facts] = _scaled(cosine[graph.facts])
        kept = np.isin(graph.fact, graph.best(fit, graph.facts, self._facts))
        fact, entity = graph.fact[kept], graph.entity[kept]
        named = np.maximum(np.bincount(entity, minlength=len(cosine)), 1)
        weights = np.bincount(entity, fit[fact], minlength=len(cosine)) / named / np.maximum(graph.turn_counts, 1)
        kept_entities = graph.best(weights, np.unique(entity), self._entities)
        return np.nan_to_num(only(weights, kept_entities))


def _scaled(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scaled to [0, 1] as in the authors' code: ones if all are equal, so that a single fact can start the walk."""
    return min_max(cosines) if len(cosines) and np.ptp(cosines) > 0 else np.ones(len(cosines))


def _joined(fact: NDArray[np.int64], entity: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of entities that the same fact names, each pair in one direction and once for each fact."""
    pairs: list[tuple[int, int]] = []
    order = np.argsort(fact, kind="stable")
    _, first = np.unique(fact[order], return_index=True)
    for each in np.split(entity[order], first[1:]):
        named = np.unique(each).tolist()
        pairs += [(a, b) for i, a in enumerate(named) for b in named[i + 1 :]]
    left, right = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return left, right

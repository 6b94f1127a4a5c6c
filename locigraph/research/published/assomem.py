"""AssoMem: relevance, importance and time over a graph of clues."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.research.published.page_rank import personalized_page_rank, transition_matrix
from locigraph.retrieval.protocols import SnapshotLoader
from locigraph.retrieval.strategies.memory_graph import Asked, GraphRetriever, MemoryGraph, Ranking, min_max, only

#: Relevance, importance, temporal alignment.
SIGNALS = ("relevance", "importance", "temporal")
FIXED_WEIGHTS = (0.6, 0.3, 0.1)
#: Seconds after which alignment in time has fallen to 1/e: 30 days.
_FADING_S = 30 * 86_400

Weights = tuple[float, float, float]


class ClueGraph(MemoryGraph):
    """Memories, the clues that own them, and links between similar memories.

    Args:
        snapshot: The graph, with embeddings of length 1.
        merge_cosine: Clues of at least this cosine are merged.
        similar_cosine: Memories of at least this cosine are linked.
    """

    def __init__(self, snapshot: Snapshot, merge_cosine: float, similar_cosine: float) -> None:
        super().__init__(snapshot)
        self.clues = self.rows("concept")
        owned, clue = self.edges("HAS_CONCEPT", "ABOUT_CONCEPT")
        near, alike, _ = self.similar(self.clues, at_least=merge_cosine)
        _, self.cluster = connected_components(self.links(near, alike), directed=False)
        #: One clue of each cluster represents all of it.
        leader = self.clues[np.argsort(self.place[self.clues])][::-1]
        self.leader = np.arange(snapshot.num_nodes)
        self.leader[self.cluster[leader]] = leader  # the first ID is written last
        self.owned, self.clue = owned, self.leader[self.cluster[clue]]
        #: Memories that no clue owns.
        self.unowned = np.setdiff1d(self.memories, owned)
        left, right, cosine = self.similar(self.memories, at_least=similar_cosine)
        source = np.concatenate([self.owned, self.clue, left])
        target = np.concatenate([self.clue, self.owned, right])
        weight = np.ones(len(source))
        weight[len(source) - len(left) :] = cosine
        self.transition = transition_matrix(source, target, weight, size=snapshot.num_nodes)

    def owned_by(self, clues: NDArray[np.int64]) -> NDArray[np.int64]:
        """Memories that the given clues own."""
        return np.intersect1d(self.owned[np.isin(self.clue, self.leader[self.cluster[clues]])], self.memories)


class AssoMemRetriever(GraphRetriever[ClueGraph]):
    """Ranks the memories of the clues that match a question by a weighted sum of three signals, each in [0, 1].

    *Relevance* is the cosine. *Importance* is the personalised PageRank of a walk that restarts at memories, in
    proportion to their cosine, and at no clue. *Temporal* alignment falls with the gap between the time that the
    question names and the time that the memory is about; it is 0 for all memories if the question names no time.
    Weights are fixed, or learnt for each type of question.

    Args:
        load, encoder, name: See ``GraphRetriever``.
        weights: Function from a question to the weights of the three signals; the default returns the paper's fixed
            weights for all questions, ``weights_of_types`` learns others.
        clues: Number of clues whose memories are candidates; None for all memories.
        merge_cosine: Clues of at least this cosine are merged.
        similar_cosine: Memories of at least this cosine are linked.
        damping: Chance to follow an edge.

    Deviations:
        *Graph* (section 3.2.1): the graph's topics take the place of the clues that the paper's language model extracts
        from each session, so a turn may have none or several. Facts, events and reflections are memories too, and
        topics own facts and events as well as turns. Similar memories are linked. Similar clues are merged but not
        linked; the paper does both. The weight of an ownership edge is the number of the memory's clues that were
        merged into the clue at its end, that of a similarity edge is the cosine.
        *Candidates* (section 3.2.2): all memories. The paper keeps those of the best clues; on graphs by rules, which
        have hundreds of topics, that loses answers (threads: .79 with 100 clues, .88 with all). With ``clues``,
        memories without a clue are candidates, too, and all memories if the best clues own none.
        *Signals* (section 3.2.3): alignment in time is exp(-gap / 30 days) between spans of time that
        ``kg.language.dates`` finds, instead of the cosine of TimeLlaMa's embeddings. The other two signals are scaled
        to [0, 1] over the candidates of a question. The mass of memories without edges returns to the start of the
        walk.
        *Learnt weights* (section 3.2.3): question types are MAGMA's three intents, found by rules; the paper uses the
        types of its data. A signal's information about relevance is conditioned on the other two signals, within a
        type; the paper conditions on the type alone. Relevant and irrelevant samples have the same total weight. The
        temperature of the softmax is chosen on validation questions, since the paper does not give it.
        ``similar_cosine`` and ``damping`` were chosen on the corpus threads; ``merge_cosine`` is a guess.
        The paper's tuning of the reader (section 3.3) is not part of retrieval and is left out.

    Source:
        Zhang et al. 2025, "AssoMem: Scalable Memory QA with Multi-Signal Associative Retrieval", arXiv:2510.10397,
        section 3.2: associative memory graph, candidates, RITRanker.
    """

    def __init__(
        self,
        load: SnapshotLoader,
        encoder: TextEncoder,
        *,
        weights: Callable[[str], Weights] = lambda question: FIXED_WEIGHTS,
        clues: int | None = None,
        merge_cosine: float = 0.9,
        similar_cosine: float = 0.8,
        damping: float = 0.5,
        name: str = "assomem",
    ) -> None:
        super().__init__(load, encoder, name=name)
        self._weights = weights
        self._clues = clues
        self._merge_cosine, self._similar_cosine, self._damping = merge_cosine, similar_cosine, damping

    def prepare(self, snapshot: Snapshot) -> ClueGraph:
        """The clue graph of a space."""
        return ClueGraph(snapshot, self._merge_cosine, self._similar_cosine)

    def rank(self, graph: ClueGraph, asked: Asked, *, top_k: int) -> Ranking:
        """See ``GraphRetriever``. Signals: those of ``SIGNALS``."""
        candidates, signals = self.signals(graph, asked)
        scores = np.zeros(graph.snapshot.num_nodes)
        scores[candidates] = signals @ np.asarray(self._weights(asked.text))
        rows = graph.best(scores, candidates)
        shown = {}
        for name, values in zip(SIGNALS, signals.T, strict=True):
            shown[name] = np.full(len(scores), np.nan)
            shown[name][candidates] = values
        return Ranking(rows, scores[rows], shown)

    def signals(self, graph: ClueGraph, asked: Asked) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Rows of the candidates for a question, and their three signals in [0, 1], [candidates, 3]."""
        cosine = graph.cosine(asked.vector)
        candidates = graph.memories
        if self._clues is not None and len(graph.clues):
            owned = graph.owned_by(graph.best(cosine, graph.clues, self._clues))
            candidates = np.union1d(owned, graph.unowned) if len(owned) else candidates
        teleport = np.maximum(np.nan_to_num(only(cosine, graph.memories)), 0.0)
        importance = (
            personalized_page_rank(graph.transition, teleport, damping=self._damping) if teleport.any() else teleport
        )
        temporal = np.zeros(len(cosine)) if asked.window is None else _alignment(graph, asked.window)
        columns = [min_max(cosine[candidates]), min_max(importance[candidates]), temporal[candidates]]
        return candidates, np.stack(columns, axis=1)


def _alignment(graph: MemoryGraph, window: tuple[int, int]) -> NDArray[np.float64]:
    """exp(-gap / 30 days) between a window and the time each node is about; 0 for nodes without a time, [nodes]."""
    first, last = graph.snapshot.times
    dated = first != NO_TIME
    gap = np.maximum(0, np.maximum(np.where(dated, first, 0) - window[1], window[0] - np.where(dated, last, 0)))
    return np.where(dated, np.exp(-gap / _FADING_S), 0.0)

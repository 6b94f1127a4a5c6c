"""TEMPR: meaning, words, links and time searched side by side, and fused by rank."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.activation import spread_activation
from locigraph.retrieval.protocols import Hit, TextEncoder
from locigraph.retrieval.rank_fusion import USUAL_RRF_K, reciprocal_rank_fusion
from locigraph.retrieval.strategies.memory_graph import (
    Asked,
    GraphRetriever,
    MemoryGraph,
    Ranking,
    SnapshotLoader,
    only,
)

_DAY_S = 86_400
_SEMANTIC_COSINE, _SEMANTIC_LINKS = 0.7, 5
_ENTITY_LINKS, _TEMPORAL_LINKS = 50, 10
_CAUSAL_BOOST = 2.0


class TemprGraph(MemoryGraph):
    """Memories and their links: shared entities, like meaning, nearness in time, and causes.

    Args:
        snapshot: The graph, with embeddings of length 1.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        begun = self.times[0]
        dated = self.memories[begun[self.memories] != NO_TIME]
        in_time = dated[np.lexsort((self.place[dated], self.said[dated], begun[dated]))]
        earlier, later = _successors(in_time, _TEMPORAL_LINKS)
        apart = (begun[later] - begun[earlier]) / _DAY_S
        near = apart <= 1
        temporal = earlier[near], later[near], np.maximum(0.3, 1 - apart[near])
        cause, effect = self.memory_edges("CAUSES")
        causal = cause, effect, np.full(len(cause), _CAUSAL_BOOST)
        left, right = self._sharing_entities()
        entity = left, right, np.ones(len(left))
        semantic = self.similar(self.memories, at_least=_SEMANTIC_COSINE, most=_SEMANTIC_LINKS)
        self.all_links = self._links_of(entity, semantic, temporal, causal)
        self.time_links = self._links_of(temporal, causal)

    def _links_of(self, *kinds: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]) -> csr_array:
        source, target, weight = (np.concatenate(parts) for parts in zip(*kinds, strict=True))
        return self.links(source, target, weight)

    def _sharing_entities(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Pairs of memories that name one entity, each with those that follow it among the entity's memories."""
        memory, entity = self.edges("MENTIONS")
        order = np.lexsort((self.place[memory], self.said[memory], entity))
        memory, entity = memory[order], entity[order]
        left, right = _successors(np.arange(len(memory)), _ENTITY_LINKS)
        same = entity[left] == entity[right]
        return memory[left[same]], memory[right[same]]


class TemprRetriever(GraphRetriever[TemprGraph]):
    """Memories by reciprocal rank fusion of four searches (eq. 15).

    *Meaning* (eq. 9): cosine of at least .3. *Words* (eq. 11): BM25. *Links* (eq. 12): activation spreads from the five
    most similar memories (cosine of at least .5) and falls to .8 at each link, times the link's weight, until it is .1.
    *Time* (eq. 13 and 14), only if the question names a time: the most similar memories of that time (cosine of at
    least .4) score by their nearness to its middle, and pass on .7 of it along links of time and cause. A cross-encoder
    (``retrieval.rerank``) reads each memory after its date (section 4.2.4).

    Args:
        load: Reads the snapshot of a space as of a time (None: now), with embeddings.
        encoder: Text encoder that made these embeddings.
        thinking_budget: Most memories that each search returns, however many are asked for.
        rrf_k: Constant of reciprocal rank fusion.
        name: Name of the strategy in results.

    Deviations:
        *Graph* (section 4.1): turns, facts, events and reflections are all memories; the paper keeps narrative facts in
        four networks, which are not told apart here. An entity joins each of its memories to the 50 that were said next
        before and after (eq. 3 joins all), and time joins each memory to 10 on either side within 24 hours, weighted
        max(.3, 1 - hours / 24) (eq. 4 is an exponential), much as limits in the authors' code do; a memory has at most
        five links of meaning. ``CAUSES`` between two memories is the one causal relation; its multiplier in eq. 12 is
        2, and that of all other links 1.
        *Searches* (section 4.2.2): they run one after another, not in parallel, since each takes milliseconds.
        Activation spreads from the most active memory first, not breadth first; of equal activation the more similar
        memory comes first. From the memories of the named time it may
        pass to similar ones outside of it, which eq. 13 shuts out. Time expressions are resolved by
        ``kg.language.dates`` instead of two libraries and a T5 model, from the day of the last turn where the question
        has no time of its own. Within a window of one day all times are equally near. ``thinking_budget`` is an
        argument of this class that no command sets.
        *Cross-encoder* (eq. 16): none, unless ``--reranker`` names one.
        *Token budget* (eq. 7 and 17, ``max_tokens`` in the authors' code): the search has none. It belongs to the
        context (``recall --budget_tokens``), where a memory that does not fit is passed over; the paper ends there.

    Source:
        Latimer et al. 2025, "Hindsight is 20/20", arXiv:2512.12818, section 4.2 (TEMPR, recall), eq. 7 to 17; links of
        section 4.1.4; thresholds as in the authors' code (vectorize-io/hindsight).
    """

    def __init__(
        self,
        load: SnapshotLoader,
        encoder: TextEncoder,
        *,
        thinking_budget: int = 100,
        rrf_k: int = USUAL_RRF_K,
        name: str = "tempr",
    ) -> None:
        super().__init__(load, encoder, name=name)
        self._budget = thinking_budget
        self._rrf_k = rrf_k

    def prepare(self, snapshot: Snapshot) -> TemprGraph:
        """The links of a space."""
        return TemprGraph(snapshot)

    def rank(self, graph: TemprGraph, asked: Asked, *, top_k: int) -> Ranking:
        """See ``GraphRetriever``. Signals: ``cosine``, ``bm25``, ``activation``, ``time``."""
        memories, count = graph.memories, self._budget
        cosine, bm25 = graph.cosine(asked.vector), graph.bm25(asked.text)
        order = graph.order(cosine)
        meaning = graph.best(cosine, memories[cosine[memories] >= 0.3], count)
        words = graph.best(bm25, memories[bm25[memories] > 0], count)
        seeds = meaning[:5][cosine[meaning[:5]] >= 0.5]
        activation = spread_activation(
            graph.all_links,
            {int(row): float(cosine[row]) for row in seeds},
            decay=0.8,
            threshold=0.1,
            budget=count,
            ties=order,
        )
        nearness = self._in_time(graph, asked, cosine, order, count)
        arms = [meaning.tolist(), words.tolist(), list(activation), list(nearness)]
        ids = graph.snapshot.ids
        fused = reciprocal_rank_fusion([[ids[row] for row in arm] for arm in arms], rrf_k=self._rrf_k)
        rows = np.array([graph.snapshot.row_of[node] for node, _ in fused], dtype=np.int64)
        signals = {
            "cosine": only(cosine, meaning),
            "bm25": only(bm25, words),
            "activation": _spread_out(activation, len(cosine)),
            "time": _spread_out(nearness, len(cosine)),
        }
        return Ranking(rows, np.array([score for _, score in fused]), signals)

    def reworded(self, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None) -> list[str]:
        """See ``HasRerankTexts``: "[Date: June 5, 2023 (2023-06-05)] text", and the text alone of what is not dated."""
        graph = self.held(space, as_of)
        return [_dated(graph, hit.node_id) + hit.description for hit in hits]

    def _in_time(
        self, graph: TemprGraph, asked: Asked, cosine: NDArray[np.float64], order: NDArray[np.int64], count: int
    ) -> dict[int, float]:
        """Nearness to the time that the question names, by memory, best first; empty if it names none."""
        if asked.window is None:
            return {}
        similar = np.zeros(len(cosine), dtype=bool)
        similar[graph.memories] = cosine[graph.memories] >= 0.4
        entries = graph.best(cosine, np.flatnonzero(similar & graph.within(asked.window)), _TEMPORAL_LINKS)
        own = np.where(similar, nearness_to(asked.window, *graph.times), -1.0)
        return spread_activation(
            graph.time_links,
            {int(row): float(own[row]) for row in entries},
            decay=0.7,
            threshold=0.2,
            budget=count,
            ties=order,
            least=own,
        )


def nearness_to(window: tuple[int, int], first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.float64]:
    """How near the middle of each span of time lies to that of a window, 1 - distance / half its length, at least 0.

    Args:
        window: First and last second.
        first, last: First and last second of each span, or ``NO_TIME``, which is not near, [spans].
    """
    radius = (window[1] - window[0]) / 2
    middle = first / 2 + last / 2
    apart = np.abs(middle - (window[0] + window[1]) / 2)
    if window[1] - window[0] < _DAY_S:
        near = (apart <= radius).astype(np.float64)
    else:
        near = np.maximum(0.0, 1.0 - apart / radius)
    return np.where(first == NO_TIME, 0.0, near)


def _successors(rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each row with the ``count`` rows after it."""
    shifts = range(1, min(count, len(rows) - 1) + 1)
    empty = [rows[:0]]
    return np.concatenate(empty + [rows[:-n] for n in shifts]), np.concatenate(empty + [rows[n:] for n in shifts])


def _spread_out(values: dict[int, float], size: int) -> NDArray[np.float64]:
    shown = np.full(size, np.nan)
    shown[list(values)] = list(values.values())
    return shown


def _dated(graph: MemoryGraph, node: NodeId) -> str:
    seconds = int(graph.times[0][graph.snapshot.row_of[node]])
    if seconds == NO_TIME:
        return ""
    day = datetime.fromtimestamp(seconds, UTC)
    return f"[Date: {day:%B} {day.day}, {day.year} ({day:%Y-%m-%d})] "

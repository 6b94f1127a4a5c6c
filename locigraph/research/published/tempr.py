"""TEMPR: four parallel searches, by meaning, words, links and time, fused by reciprocal rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import NodeId, SpaceId
from locigraph.research.published.activation import spread_activation
from locigraph.retrieval.budgets import Budget, ContextRules
from locigraph.retrieval.protocols import Hit, SnapshotLoader
from locigraph.retrieval.query_generator import OPEN_WINDOW
from locigraph.retrieval.rank_fusion import FEW_RRF_K, reciprocal_rank_fusion
from locigraph.retrieval.strategies.memory_graph import Asked, GraphRetriever, MemoryGraph, Ranking, WordedGraph

_DAY_S = 86_400
_SEMANTIC_COSINE, _SEMANTIC_LINKS = 0.7, 5
_ENTITY_LINKS, _TEMPORAL_LINKS = 50, 10
_CAUSAL_BOOST = 2.0


class TemprGraph(WordedGraph):
    """Memories and their links: shared entities, similar meaning, nearness in time, and causes.

    Args:
        snapshot: The graph, with embeddings of length 1.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        begun = self.snapshot.times[0]
        dated = self.memories[begun[self.memories] != NO_TIME]
        in_time = dated[np.lexsort((self.place[dated], self.snapshot.first_turn_place[dated], begun[dated]))]
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
        """Pairs of memories that name the same entity: each with those that follow it among the entity's memories."""
        memory, entity = self.edges("MENTIONS")
        order = np.lexsort((self.place[memory], self.snapshot.first_turn_place[memory], entity))
        memory, entity = memory[order], entity[order]
        left, right = _successors(np.arange(len(memory)), _ENTITY_LINKS)
        same = entity[left] == entity[right]
        return memory[left[same]], memory[right[same]]


class TemprRetriever(GraphRetriever[TemprGraph]):
    """Ranks memories by reciprocal rank fusion of four searches (eq. 15).

    *Meaning* (eq. 9): cosine of at least .3. *Words* (eq. 11): BM25. *Links* (eq. 12): activation spreads from the five
    most similar memories (cosine of at least .5) and is multiplied by .8 and the link's weight at each link; it is
    passed on only while it exceeds .1. *Time* (eq. 13 and 14), only if the question names a time: the most similar
    memories of that time (cosine of at least .4) score by their nearness to its middle, and pass .7 of that score on
    along temporal and causal links. A cross-encoder, if used, reads each memory after its date (section 4.2.4).

    Args:
        load, encoder, name: See ``GraphRetriever``.
        thinking_budget: Largest number of memories that each search returns, whatever ``top_k`` is.
        rrf_k: Constant of reciprocal rank fusion.
        max_tokens: Largest number of tokens in a context.
        pool: Runs the four searches in parallel; None to run them one after another, with the same results.

    Deviations:
        *Graph* (section 4.1): turns, facts, events and reflections are all memories; the paper keeps narrative facts in
        four networks, which are not distinguished here. Each memory of an entity is linked to the 50 of that entity
        said before it and the 50 said after it (eq. 3 links all). Each memory also has temporal links to 10 on either
        side within 24 hours, with weight max(.3, 1 - hours / 24) (eq. 4 is an exponential). The authors' code has
        similar limits. A memory makes at most five links of meaning. ``CAUSES`` between two memories is the only causal
        relation; its multiplier in eq. 12 is 2, and that of all other links 1.
        *Searches* (section 4.2.2): activation spreads from the most active memory first, not breadth first; between
        equally active memories, the more similar one comes first. From the memories of the named time it may pass to
        similar ones outside that time, which eq. 13 excludes. Time expressions are resolved by ``kg.language.dates``
        instead of two libraries and a T5 model, relative to ``as_of`` or else to the day of the last turn. Within a
        window of one day all times are equally near.
        *Cross-encoder* (eq. 16): none, unless ``--reranker`` names one; it reads the best 50 (``retrieval.rerank``).
        *Token budget* (eq. 7 and 17; 4,096 in the authors' code): it limits the context, not the search, by
        ``retrieval.budgets.count_tokens``; a memory that does not fit is skipped, where the paper stops. Like
        ``thinking_budget``, it is an argument of this class: no command changes either, and ``--budget_tokens`` can
        only lower it.
        *Fusion* (eq. 15): the constant is that of v1, chosen on the corpus threads, where it finds more than the
        paper's 60; see ``FEW_RRF_K``.

    Source:
        Latimer et al. 2025, "Hindsight is 20/20", arXiv:2512.12818, section 4.2 (TEMPR, recall), eq. 7 to 17; links of
        section 4.1.4; thresholds as in the authors' code (vectorize-io/hindsight).
    """

    def __init__(
        self,
        load: SnapshotLoader,
        encoder: TextEncoder,
        *,
        thinking_budget: int = 300,
        rrf_k: int = FEW_RRF_K,
        max_tokens: int = 4_096,
        name: str = "tempr",
        pool: Executor | None = None,
    ) -> None:
        super().__init__(load, encoder, name=name)
        self._budget = thinking_budget
        self._rrf_k = rrf_k
        self.context_rules = ContextRules(Budget(tokens=max_tokens))
        self._pool = pool

    def prepare(self, snapshot: Snapshot) -> TemprGraph:
        """The links of a space."""
        return TemprGraph(snapshot)

    def rank(self, graph: TemprGraph, asked: Asked, *, top_k: int) -> Ranking:
        """See ``GraphRetriever``. Signals: ``cosine``, ``bm25``, ``activation``, ``time``."""
        cosine = graph.cosine(asked.vector)
        arms: dict[str, Callable[[], Mapping[int, float]]] = {
            "cosine": partial(self._meaning, graph, cosine),
            "bm25": partial(self._words, graph, asked),
            "activation": partial(self._links, graph, cosine),
            "time": partial(self._in_time, graph, asked, cosine),
        }
        if self._pool is not None:
            arms = {name: self._pool.submit(arm).result for name, arm in arms.items()}
        values_of = {name: arm() for name, arm in arms.items()}
        ids = graph.snapshot.ids
        fused = reciprocal_rank_fusion([[ids[row] for row in arm] for arm in values_of.values()], rrf_k=self._rrf_k)
        rows = np.array([graph.snapshot.row_of[node] for node, _ in fused], dtype=np.int64)
        signals = {name: _spread_out(values, len(cosine)) for name, values in values_of.items()}
        return Ranking(rows, np.array([score for _, score in fused]), signals)

    def reworded(self, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None) -> list[str]:
        """See ``Retriever``: "[Date: June 5, 2023 (2023-06-05)] text", or the text alone if it has no date."""
        graph = self.graph_of(space, as_of)
        return [_dated(graph, hit.node_id) + hit.text for hit in hits]

    def _meaning(self, graph: TemprGraph, cosine: NDArray[np.float64]) -> Mapping[int, float]:
        """Cosine of the most similar memories, best first."""
        return _values(cosine, graph.best(cosine, _similar(graph, cosine, 0.3), self._budget))

    def _words(self, graph: TemprGraph, asked: Asked) -> Mapping[int, float]:
        """BM25 score of the memories that match the words of the question best, best first."""
        memories, bm25 = graph.memories, graph.bm25(asked.text)
        return _values(bm25, graph.best(bm25, memories[bm25[memories] > 0], self._budget))

    def _links(self, graph: TemprGraph, cosine: NDArray[np.float64]) -> Mapping[int, float]:
        """Activation that the most similar memories pass on, the most active first."""
        seeds = graph.best(cosine, _similar(graph, cosine, 0.5), 5)
        return self._spread(graph, cosine)(graph.all_links, _values(cosine, seeds), decay=0.8, threshold=0.1)

    def _in_time(self, graph: TemprGraph, asked: Asked, cosine: NDArray[np.float64]) -> Mapping[int, float]:
        """Nearness to the time that the question names, by memory, best first; empty if it names none."""
        if asked.window is None:
            return {}
        similar = _similar(graph, cosine, 0.4)
        seeds = graph.best(cosine, similar[graph.within(asked.window)[similar]], _TEMPORAL_LINKS)
        own = np.full(len(cosine), -1.0)
        own[similar] = nearness_to(asked.window, *graph.snapshot.times)[similar]
        spread = self._spread(graph, cosine)
        return spread(graph.time_links, _values(own, seeds), decay=0.7, threshold=0.2, least=own)

    def _spread(self, graph: TemprGraph, cosine: NDArray[np.float64]) -> Callable[..., Mapping[int, float]]:
        return partial(spread_activation, budget=self._budget, ties=graph.order(cosine))


def _similar(graph: TemprGraph, cosine: NDArray[np.float64], at_least: float) -> NDArray[np.int64]:
    """Rows of the memories with at least this cosine."""
    return graph.memories[cosine[graph.memories] >= at_least]


def nearness_to(window: tuple[int, int], first: NDArray[np.int64], last: NDArray[np.int64]) -> NDArray[np.float64]:
    """Nearness of the middle of each span of time to that of a window, in [0, 1], [spans].

    It is 1 - distance / half the window's length, and at least 0; for a window of up to a day, 1 inside and 0 outside.

    Args:
        window: First and last second; an open end (see ``OPEN_WINDOW``) is taken to be where the spans begin or end.
        first, last: First and last second of each span, or ``NO_TIME``, for which the nearness is 0, [spans].
    """
    dated = first != NO_TIME
    if window[0] == OPEN_WINDOW[0]:
        window = min(window[1], int(first[dated].min(initial=window[1]))), window[1]
    if window[1] == OPEN_WINDOW[1]:
        window = window[0], max(window[0], int(last[dated].max(initial=window[0])))
    radius = (window[1] - window[0]) / 2
    middle = first / 2 + last / 2
    apart = np.abs(middle - (window[0] + window[1]) / 2)
    if window[1] - window[0] < _DAY_S:
        near = (apart <= radius).astype(np.float64)
    else:
        near = np.maximum(0.0, 1.0 - apart / radius)
    return np.where(dated, near, 0.0)


def _successors(rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of each row with each of the ``count`` rows after it."""
    shifts = range(1, min(count, len(rows) - 1) + 1)
    empty = [rows[:0]]
    return np.concatenate(empty + [rows[:-n] for n in shifts]), np.concatenate(empty + [rows[n:] for n in shifts])


def _values(values: NDArray[np.float64], rows: NDArray[np.int64]) -> dict[int, float]:
    return {int(row): float(values[row]) for row in rows}


def _spread_out(values: Mapping[int, float], size: int) -> NDArray[np.float64]:
    shown = np.full(size, np.nan)
    shown[list(values)] = list(values.values())
    return shown


def _dated(graph: MemoryGraph, node: NodeId) -> str:
    seconds = int(graph.snapshot.times[0][graph.snapshot.row_of[node]])
    if seconds == NO_TIME:
        return ""
    day = datetime.fromtimestamp(seconds, UTC)
    return f"[Date: {day:%B} {day.day}, {day.year} ({day:%Y-%m-%d})] "

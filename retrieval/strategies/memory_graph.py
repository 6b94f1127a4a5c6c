"""Base of the published strategies: the graph of a space in memory, and the conversion of scores to hits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import cached_property, lru_cache
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.language.terms import terms
from locigraph.kg.schema import searchable_types
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import NodeId, SpaceId, TurnId
from locigraph.retrieval.index.bm25 import bm25_index
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, SnapshotLoader, Timing
from locigraph.retrieval.query_generator import named_window
from locigraph.retrieval.stopwatch import Stopwatch

_SPACES_KEPT = 8
_ROWS_AT_ONCE = 1024
#: Scores that agree to this many decimals count as equal, since sums depend on the order in which nodes are stored.
_DIGITS = 7

Pair = tuple[NDArray[np.int64], NDArray[np.int64]]


@dataclass(frozen=True)
class Asked:
    """A question.

    Attributes:
        text: Its words.
        vector: Its embedding, of length 1, [dim].
        on: The day from which relative dates are resolved: that of ``as_of``, or else that of the last turn; None if
            the space has no dates.
    """

    text: str
    vector: NDArray[np.float32]
    on: date | None = None

    @cached_property
    def window(self) -> tuple[int, int] | None:
        """First and last second, since 1970, of the times that the question names; None if it names none."""
        return named_window(self.text, self.on)


@dataclass(frozen=True)
class Ranking:
    """Nodes, best first.

    Attributes:
        rows: Rows of the nodes, [found].
        scores: Scores by which they are sorted, [found].
        signals: Values by name to be shown in hits, [nodes]; NaN for nodes that a signal did not find.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    signals: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


class MemoryGraph:
    """The graph of a space as arrays over all its nodes.

    Args:
        snapshot: The graph, with embeddings of length 1.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        #: Rows of the nodes that a search may return: turns, facts, events, reflections.
        self.memories = snapshot.active_rows(searchable_types())
        #: Position of each node in the order of IDs, which decides ties, [nodes].
        self.place = np.empty(snapshot.num_nodes, dtype=np.int64)
        self.place[np.argsort(np.asarray(snapshot.ids, dtype=np.str_), kind="stable")] = np.arange(snapshot.num_nodes)

    def cosine(self, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """Cosine between the embedding of every node's description and a question's vector, [nodes]."""
        return (self.snapshot.embeddings @ vector).astype(np.float64)

    def best(
        self, scores: NDArray[np.floating], rows: NDArray[np.int64], count: int | None = None
    ) -> NDArray[np.int64]:
        """The ``count`` rows (None: all) with the highest scores, best first; ties by node ID."""
        return rows[np.lexsort((self.place[rows], -np.round(scores[rows], _DIGITS)))][:count]

    def limited(self, ranking: Ranking, only: frozenset[NodeId], similarity: NDArray[np.float64]) -> Ranking:
        """A ranking of these memories alone: those that it has, then the others of them by similarity."""
        ids = self.snapshot.ids
        kept = np.array([ids[row] in only for row in ranking.rows.tolist()], dtype=bool)
        rows, scores = ranking.rows[kept], ranking.scores[kept]
        others = np.setdiff1d([row for row in self.memories.tolist() if ids[row] in only], rows).astype(np.int64)
        behind = np.full(len(others), min(0.0, float(scores.min(initial=0.0))))
        return replace(
            ranking,
            rows=np.concatenate([rows, self.best(similarity, others)]),
            scores=np.concatenate([scores, behind]),
        )

    def order(self, scores: NDArray[np.floating]) -> NDArray[np.int64]:
        """Position of each node in the order of ``best``, from 0, [nodes]."""
        places = np.empty(len(scores), dtype=np.int64)
        places[self.best(scores, np.arange(len(scores)))] = np.arange(len(scores))
        return places

    def rows(self, *types: str) -> NDArray[np.int64]:
        """Rows of the active nodes of some types."""
        return self.snapshot.active_rows(types)

    def edges(self, *labels: str) -> Pair:
        """Source and target rows of the edges of the given relations between active nodes."""
        graph, kept = self.snapshot, np.isin(self.snapshot.relations, labels)
        kept &= graph.active[graph.source] & graph.active[graph.target]
        return graph.source[kept], graph.target[kept]

    def memory_edges(self, *labels: str) -> Pair:
        """Like ``edges``, but only between two memories, so that a search along them never leaves the memories."""
        source, target = self.edges(*labels)
        kept = np.isin(source, self.memories) & np.isin(target, self.memories)
        return source[kept], target[kept]

    def links(self, source: NDArray[np.int64], target: NDArray[np.int64], weight: object = 1.0) -> csr_array:
        """Symmetric matrix [nodes, nodes] of links given in one direction; the heaviest of parallel links counts."""
        size = self.snapshot.num_nodes
        values = np.broadcast_to(np.asarray(weight, dtype=np.float64), source.shape)
        order = np.lexsort((-values, np.maximum(source, target), np.minimum(source, target)))
        low, high = np.minimum(source, target)[order], np.maximum(source, target)[order]
        first = np.ones(len(order), dtype=bool)
        first[1:] = (np.diff(low) != 0) | (np.diff(high) != 0)
        first &= low != high
        low, high, values = low[first], high[first], values[order][first]
        ends = np.concatenate([low, high]), np.concatenate([high, low])
        return csr_array((np.concatenate([values, values]), ends), shape=(size, size))

    def similar(
        self, rows: NDArray[np.int64], *, at_least: float, most: int | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Pairs of these rows with at least a given cosine: left rows, right rows and cosines.

        Args:
            rows: Rows to compare with each other.
            at_least: Smallest cosine of a pair.
            most: Number of pairs of each row, those of the greatest cosine, and of equal ones the first; None for all.
        """
        vectors = self.snapshot.embeddings[rows]
        blocks: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            cosine = (vectors[start : start + _ROWS_AT_ONCE] @ vectors.T).astype(np.float64)
            cosine[np.arange(len(cosine)), np.arange(start, start + len(cosine))] = -np.inf
            kept = cosine >= at_least
            if most is not None and most < len(rows):
                close = np.round(cosine, _DIGITS)
                kept &= close >= -np.partition(-close, most - 1, axis=1)[:, most - 1 : most]
                for row in np.flatnonzero(kept.sum(axis=1) > most):
                    alike = np.flatnonzero(kept[row])
                    order = np.lexsort((self.place[rows[alike]], -close[row, alike]))
                    kept[row, alike[order[most:]]] = False
            left, right = np.nonzero(kept)
            blocks.append((rows[start + left], rows[right], cosine[left, right]))
        empty = np.empty(0, dtype=np.int64)
        left_all, right_all, cosines = zip(*blocks, strict=True) if blocks else ([empty], [empty], [np.empty(0)])
        return np.concatenate(left_all), np.concatenate(right_all), np.concatenate(cosines)

    def within(self, window: tuple[int, int]) -> NDArray[np.bool_]:
        """Whether the time each node is about overlaps a window of seconds, [nodes]."""
        first, last = self.snapshot.times
        touches: NDArray[np.bool_] = (first != NO_TIME) & (first <= window[1]) & (last >= window[0])
        return touches


class WordedGraph(MemoryGraph):
    """The graph of a space with a BM25 index over its memories.

    Args:
        snapshot: The graph, with embeddings of length 1.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._words = bm25_index(terms(snapshot.descriptions[row]) for row in self.memories)

    def bm25(self, text: str) -> NDArray[np.float64]:
        """BM25 score of every memory for a text, and 0 for other nodes, [nodes]."""
        scores = np.zeros(self.snapshot.num_nodes)
        scores[self.memories] = self._words.scores(terms(text))
        return scores


GraphT = TypeVar("GraphT", bound=MemoryGraph)


class GraphRetriever(Retriever, Generic[GraphT]):
    """Base of strategies that load the graph of a space and keep the latest few graphs in memory.

    An evaluation, which asks one retriever many questions, thus reads a space once and not for every question. A recall
    constructs a new retriever, so it reads the space each time.

    Args:
        load: Reads the graph of a space, with embeddings.
        encoder: Text encoder that made these embeddings.
        name: Name of the strategy in results.
    """

    def __init__(self, load: SnapshotLoader, encoder: TextEncoder, *, name: str) -> None:
        self.name = name
        self.encoder = encoder
        self.graph_of = lru_cache(_SPACES_KEPT)(lambda space, as_of: self.prepare(load(space, as_of)))

    def limited_to(self, only: Callable[[str | None], frozenset[NodeId]]) -> Self:
        """See ``Retriever``: ranks as ever, leaves out all others, and adds by cosine what its pool of nodes lacks."""
        return self._changed(_only=only(None))

    @abstractmethod
    def prepare(self, snapshot: Snapshot) -> GraphT:
        """Compute once for a space what all questions share."""

    @abstractmethod
    def rank(self, graph: GraphT, asked: Asked, *, top_k: int) -> Ranking:
        """Rank the memories for a question, best first; at least ``top_k`` if there are so many."""

    @staticmethod
    def asked(graph: MemoryGraph, query: str, vector: NDArray[np.float32], as_of: datetime | None) -> Asked:
        """A question as strategies take it, with its embedding and the day from which it is asked."""
        return Asked(query, vector, graph.snapshot.last_day if as_of is None else as_of.date())

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The best memories; see ``Retriever``.

        Reading the space is not timed: an evaluation reads it once for all its questions, a recall each time.
        """
        graph = self.graph_of(space, as_of)
        if not len(graph.memories):  # nothing had been said by then
            return Result((), Timing())
        watch = Stopwatch()
        vector = self.encoder.encode([query])[0]
        watch.encoded()
        asked = self.asked(graph, query, vector, as_of)
        ranking = self.rank(graph, asked, top_k=top_k)
        if self._only is not None:
            ranking = graph.limited(ranking, self._only, graph.cosine(vector))
        timing = watch.timing()
        return Result(_hits(graph.snapshot, ranking, top_k), timing)


def _hits(snapshot: Snapshot, ranking: Ranking, top_k: int) -> tuple[Hit, ...]:
    """The first hits, enough for ``top_k`` hits and ``top_k`` turns."""
    hits: list[Hit] = []
    turns: set[TurnId] = set()
    for row, score in zip(ranking.rows.tolist(), ranking.scores.tolist(), strict=True):
        if len(hits) >= top_k and len(turns) >= top_k:
            break
        shown = {name: float(values[row]) for name, values in ranking.signals.items() if not np.isnan(values[row])}
        node: NodeId = snapshot.ids[row]
        hits.append(
            Hit(node, str(snapshot.types[row]), snapshot.descriptions[row], snapshot.turns_of[row], score, shown)
        )
        turns.update(snapshot.turns_of[row])
    return tuple(hits)


def max_normalised(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scores divided by the greatest; zeros where none is positive."""
    greatest = float(scores.max(initial=0.0))
    return scores.astype(np.float64) / greatest if greatest > 0 else np.zeros(len(scores))


def min_max(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Scores scaled to [0, 1]; zeros where all are equal."""
    if not len(scores):
        return np.zeros(0)
    low, high = float(scores.min()), float(scores.max())
    return (scores.astype(np.float64) - low) / (high - low) if high > low else np.zeros(len(scores))


def only(values: NDArray[np.floating], rows: NDArray[np.int64]) -> NDArray[np.float64]:
    """The values at some rows, and NaN at all others."""
    shown = np.full(len(values), np.nan)
    shown[rows] = values[rows]
    return shown

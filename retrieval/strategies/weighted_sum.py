"""Weighted sum of six signals over turns: the strongest baseline without training that we know of.

Each signal is scaled to [0, 1] over the turns of the space (min-max) before it is weighted. Unlike RRF, the
weighted sum keeps the margins between scores. The ranking is exact: every turn is scored, and no vector
index is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.language.tokens import terms
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import SpaceId
from locigraph.retrieval.index.bm25 import Bm25Index
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, TextEncoder
from locigraph.retrieval.stopwatch import Stopwatch

#: Cosine and BM25 score of the turn itself, of the turn with the two beside it (its window), and of the best of the
#: facts and events drawn from it.
SIGNALS = ("dense", "bm25", "dense_window", "bm25_window", "dense_facts", "bm25_facts")
#: Weights chosen on another corpus did better on one kind of graph and worse on the other (docs/experiments.md).
EQUAL_WEIGHTS: Mapping[str, float] = dict.fromkeys(SIGNALS, 1.0)
_SPACES_KEPT = 8


class TurnSignals:
    """The six signals of the turns of one space as of a time.

    Args:
        snapshot: Graph of the space at that time, with embeddings of length 1.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        alive = [row >= 0 and bool(snapshot.active[row]) for row in snapshot.episode_rows.tolist()]
        turns = np.flatnonzero(alive)
        self.rows = snapshot.episode_rows[turns]
        self._turns = snapshot.embeddings[self.rows]
        words = [terms(snapshot.descriptions[row]) for row in self.rows]
        sessions = [snapshot.session_ids[turn] for turn in turns]
        around = [
            [j for j in (i - 1, i, i + 1) if 0 <= j < len(turns) and sessions[j] == sessions[i]]
            for i in range(len(turns))
        ]
        self._windows = _unit(np.stack([self._turns[near].mean(0) for near in around])) if around else self._turns
        self._bm25 = _index(words)
        self._bm25_windows = _index([[word for j in near for word in words[j]] for near in around])
        facts = snapshot.active_rows(("knowledge_node", "event_node"))
        self._facts = snapshot.embeddings[facts]
        self._bm25_facts = _index([terms(snapshot.descriptions[row]) for row in facts])
        position = {int(turn): i for i, turn in enumerate(turns)}
        number = {int(row): i for i, row in enumerate(facts)}
        pairs = [(number[n], position[t]) for n, t in snapshot.provenance.tolist() if n in number and t in position]
        self._fact_of_pair = np.array([fact for fact, _ in pairs], dtype=np.int64)
        self._turn_of_pair = np.array([turn for _, turn in pairs], dtype=np.int64)

    def of(self, query: str, vector: NDArray[np.float32]) -> NDArray[np.float64]:
        """Values of all signals for a query, [6, turns]; each signal lies in [0, 1]."""
        asked = terms(query)
        return np.stack(
            [
                _min_max(self._turns @ vector),
                _min_max(_scores(self._bm25, asked, len(self.rows))),
                _min_max(self._windows @ vector),
                _min_max(_scores(self._bm25_windows, asked, len(self.rows))),
                _min_max(self._best_fact(self._facts @ vector)),
                _min_max(self._best_fact(_scores(self._bm25_facts, asked, len(self._facts)))),
            ]
        )

    def _best_fact(self, scores: NDArray[np.floating]) -> NDArray[np.float64]:
        best = np.full(len(self.rows), min(0.0, float(scores.min(initial=0.0))))
        np.maximum.at(best, self._turn_of_pair, scores[self._fact_of_pair])
        return best


class WeightedSumRetriever:
    """Turns by the weighted sum of six signals.

    Args:
        load: Reads the snapshot of a space as of a time (None: now), with embeddings.
        encoder: Text encoder that made these embeddings.
        weights: Weight of each of ``SIGNALS``; a signal that is not named has weight 0.
        name: Name of the strategy in results.
    """

    def __init__(
        self,
        load: Callable[[SpaceId, datetime | None], Snapshot],
        encoder: TextEncoder,
        *,
        weights: Mapping[str, float] = EQUAL_WEIGHTS,
        name: str = "sum",
    ) -> None:
        self.name = name
        self._encoder = encoder
        self._weights = np.array([weights.get(signal, 0.0) for signal in SIGNALS])
        self._signals = lru_cache(_SPACES_KEPT)(lambda space, as_of: TurnSignals(load(space, as_of)))

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The best turns; see ``Retriever``. Signals: ``SIGNALS``, each in [0, 1]."""
        held = self._signals(space, as_of)
        if not len(held.rows):  # nothing had been said by then
            return Result((), Stopwatch().timing())
        watch = Stopwatch()
        vector = self._encoder.encode([query])[0]
        watch.encoded()
        signals = held.of(query, vector)
        totals = self._weights @ signals
        best = np.argsort(-totals, kind="stable")[:top_k]
        snapshot = held.snapshot
        hits = tuple(
            Hit(
                snapshot.ids[row],
                "episode",
                snapshot.descriptions[row],
                snapshot.turns_of[row],
                float(totals[i]),
                dict(zip(SIGNALS, signals[:, i].tolist(), strict=True)),
            )
            for i, row in zip(best, held.rows[best].tolist(), strict=True)
        )
        return Result(hits, watch.timing())


def _index(documents: Sequence[Sequence[str]]) -> Bm25Index[int]:
    index: Bm25Index[int] = Bm25Index()
    for number, words in enumerate(documents):
        index.add(number, words)
    return index


def _scores(index: Bm25Index[int], asked: Sequence[str], size: int) -> NDArray[np.float64]:
    scores = np.zeros(size)
    for number, score in index.scores(asked).items():
        scores[number] = score
    return scores


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, 1e-9)
    return unit


def _min_max(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    values = scores.astype(np.float64)
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    return (values - low) / (high - low) if high > low else np.zeros_like(values)

"""Signals of how well a turn answers a question: the inputs of weighted sums, fixed or learnt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from locigraph.kg import products
from locigraph.kg.language.mentions import date_tokens, name_words, named_dates, named_people
from locigraph.kg.language.terms import terms
from locigraph.kg.schema import fact_types
from locigraph.kg.snapshot import Snapshot
from locigraph.retrieval.index.bm25 import Bm25Index, bm25_index
from locigraph.retrieval.strategies.memory_graph import min_max

#: Cosine and BM25 score of the turn itself, of the turn with the one on either side of it (its window), and of the best
#: of the facts and events extracted from it.
TEXT_SIGNALS = ("dense", "bm25", "dense_window", "bm25_window", "dense_facts", "bm25_facts")
#: Signals for what graph embeddings also see: both scores of the turn with two on either side, of the previous turn,
#: and of the best of its topics; the share of its speaker's name that the question names; and how many of the dates in
#: the question are those of the turn, or of its events.
GRAPH_SIGNALS = (
    *("dense_wide", "bm25_wide", "dense_before", "bm25_before", "dense_topics", "bm25_topics"),
    *("speaker", "date", "event_date"),
)
SIGNALS = TEXT_SIGNALS + GRAPH_SIGNALS
_TOPICS = ("concept",)
#: By suffix of a signal's name: numbers of turns before and after that are read together, or types of linked nodes.
_AROUND = {"": (0, 0), "window": (1, 1), "wide": (2, 2), "before": (1, -1)}
_LINKED = {"facts": fact_types(), "topics": _TOPICS}


@dataclass(frozen=True, eq=False)
class _Texts:
    """Texts that represent turns: text ``text_of_pair[i]`` represents turn ``turn_of_pair[i]``."""

    vectors: NDArray[np.float32]
    words: Bm25Index[int]
    text_of_pair: NDArray[np.int64]
    turn_of_pair: NDArray[np.int64]


class TurnSignals:
    """The signals of the turns of one space as of a time.

    Args:
        snapshot: Graph of the space at that time, with embeddings of length 1.
        signals: Names of the signals to compute, from ``SIGNALS``.
    """

    def __init__(self, snapshot: Snapshot, signals: Sequence[str] = SIGNALS) -> None:
        self.snapshot = snapshot
        self.signals = tuple(signals)
        alive = [row >= 0 and bool(snapshot.active[row]) for row in snapshot.episode_rows.tolist()]
        self._turns = np.flatnonzero(alive)
        self.rows = snapshot.episode_rows[self._turns]
        self._words = [terms(snapshot.descriptions[row]) for row in self.rows]
        self._place_of_turn = {int(turn): i for i, turn in enumerate(self._turns)}
        self._turn_of_row = {int(row): i for i, row in enumerate(self.rows)}
        wanted = {name.partition("_")[2] for name in signals if name.startswith(("dense", "bm25"))}
        self._texts = {kind: self._around(*_AROUND[kind]) for kind in _AROUND if kind in wanted}
        self._texts |= {kind: self._linked(_LINKED[kind]) for kind in _LINKED if kind in wanted}
        self._speakers = [set(name_words(snapshot.speakers[turn])) for turn in self._turns]
        self._dates = [self._date_of(row) for row in self.rows.tolist()]
        self._event_dates: list[set[str]] = [set() for _ in self.rows]
        for row, turn in self._nodes_of_turns(("event_node",)):
            self._event_dates[turn] |= self._date_of(row)

    def of(self, query: str, vector: NDArray[np.float32], *, asked_at: datetime | None = None) -> NDArray[np.float64]:
        """Values of the signals for a question, [signals, turns], each scaled to [0, 1] over the turns (min-max).

        Args:
            query: The question.
            vector: Its embedding, of length 1.
            asked_at: When it was asked, for resolving its relative dates; None ignores these.
        """
        words = terms(query)
        people, dates = set(named_people(query)), set(named_dates(query, asked_at))
        return np.stack([min_max(self._values(name, words, vector, people, dates)) for name in self.signals])

    def _values(
        self, signal: str, words: Sequence[str], vector: NDArray[np.float32], people: set[str], dates: set[str]
    ) -> NDArray[np.floating]:
        if signal == "speaker":
            return np.array([len(people & name) / max(1, len(name)) for name in self._speakers], dtype=np.float64)
        if signal == "date":
            return np.array([len(dates & own) for own in self._dates], dtype=np.float64)
        if signal == "event_date":
            return np.array([len(dates & theirs) for theirs in self._event_dates], dtype=np.float64)
        how, _, kind = signal.partition("_")
        texts = self._texts[kind]
        scores = products.with_rows(texts.vectors, vector) if how == "dense" else texts.words.scores(words)
        best = np.full(len(self.rows), min(0.0, float(scores.min(initial=0.0))))
        np.maximum.at(best, texts.turn_of_pair, scores[texts.text_of_pair])
        return best

    def _date_of(self, row: int) -> set[str]:
        return set(date_tokens(int(self.snapshot.valid_from[row]), int(self.snapshot.valid_to[row])))

    def _around(self, before: int, after: int) -> _Texts:
        """Each turn with up to so many turns of its session before and after it; ``after`` -1 leaves it out itself."""
        sessions: dict[str, list[int]] = {}  # turns of several sessions may alternate
        for i, turn in enumerate(self._turns):
            sessions.setdefault(self.snapshot.session_ids[turn], []).append(i)
        count = len(self._turns)
        near: list[list[int]] = [[]] * count
        for session in sessions.values():
            for place, i in enumerate(session):
                near[i] = session[max(0, place - before) : place + after + 1]
        vectors = self.snapshot.embeddings[self.rows]
        means = [vectors[window].mean(0) if window else np.zeros_like(vectors[0]) for window in near]
        documents = [[word for j in window for word in self._words[j]] for window in near]
        own = np.arange(count)
        return _Texts(_unit(np.stack(means)) if means else vectors, bm25_index(documents), own, own)

    def _linked(self, types: tuple[str, ...]) -> _Texts:
        """Nodes of some types, each paired with the turns that it was extracted from."""
        rows = self.snapshot.active_rows(types)
        number = {int(row): i for i, row in enumerate(rows)}
        pairs = [(number[row], turn) for row, turn in self._nodes_of_turns(types)]
        return _Texts(
            self.snapshot.embeddings[rows],
            bm25_index([terms(self.snapshot.descriptions[row]) for row in rows]),
            np.array([text for text, _ in pairs], dtype=np.int64),
            np.array([turn for _, turn in pairs], dtype=np.int64),
        )

    def _nodes_of_turns(self, types: tuple[str, ...]) -> list[tuple[int, int]]:
        """(node row, turn) of the active nodes of some types."""
        rows = set(self.snapshot.active_rows(types).tolist())
        sources = self.snapshot.provenance.tolist()
        if types == _TOPICS:  # edges join each turn to its topics; provenance says only where a topic was first named
            families = self.snapshot.families == "HAS_CONCEPT"
            ends = zip(self.snapshot.source[families].tolist(), self.snapshot.target[families].tolist(), strict=True)
            return [
                (topic, self._turn_of_row[row]) for row, topic in ends if row in self._turn_of_row and topic in rows
            ]
        return [
            (row, self._place_of_turn[turn]) for row, turn in sources if row in rows and turn in self._place_of_turn
        ]


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = vectors / np.maximum(lengths, 1e-9)
    return unit

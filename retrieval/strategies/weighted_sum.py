"""Weighted sum of signals over turns; with six equal weights, the strongest baseline without training that we know.

Each signal is scaled to [0, 1] over the turns of the space (min-max) before it is weighted. Unlike RRF, the
weighted sum keeps the margins between scores. The ranking is exact: every turn is scored, and no vector
index is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import EPISODE
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.asking_time import asking_time
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, SnapshotLoader, Timing
from locigraph.retrieval.query_generator import LastDay
from locigraph.retrieval.stopwatch import Stopwatch
from locigraph.retrieval.strategies.turn_signals import TEXT_SIGNALS, TurnSignals

_SPACES_KEPT = 8


class Fusion(Protocol):
    """Combines several signals into one score."""

    @property
    def signals(self) -> Sequence[str]:
        """Names of the signals that it takes, from ``SIGNALS``, in the order of its input."""
        ...

    def scores(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores of turns, [turns], from the values of their signals, [signals, turns]."""
        ...


@dataclass(frozen=True)
class WeightedSum:
    """Weighted sum of signals.

    Attributes:
        weights: Weight by name of the signal; signals that are not named are not computed.
    """

    weights: Mapping[str, float]

    @property
    def signals(self) -> Sequence[str]:
        """Names of the signals that have a weight."""
        return tuple(self.weights)

    def scores(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See ``Fusion``."""
        total: NDArray[np.float64] = np.array(list(self.weights.values())) @ values
        return total


#: Equal, since weights chosen on another corpus did better on one kind of graph and worse on the other
#: (docs/experiments/history.md, 2026-11-22).
EQUAL_WEIGHTS = WeightedSum(dict.fromkeys(TEXT_SIGNALS, 1.0))


class FusionRetriever(Retriever):
    """Ranks turns by one score that combines several signals.

    Args:
        load, encoder, name: See ``GraphRetriever``.
        fusion: Combines the signals into the score.
    """

    def __init__(
        self,
        load: SnapshotLoader,
        encoder: TextEncoder,
        *,
        fusion: Fusion = EQUAL_WEIGHTS,
        name: str = "sum",
    ) -> None:
        self.name = name
        self._encoder = encoder
        self._fusion = fusion
        self._signals = lru_cache(_SPACES_KEPT)(lambda space, as_of: TurnSignals(load(space, as_of), fusion.signals))

    def asked_from(self, day_of: LastDay) -> Self:
        """See ``Retriever``; without it relative dates are ignored."""
        return self._changed(_day_of=day_of)

    def limited_to(self, only: Callable[[str | None], frozenset[NodeId]]) -> Self:
        """See ``Retriever``: all turns are scored, and these alone ranked."""
        return self._changed(_only=only(EPISODE))

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """The best turns; see ``Retriever``. Signals: those of the fusion, each in [0, 1]."""
        turns = self._signals(space, as_of)
        if not len(turns.rows):  # nothing had been said by then
            return Result((), Timing())
        watch = Stopwatch()
        vector = self._encoder.encode([query])[0]
        watch.encoded()
        asked_at = asking_time(query, space, as_of=as_of, day_of=self._day_of)
        signals = turns.of(query, vector, asked_at=asked_at)
        totals, snapshot = self._fusion.scores(signals), turns.snapshot
        best = np.argsort(-totals, kind="stable")
        if self._only is not None:
            best = np.array([i for i in best.tolist() if snapshot.ids[turns.rows[i]] in self._only], dtype=np.int64)
        best = best[:top_k]
        hits = tuple(
            Hit(
                snapshot.ids[row],
                EPISODE,
                snapshot.descriptions[row],
                snapshot.turns_of[row],
                float(totals[i]),
                dict(zip(turns.signals, signals[:, i].tolist(), strict=True)),
            )
            for i, row in zip(best, turns.rows[best].tolist(), strict=True)
        )
        return Result(hits, watch.timing())

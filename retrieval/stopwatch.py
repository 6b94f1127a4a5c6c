"""Measures encoding time and search time, which every strategy reports."""

from __future__ import annotations

import time

from locigraph.retrieval.protocols import Timing


class Stopwatch:
    """Starts on construction; ``encoded`` marks the end of encoding, ``timing`` that of searching."""

    def __init__(self) -> None:
        self._started = self._encoded = time.perf_counter()

    def encoded(self) -> None:
        """Note that the query has been encoded. A strategy without an encoder never calls this."""
        self._encoded = time.perf_counter()

    def timing(self) -> Timing:
        """Both times up to now."""
        return Timing(1e3 * (self._encoded - self._started), 1e3 * (time.perf_counter() - self._encoded))

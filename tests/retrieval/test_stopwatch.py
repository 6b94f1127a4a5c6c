from __future__ import annotations

from locigraph.retrieval.stopwatch import Stopwatch


def test_encoding_and_searching_are_timed_apart_and_go_on_until_asked() -> None:
    watch = Stopwatch()
    assert watch.timing().encode_ms == 0
    watch.encoded()
    first, second = watch.timing(), watch.timing()
    assert first.encode_ms == second.encode_ms > 0
    assert second.search_ms > first.search_ms >= 0

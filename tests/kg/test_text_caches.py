from __future__ import annotations

from locigraph.kg import text_caches
from locigraph.kg.text_caches import cached, forget_texts


def test_the_last_results_are_kept_but_of_no_long_text_and_none_once_texts_are_forgotten() -> None:
    read: list[str] = []

    @cached(2)
    def length(text: str, more: int = 0) -> int:
        read.append(text)
        return len(text) + more

    long = "a" * 5_001
    for text in ("a", "a", long, long, "b", "a"):
        assert length(text) == len(text)
    assert length("a", 2) == 3
    assert read == ["a", long, long, "b", "a"]
    forget_texts()
    assert length("a", 2) == 3
    assert read[5:] == ["a"]
    assert text_caches._CACHES.pop().cache_info().currsize == 1

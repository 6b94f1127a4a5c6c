from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.byte_cache import ByteCache


@given(st.integers(0, 30), st.lists(st.tuples(st.integers(1, 6), st.booleans())))
def test_the_cache_holds_what_was_used_last_within_its_bytes(most: int, used: list[tuple[int, bool]]) -> None:
    cache: ByteCache[int, bytearray] = ByteCache(most, len)
    order: list[int] = []  # the model: keys that are kept, the one used last at the end
    for key, is_dropped in used:
        if is_dropped:
            cache.drop(key)
            order = [each for each in order if each != key]
            continue
        fresh = bytearray(3 * key)
        assert (cache.get(key, [fresh].pop) is fresh) == (key not in order)
        order = [each for each in order if each != key] + [key] * (3 * key <= most)
        while sum(3 * each for each in order) > most:
            order.pop(0)
        assert cache.held == sum(3 * each for each in order)

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg import products


@given(st.integers(0, 70), st.integers(1, 9), st.integers(1, 99), st.integers(0, 2**32 - 1))
def test_products_in_parts_are_those_of_numpy(count: int, dim: int, most: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, dim)).astype(np.float32)
    vector = np.where(rng.random(dim) < 0.5, 0, rng.normal(size=dim)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_NUMBERS", most)
        found = products.with_rows(rows, vector), products.with_columns(rows.T.copy(), vector, block=4)
    for each in found:
        assert each.dtype == np.float32
        np.testing.assert_allclose(each, rows @ vector, atol=1e-5)


def test_equal_columns_have_equal_products_wherever_they_stand() -> None:
    rng = np.random.default_rng(0)
    columns = np.repeat(rng.normal(size=(384, 1)).astype(np.float32), 16 * 300, axis=1)
    found = products.with_columns(columns, rng.normal(size=384).astype(np.float32), block=16)
    assert len({*found.tolist()}) == 1

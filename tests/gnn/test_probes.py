from __future__ import annotations

import math

import pytest
import torch

from locigraph.gnn.probes import spread, uniformity


def test_collapsed_embeddings_have_no_spread_and_uniformity_0() -> None:
    same = torch.ones(10, 6)
    assert spread(same).item() == pytest.approx(0, abs=1e-6)
    assert uniformity(same).item() == pytest.approx(0, abs=1e-6)


def test_embeddings_over_the_sphere_have_spread_1() -> None:
    rows = torch.randn(4000, 32, generator=torch.Generator().manual_seed(0))
    assert spread(rows).item() == pytest.approx(1, abs=0.02)
    assert uniformity(rows).item() < -3.5


def test_uniformity_of_opposite_rows_is_worked_by_hand() -> None:
    # One pair at distance 2: ln exp(-2 * 4).
    assert uniformity(torch.tensor([[1.0, 0.0], [-3.0, 0.0]])).item() == pytest.approx(-8)


def test_uniformity_looks_at_evenly_spaced_rows_when_there_are_many() -> None:
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).repeat(3, 1)
    assert uniformity(rows, at_most=3).item() == pytest.approx(0)  # every other row
    assert uniformity(rows).item() == pytest.approx(math.log((6 + 9 * math.exp(-4)) / 15))


def test_uniformity_is_measured_in_half_precision_too() -> None:
    rows = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    assert float(uniformity(rows.bfloat16())) == pytest.approx(float(uniformity(rows)), abs=0.05)

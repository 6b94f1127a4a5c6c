from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from locigraph.research.published.activation import spread_activation


def links(*triples: tuple[int, int, float], size: int = 5) -> csr_array:
    dense = np.zeros((size, size))
    for source, target, weight in triples:
        dense[source, target] = weight
    return csr_array(dense)


TIES = np.arange(5)


def test_activation_falls_by_weight_and_decay_at_each_link() -> None:
    chain = links((0, 1, 1.0), (1, 2, 0.5), (2, 3, 1.0))
    found = spread_activation(chain, {0: 0.9}, decay=0.8, threshold=0.1, budget=9, ties=TIES)
    # .9, .9 * .8 = .72, .72 * .5 * .8 = .288, .288 * .8 = .2304
    assert list(found) == [0, 1, 2, 3]
    assert list(found.values()) == pytest.approx([0.9, 0.72, 0.288, 0.2304])


def test_the_greatest_activation_that_reaches_a_node_counts() -> None:
    two_ways = links((0, 2, 0.2), (0, 1, 1.0), (1, 2, 1.0))
    found = spread_activation(two_ways, {0: 1.0}, decay=0.8, threshold=0.1, budget=9, ties=TIES)
    assert found[2] == pytest.approx(0.64)  # by way of 1, not 1 * .2 * .8 = .16


def test_weak_activation_is_not_passed_on_and_the_budget_counts_seeds() -> None:
    chain = links((0, 1, 0.1), (0, 2, 1.0), (2, 3, 1.0))
    assert list(spread_activation(chain, {0: 1.0}, decay=0.8, threshold=0.1, budget=9, ties=TIES)) == [0, 2, 3]
    assert list(spread_activation(chain, {0: 1.0}, decay=0.8, threshold=0.1, budget=2, ties=TIES)) == [0, 2]


def test_equal_activation_is_decided_by_ties() -> None:
    fan = links((0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0))
    ties = np.array([0, 3, 1, 2, 4])
    assert list(spread_activation(fan, {0: 1.0}, decay=0.5, threshold=0.1, budget=9, ties=ties)) == [0, 2, 3, 1]


def test_a_node_has_its_own_activation_as_soon_as_it_is_reached_or_cannot_be_reached() -> None:
    fan = links((0, 1, 0.5), (0, 2, 0.5), (0, 3, 0.5))
    own = np.array([0.0, 0.9, 0.0, -1.0, 0.9])
    found = spread_activation(fan, {0: 1.0}, decay=0.7, threshold=0.2, budget=9, ties=TIES, least=own)
    assert found == pytest.approx({0: 1.0, 1: 0.9, 2: 0.35})

from __future__ import annotations

import networkx
import numpy as np
import pytest
from numpy.typing import NDArray
from sknetwork.ranking import PageRank

from locigraph.research.published.page_rank import personalized_page_rank, transition_matrix


def edges(*triples: tuple[int, int, float]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    source, target, weight = zip(*triples, strict=True)
    return np.array(source), np.array(target), np.array(weight)


def random_graph(seed: int, size: int = 30) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weighted adjacency with a few sinks, and a teleport vector with zeros."""
    rng = np.random.default_rng(seed)
    adjacency = np.where(rng.random((size, size)) < 0.15, rng.random((size, size)), 0.0)
    adjacency[rng.choice(size, 4, replace=False)] = 0.0
    return adjacency, np.where(rng.random(size) < 0.4, rng.random(size), 0.0) + np.eye(size)[0]


def ours(adjacency: NDArray[np.float64], teleport: NDArray[np.float64], damping: float) -> NDArray[np.float64]:
    source, target = np.nonzero(adjacency)
    transition = transition_matrix(source, target, adjacency[source, target], size=len(adjacency))
    return personalized_page_rank(transition, teleport, damping=damping, tolerance=1e-13, max_steps=5000)


def test_two_nodes_match_hand_worked_ranks() -> None:
    # a <-> b, all restarts at a, damping .6: r_a = .4 + .6 r_b, r_b = .6 r_a, so r_a = .4 / .64 = .625.
    transition = transition_matrix(*edges((0, 1, 0.8), (1, 0, 0.3)), size=2)
    rank = personalized_page_rank(transition, np.array([2.0, 0.0]), damping=0.6, tolerance=1e-12)
    assert rank.tolist() == pytest.approx([0.625, 0.375])


def test_the_mass_of_a_sink_returns_to_the_teleport_vector() -> None:
    # a -> b, b is a sink: r_b = .6 r_a, and r_a = .4 + .6 r_b, as if b led back to a.
    rank = personalized_page_rank(
        transition_matrix(*edges((0, 1, 1.0)), size=2), np.array([1.0, 0.0]), damping=0.6, tolerance=1e-12
    )
    assert rank.tolist() == pytest.approx([0.625, 0.375])


def test_a_hub_passes_on_the_share_that_its_degree_leaves() -> None:
    star = edges((0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0), (0, 4, 1.0), (1, 0, 5.0))
    rows = transition_matrix(*star, size=5, hub_degree=2).toarray()
    assert rows[0].tolist() == pytest.approx([0, 1 / 8, 1 / 8, 1 / 8, 1 / 8])  # 1/4 each, times 2/4
    assert rows[1].tolist() == pytest.approx([1, 0, 0, 0, 0])
    ranks = personalized_page_rank(transition_matrix(*star, size=5, hub_degree=2), np.ones(5), damping=0.85)
    assert ranks.sum() == pytest.approx(1)


def test_parallel_edges_add_up() -> None:
    rows = transition_matrix(*edges((0, 1, 1.0), (0, 1, 2.0), (0, 2, 1.0)), size=3).toarray()
    assert rows[0].tolist() == pytest.approx([0, 0.75, 0.25])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("damping", [0.5, 0.85])
def test_ranks_agree_with_networkx_on_random_graphs(seed: int, damping: float) -> None:
    adjacency, teleport = random_graph(seed)
    graph = networkx.from_numpy_array(adjacency, create_using=networkx.DiGraph)
    given = dict(enumerate(teleport.tolist()))
    expected = networkx.pagerank(graph, alpha=damping, personalization=given, tol=1e-14, max_iter=5000)
    assert ours(adjacency, teleport, damping).tolist() == pytest.approx([expected[i] for i in range(30)], abs=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_ranks_agree_with_scikit_network_on_random_graphs(seed: int) -> None:
    adjacency, teleport = random_graph(seed)
    referee = PageRank(damping_factor=0.6, solver="RH", n_iter=500, tol=1e-14)
    # Its other solvers lose the mass of sinks.
    expected = referee.fit_predict(adjacency, weights=teleport)
    assert ours(adjacency, teleport, 0.6).tolist() == pytest.approx(expected.tolist(), abs=1e-8)


def test_what_cannot_start_a_walk_is_refused() -> None:
    transition = transition_matrix(*edges((0, 1, 1.0)), size=2)
    with pytest.raises(ValueError, match="teleport must be at least 0"):
        personalized_page_rank(transition, np.zeros(2), damping=0.5)
    with pytest.raises(ValueError, match="damping must lie"):
        personalized_page_rank(transition, np.ones(2), damping=1.0)

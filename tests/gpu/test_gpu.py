"""The network computes on a GPU what it computes on the CPU; ``make gpu`` runs these where there is one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.gpu import RandomVectors
from benchmarks.synthetic import synthetic_space
from locigraph.training.checkpoint import Checkpoint, new_network
from locigraph.training.config import ModelConfig, TrainingConfig
from locigraph.training.examples import SpaceExample, read_space
from locigraph.training.graph_training import GraphTraining
from locigraph.training.inference import encode_graph
from locigraph.training.snapshots import TrainingGraph

_DIM = 384


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    return str(request.param)


def example() -> SpaceExample:
    snapshot, questions = synthetic_space(1, turns=60, dim=_DIM)
    graph = TrainingGraph("synthetic", lambda: snapshot, tuple(questions), is_training=True)
    return read_space(graph, model=ModelConfig(), encoder=RandomVectors(), writer=None).whole()


def training() -> GraphTraining:
    torch.manual_seed(0)
    return GraphTraining(new_network(ModelConfig(), _DIM), TrainingConfig(), None, seed=0)


def step(module: GraphTraining, batch: SpaceExample) -> Tensor:
    """One forward and backward pass, without Lightning, whose log is left out."""
    module.log = lambda *arguments, **options: None  # type: ignore[method-assign]
    loss = module.training_step(batch, 0)
    loss.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
    return loss.detach()


def test_a_step_has_the_loss_and_the_gradients_of_the_cpu(device: str) -> None:
    found, expected = training().to(device), training()
    losses = step(found, example().to(device)), step(expected, example())
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-4)
    for (name, one), (_, other) in zip(found.named_parameters(), expected.named_parameters(), strict=True):
        if other.grad is not None:
            assert one.grad is not None, name
            torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_the_vectors_are_those_of_the_cpu(device: str) -> None:
    torch.manual_seed(0)
    checkpoint = Checkpoint(new_network(ModelConfig(), _DIM).weights(), ModelConfig(), "random", _DIM, {})
    snapshot, _ = synthetic_space(2, turns=80, dim=_DIM)
    rows, vectors = encode_graph(checkpoint, snapshot, device=device)
    same, expected = encode_graph(checkpoint, snapshot)
    np.testing.assert_array_equal(rows, same)
    np.testing.assert_allclose(vectors, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
def test_no_step_waits_for_the_device() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    module, batch = training().to("cuda"), example().to("cuda")
    step(module, batch)  # compiles kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(module, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")

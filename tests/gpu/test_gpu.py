"""The network computes on a GPU what it computes on the CPU; ``make gpu`` runs these where there is one."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.gpu import RandomVectors
from benchmarks.synthetic import synthetic_space
from locigraph.gnn.encoders import GRAPH_ENCODERS
from locigraph.kg.snapshot import Snapshot
from locigraph.training.checkpoint import Checkpoint, new_network
from locigraph.training.config import ModelConfig, TrainingConfig
from locigraph.training.examples import SpaceExample, read_space
from locigraph.training.graph_training import GraphTraining
from locigraph.training.inference import encode_graph
from locigraph.training.objectives import LOSSES
from locigraph.training.pseudo_questions import RULES
from locigraph.training.snapshots import TrainingGraph

_DIM = 384


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU here")
    return str(request.param)


def example() -> SpaceExample:
    snapshot, questions = synthetic_space(1, turns=60, dim=_DIM)
    facts = [f"Ann keeps {text} at home" if kind == "knowledge_node" else text for kind, text in texts_of(snapshot)]
    snapshot = replace(snapshot, descriptions=tuple(facts))  # facts of which the rules make questions
    graph = TrainingGraph("synthetic", lambda: snapshot, tuple(questions), is_training=True)
    return read_space(graph, model=ModelConfig(), encoder=RandomVectors(), writer=RULES).whole()


def texts_of(snapshot: Snapshot) -> zip[tuple[str, str]]:
    return zip(snapshot.types.tolist(), snapshot.descriptions, strict=True)


def training(encoder: str = "hgt", losses: dict[str, float] | None = None) -> GraphTraining:
    torch.manual_seed(0)
    return GraphTraining(new_network(ModelConfig(encoder=encoder), _DIM), TrainingConfig(), losses, seed=0)


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


class _OneDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not annotate it
    """Refuses what a GPU refuses and the device ``meta`` does not: an operation on tensors of two devices."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor) and each.ndim]
        devices = {each.device.type for each in given}
        assert len(devices) < 2 or "copy" in func.__name__, f"{func} is given tensors of the devices {sorted(devices)}"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("losses", [None, *({name: 1.0} for name in LOSSES)])
@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_no_step_reads_a_value_from_the_device(
    encoder: str, losses: dict[str, float] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors of the device ``meta`` have no values: whatever waits for one, such as a mask as an index, raises."""
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # it does not know this device
    module, batch = training(encoder, losses).to("meta"), example().to("meta")
    with _OneDevice():  # type: ignore[no-untyped-call]  # torch does not annotate it
        loss = step(module, batch)
    assert loss.device.type == "meta"
    assert any(parameter.grad is not None for parameter in module.network.nodes.parameters())


@pytest.mark.gpu
@pytest.mark.parametrize("losses", [None, *({name: 1.0} for name in LOSSES)])
def test_no_step_waits_for_the_device(losses: dict[str, float] | None) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no GPU here")
    module, batch = training("hgt", losses).to("cuda"), example().to("cuda")
    step(module, batch)  # compiles kernels
    try:
        with warnings.catch_warnings(action="ignore"):  # that it does not see every wait
            torch.cuda.set_sync_debug_mode("error")
        step(module, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import lightning as L  # noqa: N812
import pytest
import torch

from locigraph.training.callbacks import AverageAndStop
from locigraph.training.config import StageConfig
from locigraph.training.examples import EpochDataModule, SpaceExample, make_example
from locigraph.training.module import GraphRetrieval, RetrievalModule, inner_products
from locigraph.training.pseudo_queries import KINDS
from tests.fakes import FakeEncoder
from tests.fakes_graph import CONTEXT, SKETCH, SMALL_MODEL, TEXT_DIM, planted_space, small_settings


def example() -> SpaceExample:
    snapshot, questions = planted_space(1)
    embed = FakeEncoder(TEXT_DIM).encode
    return make_example(snapshot, questions, sketch=SKETCH, context=CONTEXT, embed=embed, pseudo=KINDS)


def module_of(**losses: float) -> RetrievalModule:
    torch.manual_seed(7)
    model = replace(SMALL_MODEL, dropout=0.0)
    optimiser = replace(small_settings().optimiser, query_noise=0.0)
    return RetrievalModule(
        GraphRetrieval(model, text_dim=TEXT_DIM), replace(StageConfig(epochs=1), **cast(Any, losses)), optimiser, seed=0
    )


def step_of(monkeypatch: pytest.MonkeyPatch, **losses: float) -> tuple[float, dict[str, float], RetrievalModule]:
    """A step's loss, its logged parts, and the module with gradients."""
    module = module_of(**losses)
    logged: dict[str, float] = {}
    monkeypatch.setattr(module, "log", lambda name, value, **_: logged.setdefault(name, value.item()))
    module.on_train_epoch_start()
    loss = module.training_step(example(), 0)
    loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
    return loss.item(), logged, module


@pytest.mark.parametrize("name", ["link", "views", "fact_questions", "facts"])
def test_a_loss_adds_its_weighted_part_to_the_step_and_moves_the_states(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, once, _ = step_of(monkeypatch, **{name: 1.0})
    loss, both, module = step_of(monkeypatch, ranking=1.0, **{name: 0.25})
    assert once[f"train/{name}"] > 0
    # Ranking draws nothing, so the part is the same, weighed.
    assert both[f"train/{name}"] == pytest.approx(0.25 * once[f"train/{name}"], rel=1e-4)
    assert loss == pytest.approx(both["train/ranking"] + both[f"train/{name}"], rel=1e-5)
    alone = step_of(monkeypatch, **{name: 1.0})[2]
    assert any(p.grad is not None and bool(p.grad.any()) for p in alone.network.parameters())
    assert set(both) == {"train/ranking", f"train/{name}"}
    assert module.log_scale.grad is not None


def test_each_kind_of_parameter_has_its_own_rate_which_rises_over_the_warm_up() -> None:
    module = module_of(ranking=1.0)
    module.optimiser = replace(
        module.optimiser, lr=1.0, scalar_lr=2.0, edge_lr=3.0, term_lr=4.0, weight_decay=0.5, warmup_steps=4
    )
    made = module.configure_optimizers()
    optimiser, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
    group_of = {id(p): group for group in optimiser.param_groups for p in group["params"]}
    nodes, queries = module.network.nodes, module.network.queries
    wanted = {
        queries.up.weight: 1.0, nodes.text_weight: 2.0, module.log_scale: 2.0, nodes.edge_weight: 3.0,
        queries.term_weight: 4.0,
    }  # fmt: skip
    for parameter, rate in wanted.items():
        assert group_of[id(parameter)]["initial_lr"] == rate
    assert group_of[id(queries.up.weight)]["weight_decay"] == 0.5
    assert group_of[id(queries.term_weight)]["weight_decay"] == group_of[id(nodes.text_weight)]["weight_decay"] == 0.0
    assert len(group_of) == len(list(module.parameters()))
    rates = []
    for _ in range(5):
        rates.append(group_of[id(queries.up.weight)]["lr"])
        optimiser.step()
        schedule.step()
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


class OneNumber(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.number = torch.nn.Parameter(torch.tensor(0.0))


def test_the_running_average_is_what_is_validated_and_kept() -> None:
    module, callback = OneNumber(), AverageAndStop(average=0.5, patience=9)
    metrics: dict[str, Any] = {"val/score": torch.tensor(1.0)}
    trainer: Any = SimpleNamespace(sanity_checking=False, callback_metrics=metrics, current_epoch=0, should_stop=False)
    for value in (0.0, 8.0):
        with torch.no_grad():
            module.number.fill_(value)
        callback.on_train_batch_end(trainer, module, None, None, 0)
    # The second of the first steps counts 1 - 2 / (2 + 5).
    average = 8 * (1 - 2 / 7)
    callback.on_validation_start(trainer, module)
    assert module.number.item() == pytest.approx(average)
    callback.on_validation_end(trainer, module)
    assert module.number.item() == 8.0
    metrics["val/score"] = torch.tensor(0.5)  # a worse epoch is not kept
    callback.on_train_batch_end(trainer, module, None, None, 0)
    callback.on_validation_start(trainer, module)
    callback.on_validation_end(trainer, module)
    callback.finish(module)
    assert module.number.item() == pytest.approx(average)


def test_scores_are_exact_under_half_precision() -> None:
    torch.manual_seed(0)
    queries, stored = torch.randn(3, 64), torch.randn(50, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = queries @ stored.T
        found = inner_products(queries, stored)
    assert found.dtype == torch.float32
    assert torch.equal(found, queries @ stored.T)
    assert not torch.equal(found, rounded.float())


def test_processes_share_out_the_training_spaces_and_each_validates_on_all() -> None:
    train = [replace(example(), name=f"t{i}") for i in range(5)]
    held = [replace(example(), name=f"v{i}") for i in range(3)]
    dealt = []
    for rank in range(2):
        data = EpochDataModule(train, held, seed=3)
        progress = SimpleNamespace(epoch_progress=SimpleNamespace(current=SimpleNamespace(processed=0)))
        data.trainer = SimpleNamespace(global_rank=rank, world_size=2, fit_loop=progress)  # type: ignore[assignment]
        loader = data.train_dataloader()
        dealt.append([each.name for each in loader])
        assert len(dealt[-1]) == len(loader) == 3  # the processes take as many steps
        checked: Any = data.val_dataloader()
        assert [each.name for each in checked] == ["v0", "v1", "v2"]
    assert {*dealt[0], *dealt[1]} == {f"t{i}" for i in range(5)}

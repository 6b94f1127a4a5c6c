from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from locigraph.gnn.losses import link_loss, multi_positive_loss, nt_xent


def unit(rows: int, dim: int = 4, seed: int = 0) -> Tensor:
    return F.normalize(
        torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=1
    )


def test_nt_xent_of_identical_embeddings_is_log_of_all_others() -> None:
    same = F.normalize(torch.ones(5, 4), dim=-1)
    assert nt_xent(same, same).item() == pytest.approx(math.log(9))  # 2N - 1, the positive among them


@settings(max_examples=25)
@given(st.integers(2, 6), st.integers(0, 1000))
def test_nt_xent_equals_a_slow_loop(items: int, seed: int) -> None:
    first, second = unit(items, seed=seed), unit(items, seed=seed + 1)
    both = torch.cat([first, second])
    total = 0.0
    for i in range(2 * items):
        scores = [math.exp(float(both[i] @ both[j]) / 0.2) for j in range(2 * items)]
        total -= math.log(scores[(i + items) % (2 * items)] / (sum(scores) - scores[i]))
    # In float32: the rounding of a large loss is relative, and near 0 what is left is that of the sums.
    found = nt_xent(first, second).item()
    assert found == pytest.approx(total / (2 * items), rel=1e-6, abs=1e-6)


def test_multi_positive_loss_matches_hand_worked_numbers() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    positive = torch.tensor([[True, True, False], [False, False, True]])
    # Question 1: each positive against the one negative (logit 0), not against the other positive.
    first = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(-1))) / 2
    second = math.log(1 + 2 * math.exp(-3))
    assert multi_positive_loss(logits, positive).item() == pytest.approx((first + second) / 2)


@settings(max_examples=60)
@given(st.data())
def test_multi_positive_loss_equals_a_slow_loop(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    kinds = data.draw(
        st.lists(
            st.lists(st.sampled_from("+-?"), min_size=columns, max_size=columns).filter(lambda row: "+" in row),
            min_size=rows,
            max_size=rows,
        )
    )
    logits = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows), dtype=torch.float64)
    expected = 0.0
    for row, kind in zip(logits.tolist(), kinds, strict=True):
        negative = sum(math.exp(x) for x, k in zip(row, kind, strict=True) if k == "-")
        losses = [-math.log(math.exp(x) / (math.exp(x) + negative)) for x, k in zip(row, kind, strict=True) if k == "+"]
        expected += sum(losses) / len(losses) / rows
    masks = [torch.tensor([[k == sign for k in row] for row in kinds]) for sign in "+?"]
    found = multi_positive_loss(logits, masks[0], ignore=masks[1])
    assert found.item() == pytest.approx(expected, abs=1e-9)


def test_a_question_whose_candidates_are_all_right_has_nothing_to_learn() -> None:
    logits = torch.tensor([[1.0, -4.0]], requires_grad=True)
    loss = multi_positive_loss(logits, torch.tensor([[True, True]]))
    loss.backward()  # type: ignore[no-untyped-call]  # torch does not type it
    assert loss.item() == 0
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_link_loss_of_scores_that_say_nothing_is_log_2() -> None:
    assert link_loss(torch.zeros(3), torch.zeros(5)).item() == pytest.approx(math.log(2))


def test_link_loss_weighs_both_sides_alike() -> None:
    expected = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(2))) / 2
    assert link_loss(torch.ones(1), torch.full((4,), 2.0)).item() == pytest.approx(expected)


def test_malformed_input_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one positive"):
        multi_positive_loss(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"shape \[1, 2\]"):
        multi_positive_loss(torch.zeros(1, 2), torch.zeros(1, 3, dtype=torch.bool))

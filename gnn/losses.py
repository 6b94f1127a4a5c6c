"""Formulas of the training losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor

from locigraph.gnn.errors import GraphError
from locigraph.kg.counts import counted


def multi_positive_loss(logits: Tensor, positive: Tensor, *, ignore: Tensor | None = None) -> Tensor:
    """Softmax loss of each positive against the negatives of its row; the row's other positives do not compete.

    Args:
        logits: Scores, [questions, candidates].
        positive: True where the candidate answers the question, bool [questions, candidates]; at least one per row.
        ignore: True where a candidate is not to be used as a negative either, such as a likely false negative; None
            ignores no candidate.

    Returns:
        Mean over positives within a question, then over questions, in nats; shape [].

    Raises:
        ValueError: If shapes differ, or a row has no positive.
    """
    if logits.shape != positive.shape:
        raise ValueError(
            f"logits have shape {list(logits.shape)} but positive has {list(positive.shape)}; expected the same shape"
        )
    counts = positive.sum(1)
    if logits.shape[0] == 0 or bool((counts == 0).any()):
        raise ValueError("every question needs at least one positive candidate")
    hidden = positive if ignore is None else positive | ignore
    negative = logits.masked_fill(hidden, float("-inf")).logsumexp(1, keepdim=True)
    # softplus(-inf - x) is 0, so a question without negatives adds nothing to the loss.
    losses = F.softplus(negative - logits) * positive
    return (losses.sum(1) / counts).mean()


def nt_xent(first: Tensor, second: Tensor, *, temperature: float = 0.2) -> Tensor:
    """NT-Xent: each item's two views are each other's positive among 2N - 2 negatives.

    Args:
        first: L2-normalised embeddings of one view, shape [items, dim].
        second: L2-normalised embeddings of the other view, in the same order.
        temperature: Divides the cosine logits; > 0, no unit.

    Returns:
        Mean over both views, in nats; shape [].

    Raises:
        ValueError: If the shapes differ, there are fewer than 2 items, or temperature <= 0.

    Source:
        Chen et al. 2020, arXiv:2002.05709, eq. 1.
    """
    if first.shape != second.shape:
        raise ValueError(f"the shapes of the two views differ: {list(first.shape)} and {list(second.shape)}")
    if len(first) < 2:
        raise ValueError(f"batch of {len(first)} has no negatives; expected at least 2 items")
    if temperature <= 0:
        raise ValueError(f"temperature is {temperature}; it is a divisor, so it must be positive")
    both = torch.cat([first, second])
    with torch.autocast(both.device.type, enabled=False):  # half precision would make close cosines equal
        logits = both.float() @ both.float().T / temperature
    logits.fill_diagonal_(float("-inf"))
    count = len(first)
    partner = torch.arange(2 * count, device=first.device).roll(count)
    return F.cross_entropy(logits, partner)


def link_loss(positive: Tensor, negative: Tensor) -> Tensor:
    """Binary cross-entropy of edge scores: edges against non-edges.

    Args:
        positive: Logits of true edges, [edges].
        negative: Logits of sampled non-edges, [non-edges].

    Returns:
        Average of the mean loss of edges and that of non-edges, in nats; log 2 if all logits are 0; shape [].

    Raises:
        GraphError: If there are no edges or no non-edges.
    """
    if not len(positive) or not len(negative):
        raise GraphError(
            f"{counted(len(positive), 'edge')} and {counted(len(negative), 'non-edge')}; link prediction needs both"
        )
    return (F.softplus(-positive).mean() + F.softplus(negative).mean()) / 2

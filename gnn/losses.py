"""Formulas of the training losses."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor

# Divides the cosine logits of the contrastive loss.
_TEMPERATURE = 0.2


def multi_positive_loss(logits: Tensor, positive: Tensor, *, ignore: Tensor | None = None) -> Tensor:
    """Softmax loss of each positive against the negatives of its row; the row's other positives do not compete.

    Args:
        logits: Scores, [questions, candidates].
        positive: True where the candidate answers the question, bool [questions, candidates]; at least one per row.
            On the CPU, whatever the device of the scores, so that checking it does not wait for the device.
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
    positive, counts = (each.to(logits.device, non_blocking=True) for each in (positive, counts))
    hidden = positive if ignore is None else positive | ignore.to(logits.device, non_blocking=True)
    negative = logits.masked_fill(hidden, float("-inf")).logsumexp(1, keepdim=True)
    # softplus(-inf - x) is 0, so a question without negatives adds nothing to the loss.
    losses = F.softplus(negative - logits) * positive
    return (losses.sum(1) / counts).mean()


def nt_xent(first: Tensor, second: Tensor) -> Tensor:
    """NT-Xent: each item's two views are each other's positive among 2N - 2 negatives.

    Args:
        first: L2-normalised embeddings of one view, shape [items, dim]; at least 2 items.
        second: L2-normalised embeddings of the other view, in the same order.

    Returns:
        Mean over both views, in nats; shape [].

    Source:
        Chen et al. 2020, arXiv:2002.05709, eq. 1.
    """
    both = torch.cat([first, second])
    with torch.autocast(both.device.type, enabled=False):  # half precision would make close cosines equal
        logits = both.float() @ both.float().T / _TEMPERATURE
    logits.fill_diagonal_(float("-inf"))
    count = len(first)
    partner = torch.arange(2 * count, device=first.device).roll(count)
    return F.cross_entropy(logits, partner)


def link_loss(positive: Tensor, negative: Tensor) -> Tensor:
    """Binary cross-entropy of edge scores: edges against non-edges.

    Args:
        positive: Logits of true edges, [edges]; at least one.
        negative: Logits of sampled non-edges, [non-edges]; at least one.

    Returns:
        Average of the mean loss of edges and that of non-edges, in nats; log 2 if all logits are 0; shape [].
    """
    return (F.softplus(-positive).mean() + F.softplus(negative).mean()) / 2

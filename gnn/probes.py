"""Signs of collapse in a set of embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor


def spread(embeddings: Tensor) -> Tensor:
    """Mean standard deviation per dimension of the normalised rows, times sqrt(dim).

    About 1 for rows spread over the sphere, 0 when all are alike. Shape [].
    """
    normalised = F.normalize(embeddings, dim=1)
    deviation: Tensor = normalised.std(0).mean()
    result: Tensor = deviation * embeddings.shape[1] ** 0.5
    return result


def uniformity(embeddings: Tensor, *, at_most: int = 2_000) -> Tensor:
    """Log of the mean Gaussian potential of pairs; 0 when all rows coincide, about -4 when spread out. Shape [].

    Args:
        embeddings: [rows, dim]; at least 2 rows.
        at_most: Rows to look at, evenly spaced.

    Source:
        Wang and Isola 2020, arXiv:2005.10242, eq. 2 with t = 2.
    """
    step = max(1, len(embeddings) // at_most)
    rows = F.normalize(embeddings[::step], dim=1)
    potential: Tensor = torch.pdist(rows.float()).square().mul(-2).exp().mean()
    return potential.log()

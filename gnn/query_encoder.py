"""The query encoder: encodes a question in the same vector space as the turns, with learnt weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

# Compensates for the scaling down of the documents' sketches, which carry the IDF.
_LEXICAL_START = 5.0
_SPEAKER_START, _DATE_START = 0.1, 0.1


class QueryEncoder(nn.Module):
    """Multiplies a question's lexical, speaker and date blocks by one learnt weight each; text and bias stay unchanged.

    Args:
        widths: Widths of the blocks ``text | lexical | speaker | date | 1``; see ``gnn.query.query_widths``.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.lexical_weight = nn.Parameter(torch.tensor(_LEXICAL_START))
        self.context_weight = nn.Parameter(torch.tensor([_SPEAKER_START, _DATE_START]))

    def forward(self, features: Tensor) -> Tensor:
        """Weight the features that ``gnn.query.query_features`` returns, [questions, vector_dim]."""
        text, lexical, speaker, date, one = torch.split(features, self.widths, dim=1)
        weighted = self.lexical_weight * lexical, self.context_weight[0] * speaker, self.context_weight[1] * date
        return torch.cat([text, *weighted, one], dim=1)

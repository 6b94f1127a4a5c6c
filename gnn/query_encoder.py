"""The query encoder: a question as a vector in the space of the turns' vectors, with learnt weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

# The documents' sketches carry the IDF and are scaled down; this makes up for that.
_LEXICAL_START = 5.0
_SPEAKER_START, _DATE_START = 0.1, 0.1


class QueryEncoder(nn.Module):
    """A question's blocks ``text | lexical | speaker | date | 1``, each with one learnt weight, the text with 1.

    Args:
        widths: Widths of the blocks; see ``gnn.query.query_widths``.
    """

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = list(widths)
        self.lexical_weight = nn.Parameter(torch.tensor(_LEXICAL_START))
        self.context_weight = nn.Parameter(torch.tensor([_SPEAKER_START, _DATE_START]))

    def forward(self, features: Tensor) -> Tensor:
        """Weigh what ``gnn.query.query_features`` returns, [questions, vector_dim]."""
        text, lexical, speaker, date, one = torch.split(features, self.widths, dim=1)
        weighted = self.lexical_weight * lexical, self.context_weight[0] * speaker, self.context_weight[1] * date
        return torch.cat([text, *weighted, one], dim=1)

"""From a question to a vector in the space of the turns' vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from locigraph.gnn.features import Tensors
from locigraph.gnn.sketch import ContextHash, LexicalSketch
from locigraph.kg.language.tokens import terms

# The documents' sketches carry the IDF and are scaled down; this makes up for that.
_LEXICAL_START = 5.0
_SPEAKER_START, _DATE_START = 0.1, 0.1


@dataclass(frozen=True, eq=False)
class QueryBatch(Tensors):
    """Questions as tensors.

    Attributes:
        text: Embeddings, [questions, text_dim].
        lexical: Signed count of the distinct terms in each bucket of the sketch, [questions, lexical_dim].
        context: Named speakers and dates, [questions, context_dim].
    """

    text: Tensor
    lexical: Tensor
    context: Tensor

    def __len__(self) -> int:
        return len(self.text)


def query_batch(
    texts: Sequence[str],
    embeddings: NDArray[np.float32],
    sketch: LexicalSketch,
    context: ContextHash,
    *,
    asked_at: Sequence[datetime | None] | None = None,
) -> QueryBatch:
    """Questions to tensors.

    Args:
        texts: The questions.
        embeddings: float32 [questions, text_dim].
        sketch: The checkpoint's lexical sketch.
        context: The checkpoint's hash of speakers and dates.
        asked_at: When each question was asked, which relative dates in it refer to; None where that is unknown.
    """
    lexical = np.zeros((len(texts), sketch.dim), dtype=np.float32)
    for row, text in enumerate(texts):
        for term in dict.fromkeys(terms(text)):
            bucket, sign = sketch.bucket(term)
            lexical[row, bucket] += sign
    times = asked_at or [None] * len(texts)
    contexts = [context.question(text, time) for text, time in zip(texts, times, strict=True)]
    return QueryBatch(
        torch.from_numpy(np.asarray(embeddings, dtype=np.float32)),
        torch.from_numpy(lexical),
        torch.from_numpy(np.stack(contexts) if contexts else np.zeros((0, context.dim), dtype=np.float32)),
    )


class QueryEncoder(nn.Module):
    """A question's blocks ``text | lexical | speaker | date | 1``, each with one learnt weight, the text with 1.

    Args:
        speaker_dim: Width of the speakers in the context block; the dates follow.
    """

    def __init__(self, *, speaker_dim: int) -> None:
        super().__init__()
        self.speaker_dim = speaker_dim
        self.lexical_weight = nn.Parameter(torch.tensor(_LEXICAL_START))
        self.context_weight = nn.Parameter(torch.tensor([_SPEAKER_START, _DATE_START]))

    def forward(self, batch: QueryBatch) -> Tensor:
        """Encode questions, [questions, vector_dim]."""
        text = batch.text
        speaker, date = batch.context[:, : self.speaker_dim], batch.context[:, self.speaker_dim :]
        blocks = [
            text,
            self.lexical_weight * batch.lexical,
            self.context_weight[0] * speaker,
            self.context_weight[1] * date,
            text.new_ones(len(batch), 1),
        ]
        return torch.cat(blocks, dim=1)

"""Features of a question, in the same blocks as the vectors of turns, and the learnt weights of these blocks.

Nothing here needs PyTorch, whose import takes longer than a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from locigraph.gnn.sketch import ContextHash, LexicalSketch, bucket
from locigraph.kg.language.tokens import terms


def query_features(
    texts: Sequence[str],
    embeddings: NDArray[np.float32],
    sketch: LexicalSketch,
    context: ContextHash,
    *,
    asked_at: Sequence[datetime | None] | None = None,
) -> NDArray[np.float32]:
    """Unweighted features of questions, ``text | lexical | speaker | date | 1``, float32 [questions, vector_dim].

    Each bucket of the lexical block holds the sum of the signs of the question's distinct terms in that bucket.

    Args:
        texts: The questions.
        embeddings: float32 [questions, text_dim].
        sketch: The checkpoint's lexical sketch.
        context: The checkpoint's hash of speakers and dates.
        asked_at: When each question was asked, which is what its relative dates refer to; None if unknown.
    """
    times = asked_at or [None] * len(texts)
    rest = np.zeros((len(texts), sketch.dim + context.dim + 1), dtype=np.float32)
    rest[:, -1] = 1
    for row, (text, time) in enumerate(zip(texts, times, strict=True)):
        for term in dict.fromkeys(terms(text)):
            column, sign = bucket(term, sketch.dim)
            rest[row, column] += sign
        rest[row, sketch.dim : -1] = context.question(text, time)
    return np.concatenate([np.asarray(embeddings, dtype=np.float32), rest], axis=1)


def query_widths(text_dim: int, sketch: LexicalSketch, context: ContextHash) -> tuple[int, int, int, int, int]:
    """Widths of the five blocks of a question's vector; their sum is the width of a stored vector."""
    return text_dim, sketch.dim, context.speaker_dim, context.date_dim, 1


def query_scale(
    lexical_weight: NDArray[np.float32], context_weight: NDArray[np.float32], widths: Sequence[int]
) -> NDArray[np.float32]:
    """The factor by which a ``QueryEncoder`` with these weights multiplies each feature, float32 [vector_dim].

    Args:
        lexical_weight: Its parameter of that name, a single number.
        context_weight: Its parameter of that name, [2].
        widths: See ``query_widths``.
    """
    weights = np.concatenate([[1], lexical_weight.reshape(1), context_weight.reshape(2), [1]], dtype=np.float32)
    return np.repeat(weights, widths)

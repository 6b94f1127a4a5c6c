"""A question to a vector in the space of the node vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from numpy.typing import NDArray
from torch import Tensor, nn

from locigraph.gnn.encoder import EncoderConfig
from locigraph.gnn.lexical import ContextHash, LexicalSketch, question_terms, stable_hash

#: Rows of the table of learnt term weights; terms share rows by hash.
TERM_ROWS = 1 << 14
# The documents' sketches carry the IDF; this makes up for the sketch's scale.
_TERM_SCALE = 5.0
_SPEAKER_START, _DATE_START = 0.1, 0.1
# What related terms count beside a question's own, as a logarithm.
_RELATED_START = -1.2
_GATES = 5  # text, lexical, speaker, date, related terms


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """Questions as tensors.

    Attributes:
        text: Embeddings, [questions, text_dim].
        term_question: Which question each term is of, int64 [terms].
        term_bucket: Its bucket in the sketch, int64 [terms].
        term_sign: Its sign there, [terms].
        term_row: Its row in the table of term weights, int64 [terms].
        term_is_related: Whether it is a related one rather than the question's own, bool [terms].
        term_likeness: Of a related one, in (0, 1]; 1 for its own, [terms].
        context: Named speakers and dates, [questions, context_dim].
    """

    text: Tensor
    term_question: Tensor
    term_bucket: Tensor
    term_sign: Tensor
    term_row: Tensor
    term_is_related: Tensor
    term_likeness: Tensor
    context: Tensor

    def __len__(self) -> int:
        return len(self.text)

    def to(self, device: torch.device | str) -> QueryBatch:
        """The same on a device."""
        return QueryBatch(
            *(
                t.to(device)
                for t in (
                    self.text,
                    self.term_question,
                    self.term_bucket,
                    self.term_sign,
                    self.term_row,
                    self.term_is_related,
                    self.term_likeness,
                    self.context,
                )
            )
        )


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
        sketch: Of the checkpoint.
        context: Of the checkpoint.
        asked_at: Anchors of relative dates; None for none.
    """
    found = [
        (row, term, is_related, likeness)
        for row, own in enumerate(map(question_terms, texts))
        for is_related, terms in ((False, dict.fromkeys(own, 1.0)), (True, sketch.related.of(own)))
        for term, likeness in terms.items()
    ]
    buckets = [sketch.bucket(term) for _, term, _, _ in found]
    times = asked_at or [None] * len(texts)
    contexts = [context.question(text, time) for text, time in zip(texts, times, strict=True)]
    return QueryBatch(
        torch.from_numpy(np.asarray(embeddings, dtype=np.float32)),
        torch.tensor([row for row, _, _, _ in found], dtype=torch.int64),
        torch.tensor([bucket for bucket, _ in buckets], dtype=torch.int64),
        torch.tensor([sign for _, sign in buckets], dtype=torch.float32),
        torch.tensor([stable_hash(term) % TERM_ROWS for _, term, _, _ in found], dtype=torch.int64),
        torch.tensor([is_related for _, _, is_related, _ in found], dtype=torch.bool),
        torch.tensor([likeness for _, _, _, likeness in found], dtype=torch.float32),
        torch.from_numpy(np.stack(contexts) if contexts else np.zeros((0, context.dim), dtype=np.float32)),
    )


class QueryEncoder(nn.Module):
    """Blocks text | lexical | free | context | 1, weighted by what kind of question it is.

    Args:
        config: Of the node encoder.
        speaker_dim: Width of the speakers in the context block; the dates follow.
        gated: Whether the kind of question scales the blocks.
        rank: Of the residual that adapts the question's embedding; 0 leaves it out.
        dropout: In the small networks that look at the question.
    """

    def __init__(
        self,
        config: EncoderConfig,
        *,
        speaker_dim: int = 64,
        gated: bool = True,
        rank: int = 32,
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.config = config
        self.speaker_dim = speaker_dim
        self.gated, self.rank = gated, rank
        if rank:
            self.down = nn.Linear(config.text_dim, rank, bias=False)
            self.up = nn.Linear(rank, config.text_dim, bias=False)
            nn.init.zeros_(self.up.weight)
        if gated:
            self.gates = _small_network(config.text_dim, 32, _GATES, dropout)
        self.term_weight = nn.Parameter(torch.zeros(TERM_ROWS))
        self.related_weight = nn.Parameter(torch.tensor(_RELATED_START))
        self.context_weight = nn.Parameter(torch.tensor([_SPEAKER_START, _DATE_START]))
        if config.free_dim:
            self.free = _small_network(config.text_dim, 64, config.free_dim, dropout)

    def forward(self, batch: QueryBatch, *, noise: float = 0.0, term_dropout: float = 0.0) -> Tensor:
        """Encode questions.

        Args:
            batch: The questions.
            noise: In training, length of the random vector added to each unit-length embedding.
            term_dropout: In training, share of the terms left out.

        Returns:
            [questions, config.vector_dim].
        """
        text = batch.text
        if self.training and noise:
            text = F.normalize(text + torch.randn_like(text) * noise / text.shape[1] ** 0.5, dim=1)
        # [questions, 5], 1 before training
        gates = torch.exp(self.gates(text)) if self.gated else text.new_ones(len(batch), _GATES)
        related = torch.exp(self.related_weight) * gates[batch.term_question, 4] * batch.term_likeness
        share = torch.where(batch.term_is_related, related, 1.0)
        weight = _TERM_SCALE * torch.exp(self.term_weight[batch.term_row]) * batch.term_sign * share
        if self.training and term_dropout:
            weight = weight * (torch.rand_like(weight) > term_dropout)
        width = self.config.lexical_dim
        lexical = text.new_zeros(len(batch) * max(1, width))
        if width:
            lexical = lexical.index_add(0, batch.term_question * width + batch.term_bucket, weight)
        # With context_dim 0 both parts are empty.
        speaker, date = batch.context[:, : self.speaker_dim], batch.context[:, self.speaker_dim :]
        blocks = [
            gates[:, 0:1] * (text + self.up(self.down(text)) if self.rank else text),
            gates[:, 1:2] * lexical.view(len(batch), -1)[:, :width],
            self.free(text) if self.config.free_dim else text.new_zeros(len(batch), 0),
            gates[:, 2:3] * self.context_weight[0] * speaker,
            gates[:, 3:4] * self.context_weight[1] * date,
            text.new_ones(len(batch), 1),
        ]
        return torch.cat(blocks, dim=1)


def _small_network(inputs: int, hidden: int, outputs: int, dropout: float) -> nn.Sequential:
    last = nn.Linear(hidden, outputs)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(inputs, hidden), nn.GELU(), nn.Dropout(dropout), last)

"""Features that add no cost at query time: a lexical sketch, and hashed speakers and dates.

With the sketch, a single inner product approximates BM25: a document's vector holds its saturated, IDF-weighted term
counts in hashed buckets, and a query's vector holds its terms in the same buckets. Nothing here needs PyTorch, whose
import takes longer than a search.

Source:
    Bruch, Nardini, Ingber and Liberty 2023, "Bridging Dense and Sparse Maximum Inner Product Search"; count
    sketch: Charikar, Chen and Farach-Colton 2002.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.language.mentions import date_tokens, name_words, named_dates, named_people
from locigraph.kg.language.terms import terms
from locigraph.kg.schema import EPISODE

# Brings a typical document's sketch to about the length of its text embedding.
_SCALE = 0.01
_IDF_TYPES = (EPISODE, "knowledge_node")


@lru_cache(maxsize=500_000)
def stable_hash(text: str) -> int:
    """A 64-bit hash of a text that is the same on every machine and in every run."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def bucket(text: str, width: int) -> tuple[int, float]:
    """The bucket of a text among ``width`` buckets, and its sign; both depend on its hash."""
    digest = stable_hash(text)
    return digest % width, 1.0 if digest >> 40 & 1 else -1.0


@dataclass(frozen=True)
class LexicalStatistics:
    """What the sketch of a document depends on beside its own terms.

    Attributes:
        turns: Number of turns.
        total: Number of turns and facts.
        frequency: In how many of them each term occurs, by ``stable_hash`` of the term.
        mean_length: Mean number of terms of the documents of each node type, at least 1e-6.
    """

    turns: int
    total: int
    frequency: Mapping[int, int]
    mean_length: Mapping[str, float]

    @classmethod
    def of(cls, documents: Iterable[tuple[Sequence[str], str]]) -> Self:
        """The statistics of documents, each given by its terms and its node type."""
        frequency: Counter[int] = Counter()
        total = 0
        lengths: dict[str, list[int]] = {}
        for words, kind in documents:
            lengths.setdefault(kind, []).append(len(words))
            if kind in _IDF_TYPES:
                total += 1
                frequency.update({stable_hash(word) for word in words})
        means = {kind: max(1e-6, float(np.mean(each))) for kind, each in lengths.items()}
        return cls(len(lengths.get(EPISODE, ())), total, dict(frequency), means)

    def as_bytes(self) -> bytes:
        """The statistics as they are stored; they hold no words."""
        header = {"turns": self.turns, "total": self.total, "mean_length": dict(self.mean_length)}
        parts = [
            json.dumps(header).encode(),
            np.fromiter(self.frequency.keys(), dtype="<u8", count=len(self.frequency)).tobytes(),
            np.fromiter(self.frequency.values(), dtype="<u4", count=len(self.frequency)).tobytes(),
        ]
        return b"".join([len(parts[0]).to_bytes(4, "little"), *parts])

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The statistics that ``as_bytes`` wrote; raises ValueError or KeyError if it did not."""
        start = 4 + int.from_bytes(content[:4], "little")
        header = json.loads(content[4:start])
        terms_, rest = divmod(len(content) - start, 12)
        if rest:
            raise ValueError(f"{len(content)} bytes are no statistics")
        hashes = np.frombuffer(content, dtype="<u8", count=terms_, offset=start)
        counts = np.frombuffer(content, dtype="<u4", count=terms_, offset=start + 8 * terms_)
        frequency = dict(zip(hashes.tolist(), counts.tolist(), strict=True))
        return cls(header["turns"], header["total"], frequency, header["mean_length"])

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory they hold."""
        return 120 * len(self.frequency) + 1_000


@dataclass(frozen=True)
class HashedFeatures:
    """Hashes words, speakers and dates into a few dimensions, with hashed signs.

    The IDF is Lucene's variant (Robertson and Sparck Jones, with 1 added inside the logarithm), computed over the turns
    and facts of the space. Lengths are normalised per node type, since turns and labels differ in length.

    Attributes:
        lexical_dim: Number of buckets of the lexical sketch.
        speaker_dim: Width for speakers; 0 leaves them out.
        date_dim: Width for dates; 0 leaves them out.
        k1: Saturation of term counts, as in BM25.
        b: Strength of length normalisation, as in BM25, in [0, 1].
    """

    lexical_dim: int
    speaker_dim: int
    date_dim: int
    k1: float = 1.2
    b: float = 0.75

    def widths(self, text_dim: int) -> tuple[int, int, int, int, int]:
        """Widths of the blocks ``text | lexical | speaker | date | 1``; their sum is the width of a stored vector."""
        return text_dim, self.lexical_dim, self.speaker_dim, self.date_dim, 1

    def documents(
        self,
        texts: Sequence[Sequence[str]],
        *,
        kinds: Sequence[str],
        statistics: LexicalStatistics | None = None,
    ) -> NDArray[np.float32]:
        """Sketches of documents, float32 [documents, lexical_dim], from the terms and the node type of each.

        Without ``statistics``, they are those of these documents.
        """
        known = statistics or LexicalStatistics.of(zip(texts, kinds, strict=True))
        sketch = np.zeros((len(texts), self.lexical_dim), dtype=np.float32)
        for row, (words, kind) in enumerate(zip(texts, kinds, strict=True)):
            # A type that was not there when the statistics were taken has no mean; each document is taken as average.
            length = len(words) / known.mean_length.get(kind, max(1, len(words)))
            norm = self.k1 * (1 - self.b + self.b * length)
            for term, count in Counter(words).items():
                n = known.frequency.get(stable_hash(term), 0)
                idf = math.log(1 + (known.total - n + 0.5) / (n + 0.5))
                column, sign = bucket(term, self.lexical_dim)
                sketch[row, column] += sign * _SCALE * idf * count * (self.k1 + 1) / (count + norm)
        return sketch

    def node(self, speaker: str | None, first: int, last: int) -> NDArray[np.float32]:
        """Features of a node's speaker and time, float32 [speaker_dim + date_dim].

        Args:
            speaker: Who said it; None if nobody did. Each word of the name is hashed separately, so that a question may
                use the first name alone; the speaker features together are scaled to a length of at most 1.
            first: Start of its time in seconds since 1970, or ``NO_TIME``.
            last: End of its time, likewise.
        """
        features = self._context(name_words(speaker or ""), date_tokens(first, last))
        features[: self.speaker_dim] /= max(1.0, float(np.linalg.norm(features[: self.speaker_dim])))
        return features

    def question(self, text: str, asked_at: datetime | None) -> NDArray[np.float32]:
        """Features of the names and the dates in a question, float32 [speaker_dim + date_dim]."""
        return self._context(named_people(text), named_dates(text, asked_at))

    def questions(
        self,
        texts: Sequence[str],
        embeddings: NDArray[np.float32],
        *,
        asked_at: Sequence[datetime | None] | None = None,
    ) -> NDArray[np.float32]:
        """Unweighted features of questions, ``text | lexical | speaker | date | 1``, float32 [questions, vector_dim].

        Each bucket of the lexical block holds the sum of the signs of the question's distinct terms in that bucket.

        Args:
            texts: The questions.
            embeddings: float32 [questions, text_dim].
            asked_at: When each question was asked, which is what its relative dates refer to; None if unknown.
        """
        lexical = np.zeros((len(texts), self.lexical_dim), dtype=np.float32)
        context = np.zeros((len(texts), self.speaker_dim + self.date_dim), dtype=np.float32)
        for row, (text, time) in enumerate(zip(texts, asked_at or [None] * len(texts), strict=True)):
            for term in dict.fromkeys(terms(text)):
                column, sign = bucket(term, self.lexical_dim)
                lexical[row, column] += sign
            context[row] = self.question(text, time)
        ones = np.ones((len(texts), 1), dtype=np.float32)
        return np.concatenate([np.asarray(embeddings, dtype=np.float32), lexical, context, ones], axis=1)

    def _context(self, names: Sequence[str], dates: Sequence[str]) -> NDArray[np.float32]:
        vector = np.zeros(self.speaker_dim + self.date_dim, dtype=np.float32)
        words = [f"speaker={word}" for word in names]
        for block, tokens in ((vector[: self.speaker_dim], words), (vector[self.speaker_dim :], dates)):
            for token in dict.fromkeys(tokens) if len(block) else ():
                column, sign = bucket(token, len(block))
                block[column] += sign
        return vector

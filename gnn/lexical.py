"""Features that cost nothing at query time: a lexical sketch, and hashed speakers and dates.

The sketch lets one inner product carry BM25: a document's vector holds its saturated, IDF-weighted term counts in
hashed buckets, a query's vector its terms in the same buckets.

Source:
    Bruch, Nardini, Ingber and Liberty 2023, "Bridging Dense and Sparse Maximum Inner Product Search"; count
    sketch: Charikar, Chen and Farach-Colton 2002.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.language.dates import CalendarPart, calendar_parts
from locigraph.kg.language.tokens import STOP_WORDS, stem, terms, words
from locigraph.kg.snapshot import NO_TIME

# Brings a typical document's sketch to about the length of its text embedding.
_SCALE = 0.01
_SAME = 0.9999
_WORD = re.compile(r"[^\W\d_]+")


@lru_cache(maxsize=500_000)
def stable_hash(text: str) -> int:
    """64 bits that are the same on every machine and in every run."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, eq=False)
class RelatedTerms:
    """Stems of like meaning, so that a question about pets also looks for dogs.

    Attributes:
        stems: Those that are known.
        rows: Positions in ``stems`` of each one's likest others, int32 [stems, count]; -1 where there are fewer.
        likeness: In (0, 1], float16 [stems, count].
    """

    stems: tuple[str, ...] = ()
    rows: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int32))
    likeness: NDArray[np.float16] = field(default_factory=lambda: np.zeros((0, 0), dtype=np.float16))

    @cached_property
    def _position(self) -> dict[str, int]:
        return {stem: position for position, stem in enumerate(self.stems)}

    def of(self, stems: Sequence[str]) -> dict[str, float]:
        """Stems related to any of those given, without themselves, with their greatest likeness."""
        found: dict[str, float] = {}
        given = set(stems)
        for own in stems:
            position = self._position.get(own)
            if position is None:
                continue
            for row, likeness in zip(self.rows[position].tolist(), self.likeness[position].tolist(), strict=True):
                if row >= 0 and self.stems[row] not in given:
                    found[self.stems[row]] = max(likeness, found.get(self.stems[row], 0.0))
        return found


def related_terms(
    words: Mapping[str, str], embed: Callable[[Sequence[str]], NDArray[np.float32]], *, count: int, least: float
) -> RelatedTerms:
    """Find related stems by the cosine of single words' text embeddings.

    Args:
        words: A word to embed for each stem.
        embed: Text encoder, rows of length 1.
        count: At most so many for each.
        least: Cosine from which stems count as related; likeness grows from there, 0, to 1 at cosine 1.
    """
    stems = tuple(sorted(words))
    count = min(count, len(stems) - 1)
    if count < 1:
        return RelatedTerms()
    vectors = embed([words[stem] for stem in stems])
    rows = np.full((len(stems), count), -1, dtype=np.int32)
    likeness = np.zeros((len(stems), count), dtype=np.float16)
    for start in range(0, len(stems), 1_000):
        part = slice(start, min(start + 1_000, len(stems)))
        cosine = vectors[part] @ vectors.T
        cosine[np.arange(len(cosine)), np.arange(part.start, part.stop)] = -1.0  # not itself
        best = np.sort(np.argpartition(-cosine, count - 1, axis=1)[:, :count], axis=1)
        order = np.argsort(-np.take_along_axis(cosine, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        nearest = np.take_along_axis(cosine, best, axis=1)
        # Words that the text encoder cannot tell apart are mostly words that it does not know at all.
        is_related = (nearest > least) & (nearest < _SAME)
        rows[part] = np.where(is_related, best, -1)
        likeness[part] = np.where(is_related, (nearest - least) / (1 - least), 0.0)
    return RelatedTerms(stems, rows, likeness)


@dataclass(frozen=True)
class LexicalSketch:
    """Terms to buckets.

    Attributes:
        dim: Number of buckets; 0 for a model without the lexical part.
        dedicated: Stems with a bucket of their own, which they share with no other; the rest are hashed, with random
            signs, into the buckets that remain. Part of a checkpoint.
        related: What else a question's stems look for. Part of a checkpoint.
        idf_of: Kinds whose documents the IDF is counted over.
        saturation: BM25's k1: how slowly a term's weight grows with its count; 0 counts presence only.
        length_norm: BM25's b, in [0, 1]: how much a document longer than the mean of its kind counts for less.

    Raises:
        ValueError: If no bucket remains for the other terms.
    """

    dim: int
    dedicated: tuple[str, ...] = ()
    related: RelatedTerms = field(default_factory=RelatedTerms, compare=False)
    idf_of: tuple[str, ...] = ("episode", "knowledge_node")
    saturation: float = 1.2
    length_norm: float = 0.75

    def __post_init__(self) -> None:
        if (self.dim or self.dedicated) and self.dim <= len(self.dedicated):
            raise ValueError(f"a sketch of {self.dim} buckets cannot dedicate {len(self.dedicated)}; raise dim")

    @cached_property
    def _own(self) -> dict[str, int]:
        return {term: bucket for bucket, term in enumerate(self.dedicated)}

    def bucket(self, term: str) -> tuple[int, float]:
        """(bucket, sign) of a term; (0, 0.0) in a sketch without buckets."""
        if not self.dim:
            return 0, 0.0
        own = self._own.get(term)
        if own is not None:
            return own, 1.0
        digest = stable_hash(term)
        first = len(self.dedicated)
        return first + digest % (self.dim - first), 1.0 if digest >> 40 & 1 else -1.0

    def documents(self, texts: Sequence[Sequence[str]], *, kinds: Sequence[str]) -> NDArray[np.float32]:
        """Sketches of documents.

        Args:
            texts: Terms of each document.
            kinds: Of each document; length is normalised within a kind, since turns and labels differ in it.

        Returns:
            float32 [documents, dim].
        """
        frequency: Counter[str] = Counter()
        total = 0
        for held, kind in zip(texts, kinds, strict=True):
            if kind in self.idf_of:
                total += 1
                frequency.update(set(held))
        lengths: dict[str, list[int]] = {}
        for held, kind in zip(texts, kinds, strict=True):
            lengths.setdefault(kind, []).append(len(held))
        average = {kind: max(1e-6, float(np.mean(values))) for kind, values in lengths.items()}
        sketch = np.zeros((len(texts), self.dim), dtype=np.float32)
        if not self.dim:
            return sketch
        for row, (held, kind) in enumerate(zip(texts, kinds, strict=True)):
            norm = self.saturation * (1 - self.length_norm + self.length_norm * len(held) / average[kind])
            for term, count in Counter(held).items():
                n = frequency[term]
                idf = math.log(1 + (total - n + 0.5) / (n + 0.5))
                bucket, sign = self.bucket(term)
                sketch[row, bucket] += sign * _SCALE * idf * count * (self.saturation + 1) / (count + norm)
        return sketch


def frequent_terms(texts: Iterable[Sequence[str]], count: int) -> tuple[str, ...]:
    """The terms that occur in most documents, most frequent first, ties in alphabetical order."""
    frequency: Counter[str] = Counter()
    for held in texts:
        frequency.update(set(held))
    return tuple(sorted(frequency, key=lambda term: (-frequency[term], term))[:count])


def common_words(texts: Iterable[str], *, count: int) -> dict[str, str]:
    """The most frequent stems of texts, each with the word that stands for it most often; numbers are left out.

    Args:
        texts: Any.
        count: At most so many stems.
    """
    seen: dict[str, Counter[str]] = {}
    for text in texts:
        for word in words(text):
            if word not in STOP_WORDS and not word.isdigit():
                seen.setdefault(stem(word), Counter())[word] += 1
    best = sorted(seen, key=lambda found: (-seen[found].total(), found))[:count]
    return {found: min(seen[found], key=lambda word: (-seen[found][word], word)) for found in sorted(best)}


@dataclass(frozen=True)
class ContextHash:
    """Speakers and dates in a few hashed numbers, with random signs.

    Attributes:
        speaker_dim: Width for speakers; 0 leaves them out.
        date_dim: Width for dates; 0 leaves them out.
    """

    speaker_dim: int = 64
    date_dim: int = 192

    @property
    def dim(self) -> int:
        """Width of both."""
        return self.speaker_dim + self.date_dim

    def node(self, speaker: str | None, first: int, last: int) -> NDArray[np.float32]:
        """Features of a node.

        Args:
            speaker: Who said it; None when nobody did. Each word of the name counts for itself, so that a question
                may name the first alone; together they have length 1.
            first: Beginning of its time, seconds since 1970, or ``NO_TIME``.
            last: End of its time, or ``NO_TIME``.

        Returns:
            float32 [dim].
        """
        features = self._fill(_folded(speaker or ""), _time_tokens(first, last))
        features[: self.speaker_dim] /= max(1.0, float(np.linalg.norm(features[: self.speaker_dim])))
        return features

    def question(self, text: str, asked_at: datetime | None) -> NDArray[np.float32]:
        """Features of a question: the names and the dates in it, float32 [dim]."""
        # Capitalised, but not abbreviations, which are no one's name. NFC, since a combining accent would end a word.
        composed = unicodedata.normalize("NFC", text)
        names = [word for word in _WORD.findall(composed) if word[0].isupper() and any(c.islower() for c in word)]
        named = _folded(" ".join(name for name in names if name.lower() not in STOP_WORDS))
        parts = calendar_parts(text, asked_at.date() if asked_at else None)
        return self._fill(named, [token for part in parts for token in _tokens(part)])

    def _fill(self, names: Sequence[str], dates: Sequence[str]) -> NDArray[np.float32]:
        vector = np.zeros(self.dim, dtype=np.float32)
        for tokens, first, width in (
            ([f"speaker={word}" for word in names], 0, self.speaker_dim),
            (dates, self.speaker_dim, self.date_dim),
        ):
            for token in dict.fromkeys(tokens) if width else ():
                digest = stable_hash(token)
                vector[first + digest % width] += 1.0 if digest >> 40 & 1 else -1.0
        return vector


def _folded(names: str) -> list[str]:
    """The words of names in lower case and without accents, which questions tend to leave out."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", names.lower()) if not unicodedata.combining(c))
    return words(plain)


def _tokens(part: CalendarPart) -> list[str]:
    """What a dated memory and a question must share, from coarse to fine."""
    tokens = []
    if part.month is not None:
        tokens.append(f"m{part.month}")
        if part.year is not None:
            tokens.append(f"y{part.year}m{part.month}")
        if part.day is not None:
            tokens.append(f"m{part.month}d{part.day}")
    elif part.year is not None:
        tokens.append(f"y{part.year}")
    return tokens


def _time_tokens(first: int, last: int) -> list[str]:
    if first == NO_TIME:
        return []
    begin = _day(first)
    end = begin if last == NO_TIME else _day(last)
    days = (end - begin).days
    if days > 31:
        return [f"y{begin.year}"]
    if days > 6:
        return [f"y{begin.year}", f"m{begin.month}", f"y{begin.year}m{begin.month}"]
    return [f"y{begin.year}", *_tokens(CalendarPart(begin.year, begin.month, begin.day))]


def _day(seconds: int) -> date:
    return datetime.fromtimestamp(seconds, UTC).date()


def question_terms(text: str) -> tuple[str, ...]:
    """The distinct terms of a question, in order."""
    return tuple(dict.fromkeys(terms(text)))

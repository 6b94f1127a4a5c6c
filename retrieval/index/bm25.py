"""BM25 with postings as arrays: takes new documents without a rebuild, scores as ``rank_bm25.BM25Okapi``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Key = TypeVar("Key", bound=Hashable)


class _Growing:
    """An array that doubles its room, so that appending is cheap and reading is a view."""

    def __init__(self, dtype: type[np.generic]) -> None:
        self._room = np.zeros(4, dtype=dtype)
        self.size = 0

    def append(self, value: float) -> None:
        if self.size == len(self._room):
            self._room = np.concatenate([self._room, np.zeros_like(self._room)])
        self._room[self.size] = value
        self.size += 1

    @property
    def values(self) -> NDArray[Any]:
        return self._room[: self.size]


class Bm25Index(Generic[Key]):
    """BM25, ATIRE variant with the IDF floor of ``rank_bm25.BM25Okapi``, to whose scores it is equal.

    score(q, d) = sum over terms of q of idf(t) * f(t,d) (k1 + 1) / (f(t,d) + k1 (1 - b + b |d| / avgdl)),
    idf(t) = ln((N - n + .5) / (n + .5)), or ``epsilon`` times the mean idf where that is negative.

    Args:
        k1: Saturation of term frequency.
        b: Strength of length normalisation, 0 to 1.
        epsilon: Floor of the IDF, as a share of the mean IDF.

    Source:
        Trotman, Puurula and Burgess 2014, "Improvements to BM25 and Language Models Examined".
    """

    def __init__(self, *, k1: float = 1.5, b: float = 0.75, epsilon: float = 0.25) -> None:
        self._k1, self._b, self._epsilon = k1, b, epsilon
        self._keys: list[Key] = []
        self._row_of: dict[Key, int] = {}
        self._terms_of: list[tuple[str, ...]] = []
        self._term_id: dict[str, int] = {}
        self._rows: list[_Growing] = []
        self._counts: list[_Growing] = []
        self._lengths = _Growing(np.float64)
        self._alive = _Growing(np.bool_)
        self._document_frequency = _Growing(np.int64)
        self._total_length = 0
        self._idf: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self._row_of)

    def __contains__(self, key: object) -> bool:
        return key in self._row_of

    def add(self, key: Key, terms: Sequence[str]) -> None:
        """Add a document, or replace the one of that key.

        Args:
            key: Names the document.
            terms: Its words as compared, see ``kg.text.terms``; may be empty.
        """
        if key in self._row_of:
            self.remove(key)
        row = len(self._keys)
        counts = Counter(terms)
        self._keys.append(key)
        self._row_of[key] = row
        self._terms_of.append(tuple(counts))
        self._lengths.append(len(terms))
        self._alive.append(True)
        self._total_length += len(terms)
        for term, count in counts.items():
            term_id = self._term_id.get(term)
            if term_id is None:
                term_id = self._term_id[term] = len(self._rows)
                self._rows.append(_Growing(np.int64))
                self._counts.append(_Growing(np.float64))
                self._document_frequency.append(0)
            self._rows[term_id].append(row)
            self._counts[term_id].append(count)
            self._document_frequency.values[term_id] += 1
        self._idf = None

    def remove(self, key: Key) -> None:
        """Remove a document; its postings are skipped from now on.

        Raises:
            KeyError: If there is none of that key.
        """
        row = self._row_of.pop(key)
        self._alive.values[row] = False
        self._total_length -= int(self._lengths.values[row])
        for term in self._terms_of[row]:
            self._document_frequency.values[self._term_id[term]] -= 1
        self._idf = None

    def scores(self, terms: Sequence[str]) -> dict[Key, float]:
        """Score of every document that holds a term of the query; repeated query terms count repeatedly."""
        scores, touched = self._accumulate(terms)
        return {self._keys[row]: float(scores[row]) for row in np.flatnonzero(touched)}

    def search(
        self, terms: Sequence[str], *, top_k: int, allowed: NDArray[np.bool_] | None = None
    ) -> list[tuple[Key, float]]:
        """The best documents that hold a term of the query, best first; ties by age.

        Args:
            terms: The query's words.
            top_k: At most so many.
            allowed: Mask over rows in the order of ``add`` (removed rows included); None allows all.
        """
        scores, touched = self._accumulate(terms)
        if allowed is not None:
            touched &= allowed
        rows = np.flatnonzero(touched)
        if len(rows) > top_k:
            # Ties at the border must not depend on the partition's order.
            border = -np.partition(-scores[rows], top_k - 1)[top_k - 1]
            rows = rows[scores[rows] >= border]
        order = rows[np.lexsort((rows, -scores[rows]))][:top_k]
        return [(self._keys[row], float(scores[row])) for row in order]

    def _accumulate(self, terms: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        size = len(self._keys)
        scores = np.zeros(size)
        touched = np.zeros(size, dtype=bool)
        if not self._total_length:  # nothing held, or empty documents only, whose mean length divides nothing
            return scores, touched
        idf = self._idf_of_terms()
        lengths = self._lengths.values
        average = self._total_length / len(self._row_of)
        for term, repeats in Counter(terms).items():
            term_id = self._term_id.get(term)
            if term_id is None:
                continue
            rows = self._rows[term_id].values
            counts = self._counts[term_id].values
            norm = self._k1 * (1 - self._b + self._b * lengths[rows] / average)
            scores[rows] += repeats * idf[term_id] * counts * (self._k1 + 1) / (counts + norm)
            touched[rows] = True
        return scores, touched & self._alive.values

    def _idf_of_terms(self) -> NDArray[np.float64]:
        if self._idf is None:
            frequency = self._document_frequency.values.astype(np.float64)
            with np.errstate(divide="ignore"):
                idf = np.log(len(self._row_of) - frequency + 0.5) - np.log(frequency + 0.5)
            present = frequency > 0
            idf[~present] = 0.0
            mean = idf[present].mean() if present.any() else 0.0
            idf[idf < 0] = self._epsilon * mean
            self._idf = idf
        return self._idf

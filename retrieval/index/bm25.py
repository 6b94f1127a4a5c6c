"""BM25 index that takes new documents without a rebuild.

Numbers are held in ``array.array``, which grows cheaply and which numpy reads without a copy.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.types import NodeId

Key = TypeVar("Key", int, str, NodeId)
#: Saturation of the term frequency: the greater it is, the more a repeated term counts.
K1 = 1.5
#: Strength of the length normalisation, 0 to 1.
B = 0.75
#: IDF of terms that occur in half of the documents or more, as a share of the mean IDF.
EPSILON = 0.25


def bm25_index(documents: Iterable[Sequence[str]]) -> Bm25Index[int]:
    """An index of documents given by their terms; the key of each is its position."""
    index: Bm25Index[int] = Bm25Index()
    for position, terms in enumerate(documents):
        index.add(position, terms)
    return index


class Bm25Index(Generic[Key]):
    """BM25, Okapi variant, with the scores of ``rank_bm25.BM25Okapi`` except for the deviation below.

    score(q, d) = sum over terms t of q of idf(t) * f(t, d) (k1 + 1) / (f(t, d) + k1 (1 - b + b |d| / avgdl)),
    idf(t) = ln((N - n(t) + .5) / (n(t) + .5)), or ``EPSILON`` times the mean IDF where that is not above 0.

    Deviation:
        Every matching term adds to a score. ``rank_bm25`` lets a term in exactly half of the documents count nothing,
        and where the mean IDF is negative, as in a space of two or three turns, it ranks the documents that match best
        last; here the IDF of such terms is then ``EPSILON``.

    Source:
        Robertson et al. 1995, "Okapi at TREC-3"; the floor of the IDF is that of ``rank_bm25``.
    """

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._row_of: dict[Key, int] = {}
        self._terms_of: list[tuple[str, ...]] = []
        self._term_id: dict[str, int] = {}
        self._rows: list[array[int]] = []  # by term ID: rows of the documents that hold the term
        self._counts: list[array[int]] = []  # by term ID: term frequency in each of these
        self._lengths = array("q")
        self._alive = array("b")
        self._document_frequency = array("q")
        self._total_length = 0
        self._idf: NDArray[np.float64] | None = None

    def add(self, key: Key, terms: Sequence[str]) -> None:
        """Add a document, or replace the one with that key.

        Args:
            key: Key of the document.
            terms: Its terms, as ``kg.language.tokens.terms`` makes them; may be empty.
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
                self._rows.append(array("q"))
                self._counts.append(array("q"))
                self._document_frequency.append(0)
            self._rows[term_id].append(row)
            self._counts[term_id].append(count)
            self._document_frequency[term_id] += 1
        self._idf = None

    def remove(self, key: Key) -> None:
        """Remove a document. Its postings stay and are skipped.

        Raises:
            KeyError: If there is no document of that key.
        """
        row = self._row_of.pop(key)
        self._alive[row] = False
        self._total_length -= self._lengths[row]
        for term in self._terms_of[row]:
            self._document_frequency[self._term_id[term]] -= 1
        self._idf = None

    def scores(self, terms: Sequence[str]) -> NDArray[np.float64]:
        """Score of every document, in the order of ``add``; a repeated query term counts each time.

        Documents that hold no term of the query score 0, as do removed ones.
        """
        scores, touched = self._accumulate(terms)
        return np.where(touched, scores, 0.0)

    def search(
        self, terms: Sequence[str], *, top_k: int, allowed: NDArray[np.bool_] | None = None
    ) -> list[tuple[Key, float]]:
        """The best documents that hold a term of the query, best first; ties by key.

        Args:
            terms: Terms of the query.
            top_k: Largest number of documents to return.
            allowed: Mask over all documents in the order of ``add``, removed ones included; None allows all.
        """
        scores, touched = self._accumulate(terms)
        if allowed is not None:
            touched &= allowed
        rows = np.flatnonzero(touched)
        if len(rows) > top_k:
            # Ties at the cut-off must not depend on the order that the partition leaves.
            border = -np.partition(-scores[rows], top_k - 1)[top_k - 1]
            rows = rows[scores[rows] >= border]
        scored = [(self._keys[row], float(scores[row])) for row in rows]
        return sorted(scored, key=lambda pair: (-pair[1], pair[0]))[:top_k]

    def _accumulate(self, terms: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        size = len(self._keys)
        scores = np.zeros(size)
        touched = np.zeros(size, dtype=bool)
        if not self._total_length:  # no documents or only empty ones: the mean length is 0, a divisor below
            return scores, touched
        idf = self._idf_of_terms()
        lengths = np.asarray(self._lengths)
        average = self._total_length / len(self._row_of)
        for term, repeats in Counter(terms).items():
            term_id = self._term_id.get(term)
            if term_id is None:
                continue
            rows, counts = np.asarray(self._rows[term_id]), np.asarray(self._counts[term_id])
            norm = K1 * (1 - B + B * lengths[rows] / average)
            scores[rows] += repeats * idf[term_id] * counts * (K1 + 1) / (counts + norm)
            touched[rows] = True
        return scores, touched & np.asarray(self._alive, dtype=bool)

    def _idf_of_terms(self) -> NDArray[np.float64]:
        if self._idf is None:
            frequency = np.asarray(self._document_frequency, dtype=np.float64)
            idf = np.log(len(self._row_of) - frequency + 0.5) - np.log(frequency + 0.5)
            present = frequency > 0
            idf[~present] = 0.0
            mean = idf[present].mean() if present.any() else 0.0
            idf[present & (idf <= 0)] = EPSILON * mean if mean > 0 else EPSILON
            self._idf = idf
        return self._idf

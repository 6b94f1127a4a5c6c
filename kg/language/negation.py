"""Tells whether an English text says that something is not so."""

from __future__ import annotations

from locigraph.kg.language.tokens import words

# "t" is what remains of "don't"; most of these words are stop words, so a comparison of terms does not see them.
_NEGATIONS = frozenset(["no", "not", "never", "nor", "t", "cannot", "neither", "nothing", "nobody", "none", "without"])


def is_negated(text: str) -> bool:
    """Whether a text contains a negation, such as "never" or "didn't"."""
    return not _NEGATIONS.isdisjoint(words(text))

"""Compares texts regardless of case, punctuation and spacing, and keeps sets of them as hashes.

Checkpoints and adapters store the set of their training texts. It reveals training data in an evaluation even if the
conversations have other names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from locigraph.kg.language.terms import unspaced_characters
from locigraph.kg.language.tokens import normalised

_FILE = "wordings.npy"
_LEAST_WORDS = 8
_NOT_WORD = re.compile(r"[\W_]+")


def seen_spaces(details: Mapping[str, Any]) -> frozenset[str]:
    """The spaces that a checkpoint or adapter was trained or validated on, according to ``details`` in its manifest."""
    identity = details["identity"]
    return frozenset([*identity["train"], *identity["validation"]])


def wording(text: str) -> str:
    """A text normalised for comparison: case, punctuation, spacing and Unicode variants are removed."""
    return _NOT_WORD.sub(" ", normalised("NFKC", text).casefold()).strip()


def is_distinctive(text: str) -> bool:
    """Whether a text has at least eight words, so that two people are unlikely to say the same by chance.

    Where no blanks stand between words, two characters count as one.
    """
    return max(len(text.split()), unspaced_characters(text) // 2) >= _LEAST_WORDS


class SeenTexts:
    """A set of texts, compared by ``wording``. It holds only 64-bit hashes, from which the texts cannot be read.

    Args:
        texts: The members.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._hashes = {_hash(text) for text in texts}

    def __contains__(self, text: str) -> bool:
        return _hash(text) in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)

    @classmethod
    def union(cls, sets: Iterable[SeenTexts]) -> SeenTexts:
        """The union of several sets."""
        union = cls()
        for seen in sets:
            union._hashes |= seen._hashes
        return union

    def save(self, folder: Path) -> None:
        """Write the set to a file of the folder."""
        np.save(folder / _FILE, np.array(sorted(self._hashes), dtype="<u8"))

    @classmethod
    def read(cls, folder: Path) -> SeenTexts | None:
        """Read the set that ``save`` wrote to a folder; None if there is none.

        Raises:
            ValueError: If the file is damaged.
        """
        seen = cls()
        try:
            hashes = np.load(folder / _FILE, allow_pickle=False)
        except FileNotFoundError:
            return None
        except Exception as error:  # for a damaged header NumPy raises whatever Python's parser raises
            raise ValueError(f"{_FILE}: not a list of hashes ({error!r})") from error
        if hashes.dtype != np.dtype("<u8") or hashes.ndim != 1:
            raise ValueError(f"{_FILE}: expected a list of 64-bit hashes, found {hashes.dtype} {list(hashes.shape)}")
        seen._hashes = set(hashes.tolist())
        return seen


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(wording(text).encode(), digest_size=8).digest(), "little")

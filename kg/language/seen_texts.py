"""Which texts say the same but for case, punctuation and spacing, and sets of such texts that cannot be read.

A checkpoint and an adapter keep the set of what they have learnt from: conversations repeat under other names, and a
name alone would not show it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from locigraph.kg.language.tokens import normalised

_FILE = "wordings.npy"
_LEAST_WORDS = 8
_NOT_WORD = re.compile(r"[\W_]+")


def wording(text: str) -> str:
    """A text without case, punctuation, spacing and Unicode variants, which do not make two texts different."""
    return _NOT_WORD.sub(" ", normalised("NFKC", text).casefold()).strip()


def is_distinctive(text: str) -> bool:
    """Whether a text has the eight words that make it unlikely for two people to say the same by chance."""
    return len(text.split()) >= _LEAST_WORDS


class SeenTexts:
    """A set of texts by their wording. It holds hashes of 64 bits, from which no text can be read.

    Args:
        texts: Its members.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._hashes = {_hash(text) for text in texts}

    def __contains__(self, text: str) -> bool:
        return _hash(text) in self._hashes

    def __len__(self) -> int:
        return len(self._hashes)

    @classmethod
    def union(cls, sets: Iterable[SeenTexts]) -> SeenTexts:
        """The members of all of some sets."""
        made = cls()
        for each in sets:
            made._hashes |= each._hashes
        return made

    def save(self, folder: Path) -> None:
        """Write the set to a file of the folder."""
        np.save(folder / _FILE, np.array(sorted(self._hashes), dtype="<u8"))

    @classmethod
    def read(cls, folder: Path) -> SeenTexts | None:
        """The set of a folder; None where it has none.

        Raises:
            ValueError: If its file is damaged.
        """
        found = cls()
        try:
            hashes = np.load(folder / _FILE, allow_pickle=False)
        except FileNotFoundError:
            return None
        except Exception as error:  # of a damaged header NumPy raises whatever Python's own parser does
            raise ValueError(f"{_FILE}: not a list of hashes ({error!r})") from error
        if hashes.dtype != np.dtype("<u8") or hashes.ndim != 1:
            raise ValueError(f"{_FILE}: expected a list of 64-bit hashes, found {hashes.dtype} {list(hashes.shape)}")
        found._hashes = set(hashes.tolist())
        return found


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(wording(text).encode(), digest_size=8).digest(), "little")

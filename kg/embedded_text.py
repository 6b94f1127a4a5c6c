"""The text that a text encoder reads for a node: its description, and for a turn perhaps also the turn before it.

A reply such as "Yes, twice a week" says little by itself. An adapter that was trained with the turn before as context
reads both, so that the vector of the reply knows what was asked. All other nodes are described in full sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: Part of the ID of a text encoder that reads a turn together with the one before it. The store has no other knowledge
#: of text encoders, and keeps vectors by ID.
TURN_BEFORE = "+turn-before"
_WORDS_BEFORE = 40


class TextEncoder(Protocol):
    """Encodes texts as vectors."""

    @property
    def model_id(self) -> str:
        """ID of the model that makes the vectors; the store keeps them under it."""
        ...

    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        """One vector per text, float32 [texts, dim], of length 1; ``progress`` is the name on a progress bar."""
        ...


def reads_turn_before(model: str) -> bool:
    """Whether the text encoder of this ID reads a turn together with the one before it."""
    return TURN_BEFORE in model


def in_context(text: str, before: str) -> str:
    """A turn's description with that of the turn before it in the same session.

    Only the last 40 words of the earlier turn are kept: a reply usually refers to its end.
    """
    speaker, _, text_before = before.partition(": ")
    words = text_before.split()
    if len(words) > _WORDS_BEFORE:
        before = f"{speaker}: ... {' '.join(words[-_WORDS_BEFORE:])}"
    return f"{text}\n(in reply to {before})"


def once_neighbours(ranks: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places of turns that are neighbours, or were before turns of higher rank came between them.

    If ranks are the order in which the turns of a session arrived, these are all pairs of which one may have been the
    context of the other. Each turn is the higher one of at most two pairs, so there are fewer than twice as many pairs
    as turns.

    Args:
        ranks: The rank of each turn of a session, in the order of the session.

    Yields:
        The places of two turns, the earlier one first, with only higher ranks than theirs between them.
    """
    lower: list[int] = []  # places that no later one of the same or a lower rank hides
    for place, rank in enumerate(ranks):
        while lower and ranks[lower[-1]] > rank:
            yield lower.pop(), place
        if lower:
            yield lower[-1], place
            if ranks[lower[-1]] == rank:
                lower.pop()
        lower.append(place)


def turns_before(sessions: Sequence[str], spoken_at: Sequence[int]) -> list[int | None]:
    """For each turn the place of the last one before it in its session that was not spoken later; None without one.

    A turn that was spoken later is not yet known at the time of this turn, so its words must not be in this vector.

    Args:
        sessions: The session of each turn, in the order of the conversation.
        spoken_at: The seconds since 1970 at which each was spoken; 0 where that is not known.
    """
    places: list[int | None] = []
    earlier: dict[str, list[int]] = {}
    for place, (session, at) in enumerate(zip(sessions, spoken_at, strict=True)):
        known = earlier.setdefault(session, [])
        while known and spoken_at[known[-1]] > at:  # whatever may come before a later turn, this turn stands nearer
            known.pop()
        places.append(known[-1] if known else None)
        known.append(place)
    return places

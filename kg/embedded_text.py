"""The text that a text encoder reads for a node: its description, and for a turn perhaps also the turn before it.

A reply such as "Yes, twice a week" says little by itself. An adapter that was trained with the turn before as context
reads both, so that the vector of the reply knows what was asked. All other nodes are described in full sentences.

A long text is read in windows. Sentence encoders are trained on short texts and cut long ones, so the vector of a whole
page says little about any of its sentences, and nothing about its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

#: Part of the ID of a text encoder that reads a turn together with the one before it. The store has no other knowledge
#: of text encoders, and keeps vectors by ID.
TURN_BEFORE = "+turn-before"
_WORDS_BEFORE = 40
_MOST_BEFORE = 2 * _WORDS_BEFORE  # with a name of many words
_REPLY = "\n(in reply to "

#: Part of the ID of a text encoder that reads long texts in windows; earlier ones cut them.
WINDOWS = "+windows"
# Tokens of a window, and of the longest text that is read at once. Between 60 and 110 long talk is found about as well
# (docs/experiments/history.md, 2026-11-28). More than 80 windows would delay an addition by more than a second.
_WINDOW, _AT_ONCE, _MOST_WINDOWS = 80, 100, 80
_SPEAKER = re.compile(r"[^\n:]{1,60}: ")
# What a tokeniser most likely splits a word into: letters by eight, digits by three, other scripts and signs singly.
_PIECE = re.compile(r"[A-Za-z]{1,8}|[0-9]{1,3}|\S")
_LONGEST_WORD = 12  # pieces


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


def is_adapted(model: str) -> bool:
    """Whether the text encoder of this ID has an adapter, whose version then follows the model's name."""
    return "+" in model.replace(WINDOWS, "")


def in_context(text: str, before: str) -> str:
    """A turn's description with that of the turn before it in the same session.

    Only the last 40 words of the earlier turn are kept: a reply usually refers to its end.
    """
    speaker, _, text_before = before.partition(": ")
    words = text_before.split()
    if len(words) > _WORDS_BEFORE:
        before = f"{speaker}: ... {' '.join(words[-_WORDS_BEFORE:])}"
    return f"{text}{_REPLY}{before})"


def windows(text: str) -> list[str]:
    """The parts of a text that a text encoder reads one by one; their mean is the direction of its vector.

    Parts have about as many tokens as one another, at most about 80. Each begins with the speaker, if the text does;
    the turn before, if the text has one, goes with the first. Of a text of more than 80 parts the rest is not read.

    Returns:
        At least one part; a text of up to about 100 tokens is its own.
    """
    body, reply, before = text.rpartition(_REPLY)
    if not before.endswith(")") or len(before.split()) > _MOST_BEFORE:  # words of the turn itself
        body, reply, before = text, "", ""
    found = _SPEAKER.match(body)
    speaker = found[0] if found else ""
    pieces = [each.start() for each in _PIECE.finditer(body, len(speaker))]
    if len(pieces) <= _AT_ONCE:
        return [text]
    count = -(-len(pieces) // _WINDOW)
    starts = [len(speaker), *(_word_start(body, pieces, round(k * len(pieces) / count)) for k in range(1, count))]
    parts = [speaker + body[start:end].strip() for start, end in zip(starts, [*starts[1:], len(body)], strict=True)]
    parts[0] += reply + before
    return parts[:_MOST_WINDOWS]


def _word_start(text: str, pieces: Sequence[int], at: int) -> int:
    """Where the word begins in which a piece is; where the piece begins, if that is a word without an end."""
    for start in pieces[at : max(at - _LONGEST_WORD, 0) : -1]:
        if text[start - 1].isspace():
            return start
    return pieces[at]


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

"""The text that a text encoder reads for a node: its description, and for a turn perhaps also the turn before it.

A reply such as "Yes, twice a week" says little by itself. An adapter that was trained with the turn before as context
reads both, so that the vector of the reply knows what was asked. All other nodes are described in full sentences.
"""

from __future__ import annotations

#: Part of the ID of a text encoder that reads a turn together with the one before it. The store has no other knowledge
#: of text encoders, and keeps vectors by ID.
TURN_BEFORE = "+turn-before"
_WORDS_BEFORE = 40


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

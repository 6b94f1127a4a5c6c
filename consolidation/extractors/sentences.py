"""Small text tools of the rule-based stages."""

from __future__ import annotations

import re

from locigraph.kg.language.tokens import STOP_WORDS, words

_BREAK = re.compile(r"(?<=[.!?])\s+|\n+")
_PHRASE_BREAK = re.compile(r"[^\w'\s-]|\d")

# First person to the speaker's name, longest first so that "I'm" is not read as "I".
_FIRST_PERSON: tuple[tuple[str, str], ...] = (
    (r"\bI['’]m\b", "{name} is"), (r"\bI am\b", "{name} is"), (r"\bI['’]ve\b", "{name} has"),
    (r"\bI have\b", "{name} has"), (r"\bI['’]d\b", "{name} would"), (r"\bI['’]ll\b", "{name} will"),
    (r"\bI was\b", "{name} was"), (r"\bI\b", "{name}"), (r"\b[Mm]yself\b", "{name}"), (r"\b[Mm]y\b", "{name}'s"),
    (r"\b[Mm]ine\b", "{name}'s"), (r"\b[Mm]e\b", "{name}"),
)  # fmt: skip


def sentences(text: str) -> list[str]:
    """Sentences of an utterance, trimmed, none empty."""
    return [part.strip() for part in _BREAK.split(text) if part.strip()]


def in_third_person(sentence: str, speaker: str) -> str:
    """The sentence with the speaker's name for "I", "my" and "me"; no other word is touched.

    A sentence without first person gets the name in front, so that it still says whose words it is.
    """
    result = sentence
    for pattern, replacement in _FIRST_PERSON:
        name = speaker.replace("\\", r"\\")  # a backslash would be read as a reference to a group
        result = re.sub(pattern, replacement.format(name=name), result)
    return result if speaker in result else f"{speaker}: {result}"


def phrases(text: str, *, exclude: frozenset[str] = frozenset()) -> list[str]:
    """Runs of two to four content words, in order of appearance, without repetition.

    Source:
        Rose et al. 2010, "Automatic keyword extraction from individual documents" (RAKE's candidate step).
    """
    found: dict[str, None] = {}
    for part in _PHRASE_BREAK.split(text):
        run: list[str] = []
        for word in [*words(part), ""]:
            if word and word not in STOP_WORDS and word not in exclude and len(word) > 2:
                run.append(word)
                continue
            if 2 <= len(run) <= 4:
                found.setdefault(" ".join(run))
            run = []
    return list(found)

"""Finds names in text by their capital letters, for the rule-based extractor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from locigraph.consolidation.blueprint import MAX_LABEL, Mention
from locigraph.consolidation.extractors.sentences import ABBREVIATIONS
from locigraph.kg.language.dates import resolve_times
from locigraph.kg.language.tokens import STOP_WORDS, normalised, words

_CAPITAL = "".join(sign for sign in map(chr, range(0x250)) if sign.isupper())  # of the Latin script
_RUN = rf"(?:St\. )?[{_CAPITAL}][\w'’]+(?:[ \t]+(?:of[ \t]+|the[ \t]+)?[{_CAPITAL}][\w'’]+)*"
_AFTER_TITLE = "|".join(rf"(?<=\b{re.escape(each)}\.[ \t])" for each in ABBREVIATIONS)
# Not at the beginning of a sentence or line; a line that is nothing but a name is one, as in a list.
_NAME = re.compile(rf"(?:(?<![.!?]\s)(?<![\n\r])(?<!^)|{_AFTER_TITLE})\b({_RUN})|(?<=\n)({_RUN})(?=[ \t]*(?:\n|$))")
_SHORTEST = 3
_ANY_DAY = date(2024, 1, 1)  # whether words name a time does not depend on the day


def capitalised_names(text: str) -> Iterator[Mention]:
    """Runs of capitalised words that do not begin a sentence, each once, all of the kind "other".

    Times and mere stop words are left out.
    """
    seen = set()
    for match in _NAME.finditer(normalised("NFC", text)):
        parts = (match[1] or match[2]).split()
        if len(parts) > 1 and _is_time(parts[-1]):  # "lunch with Anna Tuesday"
            del parts[-1]
        name = " ".join(parts).removesuffix("'s").removesuffix("’s")
        # "I'm", for example, consists of two stop words; shorter names are mostly exclamations.
        is_name = _SHORTEST <= len(name) <= MAX_LABEL and set(words(name)) - STOP_WORDS and name not in ABBREVIATIONS
        if is_name and name not in seen and not _is_time(name):
            seen.add(name)
            yield Mention(name, "other")


def _is_time(name: str) -> bool:
    """Whether the whole name is a time expression, such as "Monday" or "Last June"."""
    expressions = (time.text for where in ("in", "on") for time in resolve_times(f"{where} {name}", _ANY_DAY))
    return any(text.endswith(name) for text in expressions)

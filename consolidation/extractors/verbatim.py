"""What the rules keep of a turn in a language whose grammar they do not know: its statements as they were said."""

from __future__ import annotations

import re
from collections.abc import Iterator

from locigraph.consolidation.blueprint import Mention
from locigraph.consolidation.extractors.names import capitalised_names
from locigraph.consolidation.extractors.sentences import sentences, unquoted
from locigraph.kg.language.dates import resolve_times
from locigraph.kg.language.foreign_times import names_a_time
from locigraph.kg.language.languages import Language
from locigraph.kg.language.terms import terms
from locigraph.kg.types import Turn

# German writes all nouns with a capital letter. Names rarely follow an article, a pronoun, a preposition that holds an
# article, or an adjective, and rarely have the endings of nouns that are made of other words.
_BEFORE_NOUNS = re.compile(
    r"\b(?:d(?:er|ie|as|en|em|es)|[mkds]?ein(?:e[mnrs]?)?|ihre?[mnrs]?|unsere?[mnrs]?|eure?[mnrs]?|diese[mnrs]?|jede[mnrs]?"
    r"|kein(?:e[mnrs]?)?|am|im|ins|ans|zum|zur|vom|beim|viel|wenig|mehr|zwei|drei|vier|paar|\w{3,30}e[mnrs]?|\d+)\s+$"
)
_NOUN = re.compile(r"\w{1,40}(?:ung|heit|keit|schaft|tion|tät|chen|nis|zeit|tag|abend|haus|stück)(?:e[ns]?|s|n)?")
_ORDINAL = re.compile(r"\b(\d{1,2})\. (?=[^\W\d])")
_NO_BREAK = "\u2060"  # stands for a blank that divides nothing
_NEARBY = 30  # characters before a word that hold the one before it
_QUESTION = ("?", "？", "؟", ";")  # a question in Greek ends in what looks like a semicolon


def said_verbatim(turn: Turn, *, at_least: int, is_long: bool) -> Iterator[tuple[str, bool]]:
    """The statements of a turn, each with the speaker's name before it, and whether it names a time.

    Questions, sentences that are only quoted, and sentences of fewer than ``at_least`` terms are left out; of a long
    turn all but those that name a time.
    """
    day = turn.spoken_at.date() if turn.spoken_at else None
    # The full stop of "14. März" ends no sentence.
    parts = _ORDINAL.sub(lambda match: f"{match[1]}.{_NO_BREAK}", turn.text)
    for joined, own_words in unquoted(sentences(parts)):
        sentence = joined.replace(_NO_BREAK, " ")
        if sentence.endswith(_QUESTION) or not own_words.strip():
            continue
        has_time = bool(resolve_times(sentence, day))
        if (has_time or not is_long) and len(terms(sentence)) >= at_least:
            yield f"{turn.speaker}: {sentence}", has_time


def foreign_names(text: str, language: Language) -> Iterator[Mention]:
    """The names in a text of another language than English, by their capital letters."""
    for mention in capitalised_names(text):
        if names_a_time(mention.name, language):
            continue
        if language.name == "de":
            at = text.find(mention.name)
            if _BEFORE_NOUNS.search(text, max(0, at - _NEARBY), max(0, at)) or _NOUN.fullmatch(mention.name):
                continue
        yield mention

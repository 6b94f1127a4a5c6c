"""Words what is known about a person with a language model: fewer sentences, each with the statements it rests on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from locigraph.consolidation.errors import ReplyFormatError
from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.prompting import ask
from locigraph.consolidation.replies import Form, named, nonblank_line
from locigraph.kg.errors import shortened
from locigraph.kg.language.calendar_names import MONTHS
from locigraph.kg.language.tokens import STOP_WORDS

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient
    from locigraph.kg.types import SpaceId

#: Name of this stage, for which a client is configured and the ledger counts usage.
STAGE = "profile"
_MOST_STATEMENTS = 40
_Line = AfterValidator(nonblank_line)
_WORD = re.compile(r"\w+")
_COUNTS = frozenset({
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "dozen", "twenty",
    "thirty", "forty", "fifty", "hundred", "thousand", "million",
})  # fmt: skip


class SentenceForm(Form):
    """One sentence as a language model writes it."""

    text: Annotated[str, Field(min_length=1, max_length=600), _Line]
    statements: list[Annotated[str, Field(json_schema_extra={"enum": "statements"})]] = Field(
        min_length=1, max_length=_MOST_STATEMENTS
    )


class SentencesForm(Form):
    """What a language model replies."""

    sentences: list[SentenceForm] = Field(min_length=1, max_length=_MOST_STATEMENTS)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and the positions of the statements that it rests on, in ascending order."""

    text: str
    statements: tuple[int, ...]


def sentences_of(
    client: ChatClient, speaker: str, heading: str, statements: Sequence[tuple[str, str | None]], space: SpaceId
) -> list[Sentence]:
    """What statements about a person say, in fewer sentences; those whose wordings are unusable stay as they are.

    Statements that were worded before, in the same company, are not sent again: the client's cassette has the reply.

    Args:
        client: The model.
        speaker: The person.
        heading: What the statements are about.
        statements: Text and day of each.
        space: The space that they are from, for which usage is counted.

    Raises:
        LanguageModelError: If the model cannot be asked, or a limit is reached.
    """
    found: list[Sentence] = []
    for start in range(0, len(statements), _MOST_STATEMENTS):
        part = statements[start : start + _MOST_STATEMENTS]
        try:
            worded = _asked(client, speaker, heading, part, space)
        except ReplyFormatError:
            worded = [Sentence(text, (place,)) for place, (text, _) in enumerate(part)]
        found += [Sentence(each.text, tuple(start + place for place in each.statements)) for each in worded]
    return found


def _asked(
    client: ChatClient, speaker: str, heading: str, statements: Sequence[tuple[str, str | None]], space: SpaceId
) -> list[Sentence]:
    shown = {f"s{number}": number for number in range(len(statements))}
    document = {
        "person": speaker,
        "heading": heading,
        "statements": [
            {"id": name, "text": statements[number][0], "day": statements[number][1]} for name, number in shown.items()
        ],
    }

    def read(reply: SentencesForm) -> list[Sentence]:
        made = [_sentence(each, shown, statements, f"{speaker} {heading}") for each in reply.sentences]
        missing = {*shown.values()}.difference(*(each.statements for each in made))
        if missing:
            raise ValueError(f"no sentence rests on statement s{min(missing)}; every statement must be said")
        return made

    return ask(client, Purpose(STAGE, space), document, SentencesForm, read, enums={"statements": [*shown]})


def _sentence(
    form: SentenceForm, shown: Mapping[str, int], statements: Sequence[tuple[str, str | None]], known: str
) -> Sentence:
    """A sentence of a reply; raises ValueError if it says a number or a name that its statements do not."""
    places = sorted({named(name, shown) for name in form.statements})
    said = {word.casefold() for word in _WORD.findall(" ".join([known, *(statements[place][0] for place in places)]))}
    days = [date.fromisoformat(day) for place in places if (day := statements[place][1]) is not None]
    # A day may be said in words; its numbers are those of nothing else.
    months = {MONTHS[day.month - 1] for day in days}
    is_dated = not months.isdisjoint(word.casefold() for word in _WORD.findall(form.text))
    dated = {str(number) for day in days for number in (day.year, day.month, day.day)} if is_dated else set[str]()
    for word in _WORD.findall(form.text):
        is_number = word[0].isdigit() or word.casefold() in _COUNTS
        # "She" where a sentence begins is none, but "May" is.
        is_name = word[0].isupper() and (word.casefold() not in STOP_WORDS or word.casefold() in MONTHS)
        if (is_number and word.lstrip("0") in dated) or word.casefold() in months:
            continue
        if (is_number or is_name) and word.casefold() not in said:
            raise ValueError(f"the sentence says {shortened(word)}, which its statements do not")
    return Sentence(form.text, tuple(places))

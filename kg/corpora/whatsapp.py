"""Reads the text file that WhatsApp's "export chat" writes, without media.

Android writes ``12/03/2024, 18:40 - Ana: Hello``, iOS ``[12/03/2024, 18:40:12] Ana: Hello``; a line without such a
beginning continues the previous message. Whether the day or the month comes first depends on the phone; a number above
12 decides it for the whole file. The times have no zone and are read as UTC. A message's id is derived from its time,
speaker and text, so that it is the same in an export that begins later, or from which other messages were deleted.
Notices, media, deleted messages and empty messages are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import ContentNames, Utterance, decode, number_turns, passed_over
from locigraph.kg.errors import CorpusFormatError
from locigraph.kg.types import UNSTORABLE, SpaceId

_LINE = re.compile(
    r"\[?(\d{1,4})[./-](\d{1,2})[./-](\d{2,4}),? (\d{1,2}):(\d{2})(?::(\d{2}))? ?([AaPp]\.?[Mm]\.?)?(?:\]| -) (.*)"
)
# Direction marks and special spaces, which some phones put around times and names.
_INVISIBLE = str.maketrans({"\u200e": "", "\u200f": "", "\u202f": " ", "\u00a0": " ", "\ufeff": "", "\r": ""})
# Names of attached files begin with eight digits on iOS; ``null`` stands for what the export cannot express.
_MEDIA = re.compile(
    r"<[^<>\s]{1,20} [^<>]{1,20}>|<[^<>\d]{1,20}\d{8}-[^<>]{1,255}>"
    r"|(?:image|video|audio|sticker|GIF|document|contact card) omitted|\S{1,120} \(file attached\)|null",
    re.IGNORECASE,
)
_DELETED = ("This message was deleted", "You deleted this message")
_EDITED = "<This message was edited>"
# A notice may quote a name or subject that contains ": ".
_QUOTATION_MARKS = frozenset('"“”„«»')


class _Message(NamedTuple):
    line: int
    numbers: tuple[int, int, int]  # of the date, in the order of the file
    clock: tuple[int, int, int]
    lines: list[str]


def read(path: str) -> Corpus:
    """Read an exported chat; the conversation is named after the file without its suffix, and each day is a session.

    Raises:
        CorpusFormatError: If no line is a message, or a date does not exist.
    """
    messages = list(_messages(path))
    if not messages:
        expected = "lines such as '12/03/2024, 18:40 - Ana: Hello'"
        raise CorpusFormatError(path, None, "(file)", decode(path)[:40], expected)
    order, is_known = _order(path, messages)
    utterances: list[Utterance] = []
    names = ContentNames()
    media = notices = deleted = 0
    for message in messages:
        time = _time(path, message, order)
        speaker, colon, first = message.lines[0].partition(": ")
        text = "\n".join([first, *message.lines[1:]]).strip().removesuffix(_EDITED).rstrip()
        if not colon or not _QUOTATION_MARKS.isdisjoint(speaker):
            notices += 1  # system notices, such as "Ana added Tom"
        elif text.removesuffix(".") in _DELETED:
            deleted += 1
        elif _MEDIA.fullmatch(text) or not text:
            media += 1
        else:
            day, speaker = time.date().isoformat(), speaker.strip()
            turn_id = names.name(time, speaker, text)
            utterances.append(Utterance(turn_id, day, speaker, text, time))
    space = SpaceId(Path(path).stem)
    counts = {
        "notices without a speaker": notices, "media and empty messages": media, "deleted messages": deleted
    }  # fmt: skip
    notes = [*passed_over(counts)]
    if not is_known:
        notes.append("no date shows whether the day or the month comes first; dates were read with the day first")
    return Corpus((Conversation(space, number_turns(space, utterances)),), notes=tuple(notes))


def _messages(path: str) -> Iterator[_Message]:
    message: _Message | None = None
    for number, line in enumerate(decode(path).translate(_INVISIBLE).split("\n"), start=1):
        if UNSTORABLE.search(line):
            raise CorpusFormatError(path, None, f"line {number}", line[:40], "text without NUL or lone surrogates")
        match = _LINE.match(line)
        if match is None:
            if message is not None:
                message.lines.append(line)
            continue
        if message is not None:
            yield message
        first, second, third, hour, minute, seconds = (int(part or 0) for part in match.groups()[:6])
        half_of_day = (match[7] or "").lower()[:1]
        hour = hour % 12 + (12 if half_of_day == "p" else 0) if half_of_day else hour
        message = _Message(number, (first, second, third), (hour, minute, seconds), [match[8]])
    if message is not None:
        yield message


def _order(path: str, messages: list[_Message]) -> tuple[tuple[int, int, int], bool]:
    """Indexes of year, month and day among the numbers of a date, and whether the file determines them."""
    if all(message.numbers[0] > 31 for message in messages):
        return (0, 1, 2), True
    day_first = next((m for m in messages if m.numbers[0] > 12), None)
    month_first = next((m for m in messages if m.numbers[1] > 12), None)
    if day_first and month_first:
        raise CorpusFormatError(
            path, None, f"line {month_first.line}", month_first.numbers, f"the day first, as in line {day_first.line}"
        )
    return ((2, 0, 1) if month_first else (2, 1, 0)), bool(day_first or month_first)


def _time(path: str, message: _Message, order: tuple[int, int, int]) -> datetime:
    year, month, day = (message.numbers[place] for place in order)
    try:
        return datetime(year + 2000 if year < 100 else year, month, day, *message.clock, tzinfo=UTC)
    except ValueError as error:
        where = f"line {message.line}"
        raise CorpusFormatError(path, None, where, message.numbers, f"a date and time ({error})") from None


FORMAT = CorpusFormat(
    "whatsapp",
    read,
    is_export=True,
    makes_ids=True,
    nameless="_chat",  # iOS gives every chat this file name
)

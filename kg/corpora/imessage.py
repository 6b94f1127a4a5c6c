"""Reads the text files of imessage-exporter, each with one chat.

A message is a line with its time, a line with its sender, and lines of text, up to an empty line before the next time:
``May 17, 2022  5:29:42 PM (Read by you after 1 minute)``. The times have no zone and are read as UTC. Notices,
reactions and empty messages are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import ContentNames, Skipped, Utterance, decode, number_turns, require_storable
from locigraph.kg.errors import CorpusFormatError
from locigraph.kg.types import SpaceId

_TIME = re.compile(r"([A-Z][a-z]{2} \d{2}, \d{4}) {1,2}(\d{1,2}:\d{2}:\d{2} [AP]M)( \([^()]{1,100}\))?(.*)")
_REACTIONS = "Tapbacks:"
_REPLY = "This message responded to an earlier message."


def read(path: str) -> Corpus:
    """Read a chat; the conversation is named after the file without its suffix, and each day is a session.

    Raises:
        CorpusFormatError: If no line is the time of a message, or no message can be read.
    """
    skipped, names = Skipped(), ContentNames()
    utterances: list[Utterance] = []
    for number, lines in _blocks(path):
        with skipped.unreadable("messages"):
            utterances += _said(path, number, lines, skipped, names)
    if not utterances:
        skipped.notes(has_turns=False)
        expected = "times such as 'May 17, 2022  5:29:42 PM', each on a line"
        raise CorpusFormatError(path, None, "(file)", decode(path)[:40], expected)
    space = SpaceId(Path(path).stem)
    return Corpus((Conversation(space, number_turns(space, utterances)),), notes=skipped.notes(has_turns=True))


def _blocks(path: str) -> Iterator[tuple[int, list[str]]]:
    """Each message with the number of its first line."""
    block: list[str] = []
    first, is_after_gap, is_reply = 0, True, False
    for number, line in enumerate(decode(path).split("\n"), start=1):
        is_time = _TIME.fullmatch(line.strip()) is not None
        is_reply = (is_time and line.startswith(" ")) or (is_reply and line.startswith(" "))
        if is_reply:
            continue  # a reply stands below what it answers, indented, and once more in its own place
        if is_after_gap and is_time:
            if block:
                yield first, block
            block, first = [], number
        if line.strip() or block:
            block.append(line)
        is_after_gap = not line.strip()
    if block:
        yield first, block


def _said(path: str, number: int, lines: list[str], skipped: Skipped, names: ContentNames) -> Iterator[Utterance]:
    match = _TIME.fullmatch(lines[0].strip())
    if match is None or match[4].strip():
        skipped.count("notices")
        return
    speaker, *rest = [line.strip() for line in lines[1:] if line.strip() != _REPLY] or [""]
    text = "\n".join(rest[: rest.index(_REACTIONS)] if _REACTIONS in rest else rest).strip()
    if not speaker or not text:
        skipped.count("messages without text")
        return
    where = f"line {number}"
    require_storable(path, where, speaker, text)
    try:
        time = datetime.strptime(f"{match[1]} {match[2]}", "%b %d, %Y %I:%M:%S %p").replace(tzinfo=UTC)
    except ValueError as error:
        raise CorpusFormatError(path, None, where, lines[0][:40], f"a date and time ({error})") from None
    yield Utterance(names.name(time, speaker, text), time.date().isoformat(), speaker, text, time)


FORMAT = CorpusFormat(
    "imessage",
    read,
    recognises=lambda beginning: any(_TIME.fullmatch(line) for line in beginning.split("\n")[:5]),
    is_export=True,
    makes_ids=True,
)

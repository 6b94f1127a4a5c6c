"""Reads the text files of imessage-exporter, each with one chat.

A message is a line with its time, a line with its sender, and lines of text, up to an empty line before the next time:
``May 17, 2022  5:29:42 PM (Read by you after 1 minute)``. The times have no zone and are read as UTC. Notices,
reactions and empty messages are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import (
    ContentNames,
    Skipped,
    Utterance,
    decode,
    number_turns,
    require_storable,
    stem_of,
)
from locigraph.kg.errors import CorpusFormatError
from locigraph.kg.types import SpaceId

_READ = r"( \((?:[^()]|\([^()]{0,50}\)){1,100}\))?"  # such as (Read by Bob (work) after 1 minute)
_TIME = re.compile(rf"([A-Z][a-z]{{2}} \d{{2}}, \d{{4}}) {{1,2}}(\d{{1,2}}:\d{{2}}:\d{{2}} [AP]M){_READ}(.*)")
_REPLY = "This message responded to an earlier message."
# Below either of these, which somebody may also have written.
_REACTIONS = re.compile(r"\n(?:Tapbacks|Reactions):((?:\n\w[^\n]{0,30} by [^\n]{1,200})+)\n*\Z|\nTapbacks:\n[^\0]*\Z")
_ATTACHMENT = re.compile(r"(?:~?/.{0,300}/[Aa]ttachments|attachments/\d{1,9})/.{1,300}\.\w{1,5}")


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
    space = SpaceId(stem_of(path))
    return Corpus((Conversation(space, number_turns(space, utterances)),), notes=skipped.notes(has_turns=True))


@dataclass
class _Block:
    """A message as it stands in the file: the number of its first line, its lines, and its replies' first lines.

    A reply stands below what it answers, and once more in its own place. Its first lines are indented, but those of
    further paragraphs are not, so that only its own place tells them from what follows.
    """

    number: int
    lines: list[str] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    after_replies: list[str] = field(default_factory=list)

    def said(self, blocks: Mapping[str, _Block]) -> list[str]:
        """The lines without those of its replies; ``blocks`` are those of the file by their first line."""
        repeated = {line for reply in self.replies if reply in blocks for line in blocks[reply].lines}
        return self.lines + [line for line in self.after_replies if line not in repeated]


def _blocks(path: str) -> Iterator[tuple[int, list[str]]]:
    """Each message with the number of its first line."""
    blocks: list[_Block] = []
    is_after_gap, is_reply = True, False
    for number, line in enumerate(decode(path).split("\n"), start=1):
        is_time = _TIME.fullmatch(line.strip()) is not None
        if is_time and line.startswith(" ") and blocks:
            is_reply = True
            blocks[-1].replies.append(line.strip())
        elif is_time and is_after_gap:
            blocks.append(_Block(number))
        is_after_gap = not line.strip()
        is_reply = is_reply and not is_after_gap
        if blocks and not is_reply:
            block = blocks[-1]
            (block.after_replies if block.replies else block.lines).append(line)
        elif not blocks and line.strip():
            blocks.append(_Block(number, [line]))
    by_beginning = {each.lines[0].strip(): each for each in blocks}
    for each in blocks:
        yield each.number, each.said(by_beginning)


def _said(path: str, number: int, lines: list[str], skipped: Skipped, names: ContentNames) -> Iterator[Utterance]:
    match = _TIME.fullmatch(lines[0].strip())
    if match is None or match[4].strip():
        skipped.count("notices")
        return
    speaker, *rest = [line.strip() for line in lines[1:] if line.strip() != _REPLY] or [""]
    text = _REACTIONS.sub("", "\n".join(["", *rest]))
    text = "\n".join(line for line in text.split("\n") if not _ATTACHMENT.fullmatch(line)).strip()
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

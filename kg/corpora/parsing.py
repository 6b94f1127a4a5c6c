"""Validated access to parsed JSON: every error names the file, the conversation, the field and the value."""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

from locigraph.kg.corpora.corpus import Conversation, Corpus
from locigraph.kg.errors import CorpusFileError, CorpusFormatError
from locigraph.kg.files import parsed_json
from locigraph.kg.times import TIME_RANGE, in_utc, is_in_range, read_time
from locigraph.kg.types import UNSTORABLE, SpaceId, Turn, TurnId, title_of

_NOT_SPACE = re.compile(r"\S")
_EPOCH = re.compile(r"\d{9,13}(?:\.\d{1,9})?")
_MILLISECONDS = 10**11  # as seconds it would be the year 5138


@dataclass(frozen=True)
class Record:
    """A JSON object with its location in a file.

    Args:
        data: The parsed value; anything but an object is an error.
        path: Path of the file, shown in errors.
        conversation: Id of the conversation, shown in errors; None while unknown.
        field: Path of the object inside the conversation, shown in errors.
    """

    data: Any
    path: str
    conversation: str | None
    field: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.data, dict):
            raise self.error(None, self.data, "an object")

    def _name(self, key: object) -> str:
        if key is None:
            return self.field or "(top)"
        return f"{self.field}.{key}" if self.field else str(key)

    def error(self, key: object, value: object, expected: str) -> CorpusFormatError:
        """Make an error about one field of this object."""
        return CorpusFormatError(self.path, self.conversation, self._name(key), value, expected)

    def string(self, key: str) -> str:
        """The value of a key, which must be a non-empty string."""
        value = self.data.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, value, "a non-empty string")
        return self.storable(key, value)

    def text(self, key: str) -> str:
        """The value of a key, which must be a string but may be empty."""
        value = self.data.get(key)
        if not isinstance(value, str):
            raise self.error(key, value, "a string")
        return self.storable(key, value)

    def storable(self, key: str, value: str) -> str:
        """A text that was read for a key, or made of what was; one that no store could hold is an error."""
        if UNSTORABLE.search(value):
            raise self.error(key, value, "text without NUL characters or lone surrogates")
        return value

    def optional_string(self, key: str) -> str | None:
        """The string value of a key; None if it is absent, null or blank."""
        value = self.data.get(key)
        if value is not None and not isinstance(value, str):
            raise self.error(key, value, "a string or null")
        return self.storable(key, value) if value and value.strip() else None

    def record(self, key: str) -> Record:
        """The value of a key, which must be an object."""
        return Record(self.data.get(key), self.path, self.conversation, self._name(key))

    def items(self, key: str, *, required: bool = True) -> list[Any]:
        """The list value of a key; empty if the key is absent and not required."""
        value = self.data.get(key, None if required else [])
        if not isinstance(value, list):
            raise self.error(key, value, "a list")
        return value

    def records(self, key: str, *, required: bool = True) -> Iterator[Record]:
        """The objects in the list value of a key."""
        for number, value in enumerate(self.items(key, required=required)):
            yield Record(value, self.path, self.conversation, f"{self._name(key)}[{number}]")

    def strings(self, key: str, *, required: bool = True) -> tuple[str, ...]:
        """The strings in the list value of a key."""
        values = self.items(key, required=required)
        for number, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error(f"{key}[{number}]", value, "a string")
            self.storable(f"{key}[{number}]", value)
        return tuple(cast(list[str], values))

    def timestamp(self, key: str) -> datetime | None:
        """The ISO 8601 time of a key, read as UTC if it has no zone; None if absent, null or blank."""
        if self.optional_string(key) is None:
            return None
        return self.time(key, read_time, "an ISO 8601 date-time")

    def epoch(self, key: str) -> datetime:
        """The time of a key whose value is seconds or milliseconds since 1970, as a number or a string of digits."""
        value = self.data.get(key)
        try:
            seconds = float("nan" if isinstance(value, bool) else value)
            time = datetime.fromtimestamp(seconds / 1_000 if seconds > _MILLISECONDS else seconds, tz=UTC)
        except (TypeError, ValueError, OverflowError, OSError):
            raise self.error(key, value, "seconds since 1970") from None
        if not is_in_range(time):
            raise self.error(key, value, TIME_RANGE)
        return time

    def moment(self, key: str) -> datetime | None:
        """The time of a key whose value is ISO 8601 or seconds since 1970; None if absent, null or blank."""
        value = self.data.get(key)
        is_number = isinstance(value, str) and _EPOCH.fullmatch(value.strip())
        return self.timestamp(key) if value is None or (isinstance(value, str) and not is_number) else self.epoch(key)

    def time(self, key: str, read: Callable[[str], datetime], expected: str) -> datetime:
        """The time to which ``read`` converts the string value of a key, in UTC; read as UTC if it has no zone."""
        value = self.string(key)
        try:
            time = read(value)
        except ValueError:
            raise self.error(key, value, expected) from None
        if not is_in_range(time):
            raise self.error(key, value, TIME_RANGE)
        return in_utc(time)


def by_conversation(
    named: Iterable[tuple[str, Record]], field: str, *, entry: str = "conversation"
) -> Iterator[tuple[SpaceId, Record]]:
    """The records of a file by the names of their conversations, which errors then show in place of the position.

    Args:
        named: The name of each conversation and its record.
        field: The field that holds the name; shown in errors, as is the kind of ``entry``.
        entry: What a record is in the file.

    Raises:
        CorpusFormatError: If two records have the same name.
    """
    earlier: set[str] = set()
    for name, record in named:
        if name in earlier:
            raise CorpusFormatError(record.path, name, field, name, f"an id that no earlier {entry} has")
        earlier.add(name)
        yield SpaceId(name), Record(record.data, record.path, name)


class Skipped:
    """What a reader of exports leaves out, by kind: one bad record never costs a file, but is counted and named."""

    def __init__(self) -> None:
        self._counts = Counter[str]()
        self._first: CorpusFormatError | None = None

    def count(self, kind: str) -> None:
        """Note that one more of a kind, such as ``messages without text``, is left out."""
        self._counts[kind] += 1

    @contextmanager
    def unreadable(self, kind: str) -> Iterator[None]:
        """Leave out what raises CorpusFormatError within the block, as one more of a kind that cannot be read."""
        try:
            yield
        except CorpusFormatError as error:
            self.note(error, kind)

    def note(self, error: CorpusFormatError, kind: str) -> None:
        """Note that one more of a kind is left out because of an error."""
        self._counts[f"{kind} that cannot be read"] += 1
        self._first = self._first or error

    def notes(self, *, has_turns: bool) -> tuple[str, ...]:
        """A note for each kind with its number, and the first error.

        Raises:
            CorpusFormatError: The first error, if nothing else was read.
        """
        if self._first is not None and not has_turns:
            raise self._first
        first = () if self._first is None else (f"the first that cannot be read: {self._first}",)
        return (*(f"skipped {kind}: {count:,}" for kind, count in sorted(self._counts.items())), *first)


def forwarded(text: str, author: Any) -> str:
    """A text of somebody else, as it stands in the turn of the one who passes it on."""
    whose = f" from {author.strip()}" if isinstance(author, str) and author.strip() else ""
    return f"Forwarded{whose}: {text}"


def corpus_of(
    records: Iterable[Record],
    name_of: Callable[[Record], str],
    read: Callable[[Record, Skipped], Iterable[Utterance]],
    skipped: Skipped,
    *,
    title: str | None = None,
) -> Corpus:
    """The corpus of an export; a conversation that cannot be read, or has the name of an earlier one, is left out.

    Args:
        records: A record for each conversation.
        name_of: Name of the conversation of a record.
        read: The turns of a conversation, given its record, whose errors show the name; and where it counts what it
            leaves out.
        skipped: Counts what is left out.
        title: Field that holds the title of a conversation; None if the format has none.

    Raises:
        CorpusFormatError: If nothing can be read; the first error.
    """
    found: dict[SpaceId, Conversation] = {}
    for record in records:
        with skipped.unreadable("conversations"):
            space = SpaceId(name_of(record))
            if space in found:
                raise CorpusFormatError(record.path, space, "id", space, "an id that no earlier conversation has")
            unique: dict[str, Utterance] = {}
            for utterance in read(Record(record.data, record.path, space), skipped):
                if unique.setdefault(utterance.turn_id, utterance) != utterance:
                    skipped.count("messages with the ID of another")
            called = None if title is None else title_of(record.data.get(title))
            found[space] = Conversation(space, number_turns(space, [*unique.values()]), title=called)
    conversations = tuple(found.values())
    return Corpus(conversations, notes=skipped.notes(has_turns=any(each.turns for each in conversations)))


#: Speaker names for the message roles of chat APIs; other roles are instructions and tools.
SPEAKERS = {"user": "User", "assistant": "Assistant"}


@dataclass(frozen=True)
class Utterance:
    """A turn without a position in its conversation."""

    turn_id: str
    session_id: str
    speaker: str
    text: str
    spoken_at: datetime | None
    image_caption: str | None = None


class ContentNames:
    """Generates turn ids from the content of turns, for exports that have no message ids.

    So a turn has the same id in an export that begins later, or from which other messages were deleted.
    """

    def __init__(self) -> None:
        self._alike = Counter[str]()

    def name(self, time: datetime | None, speaker: str, text: str) -> str:
        """The id of the next turn: its time, with seconds unless they are 0, and the hash of its content."""
        beginning = "m" if time is None else f"{time:%Y-%m-%dT%H:%M:%S}".removesuffix(":00")
        words = hashlib.sha256(f"{speaker}: {text}".encode()).hexdigest()[:8]
        name = f"{beginning}:{words}"
        self._alike[name] += 1
        return name if self._alike[name] == 1 else f"{name}:{self._alike[name]}"


def by_day(utterances: Sequence[Utterance]) -> list[Utterance]:
    """The utterances of a chat, each in the session of its day; without a time, in that of the one before or after."""
    days = [None if each.spoken_at is None else each.spoken_at.date().isoformat() for each in utterances]
    day = next((each for each in days if each is not None), "undated")
    return [replace(each, session_id=(day := new or day)) for each, new in zip(utterances, days, strict=True)]


def stem_of(path: str) -> str:
    """The name of a file without its suffix, and without that of its compression."""
    return Path(path.removesuffix(".gz")).stem


def require_storable(path: str, where: str, *texts: str) -> None:
    """Raise CorpusFormatError if no store could hold one of some texts."""
    for text in texts:
        if UNSTORABLE.search(text):
            raise CorpusFormatError(path, None, where, text[:40], "text without NUL or lone surrogates")


def number_turns(space: SpaceId, utterances: Sequence[Utterance]) -> tuple[Turn, ...]:
    """Convert utterances, given in conversation order, to turns with positions from 0."""
    return tuple(
        Turn(
            space, TurnId(u.turn_id), str(space), u.session_id, position, u.speaker, u.text, u.spoken_at,
            u.image_caption,
        )
        for position, u in enumerate(utterances)
    )  # fmt: skip


#: Largest file in bytes, decompressed; parsing takes several times as much memory.
MAX_FILE_BYTES = 2**30


def read_bytes(path: str, *, limit: int = MAX_FILE_BYTES) -> bytes:
    """The content of a file, decompressed if the name ends in .gz.

    Raises:
        CorpusFormatError: If it cannot be read, or holds more bytes than ``limit``.
    """
    cure = "name a readable file; only the format slack reads folders"
    try:
        with gzip.open(path) if path.endswith(".gz") else Path(path).open("rb") as file:
            content = file.read(limit + 1)
    except MemoryError:
        raise CorpusFileError(path, "not enough memory to read it", "split it into several files") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CorpusFileError(path, reason, cure) from error
    if len(content) > limit:
        raise CorpusFileError(
            path, f"it has more than {limit:,} bytes when decompressed", "split it into several files"
        )
    return content


def file_sha256(path: str) -> str:
    """SHA-256 of the file as it is on disk, without decompression."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def parse_json(path: str, text: str, line: int | None = None) -> Any:
    """Parse one JSON document: a whole file, or the line with number ``line``.

    Raises:
        CorpusFormatError: If it is not JSON; says where.
    """
    try:
        return parsed_json(text)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 15) : error.pos + 15]
        raise CorpusFormatError(
            path, None, f"line {line or error.lineno}", near, f"valid JSON ({error.msg})"
        ) from error  # fmt: skip
    except ValueError as error:
        where = "(top)" if line is None else f"line {line}"
        raise CorpusFormatError(path, None, where, text[:30], f"readable JSON ({error})") from error


def listed_records(
    path: str,
    text: str,
    expected: str,
    *,
    skipped: Skipped | None = None,
    kind: str = "",
    conversation: str | None = None,
) -> list[Record]:
    """The objects of a JSON document that is a list.

    Args:
        path: Path of the file, shown in errors.
        text: The document.
        expected: What it should list, for errors.
        skipped: Counts the members that are no objects; None if none may be left out.
        kind: What a member is, in the plural, as it is counted.
        conversation: Name of the conversation, shown in errors.

    Raises:
        CorpusFormatError: If the text is not JSON, the document is not a list, or without ``skipped`` a member is not
            an object.
    """
    document = parse_json(path, text)
    if not isinstance(document, list):
        raise CorpusFormatError(path, None, "(top)", document, expected)

    def made(number: int, item: Any) -> Record:
        return Record(item, path, conversation, f"[{number}]")

    if skipped is None:
        return [made(number, item) for number, item in enumerate(document)]
    return sound_records(document, made, skipped, kind)


def members(record: Record, key: str, skipped: Skipped, kind: str) -> list[Record]:
    """The objects in the list value of a key; members that are none are skipped as one more of a kind."""
    name = f"{record.field}.{key}" if record.field else key
    place = partial(Record, path=record.path, conversation=record.conversation)
    return sound_records(record.items(key), lambda number, item: place(item, field=f"{name}[{number}]"), skipped, kind)


def sound_records(
    items: Sequence[Any], made: Callable[[int, Any], Record], skipped: Skipped, kind: str
) -> list[Record]:
    """Records made of items, given with their numbers from 0; those that are no objects are skipped."""
    found = []
    for number, item in enumerate(items):
        with skipped.unreadable(kind):
            found.append(made(number, item))
    return found


def json_lines(path: str, skipped: Skipped | None = None) -> Iterator[tuple[int, Any]]:
    """Line number, counted from 1, and parsed value of every non-empty line; with ``skipped`` without broken ones."""
    text = decode(path)
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                value = parse_json(path, line, number)
            except CorpusFormatError as error:
                if number > 1 and skipped is not None:
                    skipped.note(error, "lines")
                    continue
                if number > 1 or not text.lstrip().startswith(("{", "[")) or not _is_json(text):
                    raise
                expected = f"one JSON object per line; this file has documents over several lines ({_cure(text)})"
                raise CorpusFormatError(path, None, "line 1", line[:30], expected) from None
            if number == 1 and isinstance(value, list):
                expected = f"one JSON object per line; this file is one list ({_cure(text)})"
                raise CorpusFormatError(path, None, "line 1", line[:30], expected)
            yield number, value


def _cure(text: str) -> str:
    is_list = text.lstrip().startswith("[")
    return "jq -c '.[]' writes each member on a line" if is_list else "jq -c . writes each on one line"


def _is_json(text: str) -> bool:
    """Whether a text consists of one or more JSON documents in sequence."""
    decoder = json.JSONDecoder()
    at = 0 if (first := _NOT_SPACE.search(text)) is None else first.start()
    try:
        while at < len(text):
            _, end = decoder.raw_decode(text, at)
            at = len(text) if (rest := _NOT_SPACE.search(text, end)) is None else rest.start()
    except (ValueError, RecursionError):
        return False
    return True


def decode(path: str) -> str:
    """The text of a file, without the byte order mark that some programs put before it.

    It may also be UTF-16 with this mark. Whatever ends its lines, they end in ``\\n`` here.

    Raises:
        CorpusFormatError: If it is neither.
    """
    content = read_bytes(path)
    if content.startswith(b"SQLite format 3"):
        raise CorpusFileError(path, "this is a database", "name a file of conversations; a store is given with --store")
    is_wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        # Not "utf-8-sig", whose errors do not count the bytes of the mark.
        text = content.decode("utf-16" if is_wide else "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise CorpusFormatError(path, None, f"byte {error.start}", error.reason, "UTF-8 text") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")

"""Reads lists of messages in the form of chat APIs: ``[{"role": "user", "content": "..."}, ...]``.

A file holds one list, an object with ``messages``, or one such object per line. Messages with roles other than user and
assistant are instructions and tool calls, not dialogue, and are skipped. Of a content in parts, those of text are read,
whose type is ``text``, ``input_text`` or ``output_text``. A ``name`` is that of the speaker, and ``timestamp`` or
``created_at`` the time, in ISO 8601 or seconds since 1970. A message's ID is derived from its speaker and text, and
from its time if it has one, so that a chat can be continued with a file of only the last messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from locigraph.kg.corpora.corpus import Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import (
    SPEAKERS,
    ContentNames,
    Record,
    Skipped,
    Utterance,
    corpus_of,
    decode,
    json_lines,
    members,
    parse_json,
    sound_records,
    stem_of,
)

_SESSION = "s1"
_TEXT_TYPES = ("text", "input_text", "output_text")  # of the chat completions API, and of the responses API


def read(path: str) -> Corpus:
    """Read messages; a conversation is named by its ``id``, or else by the file name and its number in the file.

    Raises:
        CorpusFormatError: If the file has another format; says where.
    """
    skipped = Skipped()
    documents = [*_documents(path, skipped)]
    stem = stem_of(path)
    is_one = len(documents) == 1
    records = sound_records(
        documents,
        lambda number, item: Record(item, path, stem if is_one else f"{stem}-{number + 1}"),
        skipped,
        "conversations",
    )
    return corpus_of(records, _name, _utterances, skipped)


def _name(record: Record) -> str:
    if "messages" not in record.data and "role" in record.data:
        cure = "a list; if the file has one message per line, make one list of them with jq -s ."
        raise record.error("messages", None, cure)
    return record.optional_string("id") or str(record.conversation)


def _utterances(record: Record, skipped: Skipped) -> Iterator[Utterance]:
    names = ContentNames()
    for message in members(record, "messages", skipped, "messages"):
        with skipped.unreadable("messages"):
            role, text = SPEAKERS.get(message.string("role")), _text(message)
            if role is None or not text.strip():
                skipped.count("messages with other roles" if role is None else "messages without text")
                continue
            speaker = message.optional_string("name") or role
            time = message.moment("timestamp") or message.moment("created_at")
            yield Utterance(names.name(time, speaker, text), _SESSION, speaker, text, time)


def _documents(path: str, skipped: Skipped) -> Iterator[Any]:
    text = decode(path).strip()
    lines = text.split("\n")
    # Either one object per line, or one document over many lines.
    if len(lines) > 1 and lines[0].rstrip().endswith("}"):
        yield from (item for _, item in json_lines(path, skipped))
        return
    document = parse_json(path, text)
    if isinstance(document, list) and document and all(isinstance(m, dict) and "messages" in m for m in document):
        yield from document
    else:
        yield {"messages": document} if isinstance(document, list) else document


def _text(message: Record) -> str:
    content = message.data.get("content")
    if content is None or isinstance(content, str):
        return message.text("content") if content else ""
    parts = [part.text("text") for part in message.records("content") if part.optional_string("type") in _TEXT_TYPES]
    return "\n".join(parts)


FORMAT = CorpusFormat("messages", read, keys=frozenset(["role", "content"]), is_export=True, makes_ids=True)

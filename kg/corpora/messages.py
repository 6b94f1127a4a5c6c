"""Reads lists of messages in the form of chat APIs: ``[{"role": "user", "content": "..."}, ...]``.

A file holds one list, an object with ``messages``, or one such object per line. Messages with roles other than user and
assistant are instructions and tool calls, not dialogue, and are skipped. Of a content in parts, those of text are read,
whose type is ``text``, ``input_text`` or ``output_text``. A message's ID is derived from its role and text, and from
its time if it has one, so that a chat can be continued with a file of only the last messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import (
    SPEAKERS,
    ContentNames,
    Record,
    Utterance,
    by_conversation,
    decode,
    json_lines,
    number_turns,
    parse_json,
    passed_over,
)

_SESSION = "s1"
_TEXT_TYPES = ("text", "input_text", "output_text")  # of the chat completions API, and of the responses API


def read(path: str) -> Corpus:
    """Read messages; a conversation is named by its ``id``, or else by the file name and its number in the file.

    Raises:
        CorpusFormatError: If the file has another format; says where.
    """
    conversations: list[Conversation] = []
    skipped: Counter[str] = Counter()
    for space, record in by_conversation(_named(path), "id"):
        utterances, names = [], ContentNames()
        for message in record.records("messages"):
            speaker = SPEAKERS.get(message.string("role"))
            text = _text(message)
            if speaker is None or not text.strip():
                skipped["messages with other roles" if speaker is None else "messages without text"] += 1
                continue
            time = message.timestamp("timestamp")
            utterances.append(Utterance(names.name(time, speaker, text), _SESSION, speaker, text, time))
        conversations.append(Conversation(space, number_turns(space, utterances)))
    return Corpus(tuple(conversations), notes=passed_over(skipped))


def _named(path: str) -> Iterator[tuple[str, Record]]:
    stem = Path(path).name.split(".")[0]
    documents = list(_documents(path))
    for number, document in enumerate(documents, start=1):
        where = "(top)" if len(documents) == 1 else f"conversation {number}"
        record = Record(document, path, None, where)
        if "messages" not in record.data and "role" in record.data:
            raise record.error(
                "messages", None, "a list; if the file has one message per line, make one list of them with jq -s ."
            )
        yield record.optional_string("id") or (stem if len(documents) == 1 else f"{stem}-{number}"), record


def _documents(path: str) -> Iterator[Any]:
    text = decode(path).strip()
    lines = text.split("\n")
    # Either one object per line, or one document over many lines.
    if len(lines) > 1 and lines[0].rstrip().endswith("}"):
        yield from (item for _, item in json_lines(path))
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


FORMAT = CorpusFormat("messages", read, is_export=True, makes_ids=True)

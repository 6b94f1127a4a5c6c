"""Reads the JSON export of Telegram Desktop: ``result.json`` with one chat, or with all of an account.

The text of a message is a string, or a list of strings and of objects with a ``text`` for links and formatting.
Notices and messages without text are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from locigraph.kg.corpora.corpus import Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import (
    Record,
    Skipped,
    Utterance,
    corpus_of,
    decode,
    forwarded,
    members,
    parse_json,
)


def read(path: str) -> Corpus:
    """Read an export; a conversation is named after its chat, with the chat's number where names repeat.

    Raises:
        CorpusFormatError: If the file has another format, or no chat can be read; says where.
    """
    skipped = Skipped()
    top = Record(parse_json(path, decode(path)), path, None)
    groups = [top.record(name) for name in ("chats", "left_chats") if name in top.data]
    chats = [chat for group in groups for chat in members(group, "list", skipped, "chats")] if groups else [top]
    alike = Counter(map(_name, chats))
    return corpus_of(
        chats,
        lambda chat: _name(chat) if alike[_name(chat)] == 1 else f"{_name(chat)} {_id(chat)}",
        _utterances,
        skipped,
    )


def _name(chat: Record) -> str:
    name = chat.data.get("name")
    return name.strip() if isinstance(name, str) and name.strip() else f"chat {_id(chat)}"


def _id(record: Record) -> str:
    return str(record.data.get("id"))


def _utterances(chat: Record, skipped: Skipped) -> Iterator[Utterance]:
    for message in members(chat, "messages", skipped, "messages"):
        with skipped.unreadable("messages"):
            if message.data.get("type", "message") != "message":
                skipped.count("notices")
                continue
            text = _text(message) or _question_of(message)
            if text.strip() and "forwarded_from" in message.data:
                text = forwarded(text, message.data["forwarded_from"])
            if not text.strip():
                skipped.count("messages without text")
                continue
            # The date is the clock of the exporting machine without a zone; newer exports have the time itself, too.
            known = message.data.get("date_unixtime") is not None
            time = message.epoch("date_unixtime") if known else message.timestamp("date")
            number = message.data.get("id")
            if time is None or not isinstance(number, int):
                raise message.error("date", message.data.get("date"), "a date, and a number as id")
            speaker = message.optional_string("from") or message.optional_string("from_id") or "deleted account"
            yield Utterance(str(number), time.date().isoformat(), speaker, text, time)


def _text(message: Record) -> str:
    text = message.data.get("text")
    if isinstance(text, str):
        return message.text("text") if text else ""
    return message.storable("text", _joined(text))


def _joined(text: Any) -> str:
    """A text, which Telegram writes in parts if it has links or formatting."""
    parts: list[Any] = text if isinstance(text, list) else [text]
    words = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(each for each in words if isinstance(each, str))


def _question_of(message: Record) -> str:
    """The question of a poll, with its answers; empty if the message is none."""
    poll = message.data.get("poll")
    if not isinstance(poll, dict):
        return ""
    question, answers = _joined(poll.get("question")), poll.get("answers")
    listed = answers if isinstance(answers, list) else ()
    given = [_joined(each.get("text")) for each in listed if isinstance(each, dict)]
    return message.storable("poll", "\n".join([question, *given])) if question.strip() else ""


FORMAT = CorpusFormat("telegram", read, keys=frozenset(["messages", "from", "text"]), is_export=True)

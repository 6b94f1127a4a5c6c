"""Reads the JSON files of DiscordChatExporter, each with one channel.

Notices and messages without text are skipped; of a message without text, that of its embeds is read.
"""

from __future__ import annotations

from collections.abc import Iterator

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

# Types of messages that somebody writes; the others are notices, such as of a new member. The exporter has no names for
# answers to commands and for the first message of a thread.
_SAID = ("Default", "Reply", "20", "21", "23")
_NO_SERVER = "0"  # for direct messages


def read(path: str) -> Corpus:
    """Read a channel; the conversation is named after server and channel, and each day is a session.

    Raises:
        CorpusFormatError: If the file has another format, or no message can be read; says where.
    """
    skipped = Skipped()
    top = Record(parse_json(path, decode(path)), path, None)
    channel, server = top.record("channel"), top.record("guild")
    named = [server] if server.data.get("id") != _NO_SERVER else []
    name = " ".join(each.string("name") for each in [*named, channel])  # many servers have a channel "general"
    return corpus_of([top], lambda _: name, _utterances, skipped)


def _utterances(chat: Record, skipped: Skipped) -> Iterator[Utterance]:
    for message in members(chat, "messages", skipped, "messages"):
        with skipped.unreadable("messages"):
            if message.data.get("type", "Default") not in _SAID:
                skipped.count("notices")
                continue
            text = _text(message)
            if not text.strip():
                skipped.count("messages without text")
                continue
            author, time = message.record("author"), message.timestamp("timestamp")
            if time is None:
                raise message.error("timestamp", None, "an ISO 8601 date-time")
            speaker = author.optional_string("nickname") or author.string("name")
            yield Utterance(message.string("id"), time.date().isoformat(), speaker, text, time)


def _text(message: Record) -> str:
    if message.data.get("content"):
        return message.text("content")
    if isinstance(message.data.get("forwardedMessage"), dict):
        text = _text(message.record("forwardedMessage"))
        return forwarded(text, None) if text.strip() else ""
    return _embedded(message)


def _embedded(message: Record) -> str:
    embeds = message.items("embeds", required=False)
    found = [each.get(key) for each in embeds if isinstance(each, dict) for key in ("title", "description")]
    joined = "\n".join(each for each in found if isinstance(each, str) and each.strip())
    return message.storable("embeds", joined)


FORMAT = CorpusFormat("discord", read, keys=frozenset(["guild", "channel", "messages"]), is_export=True)

"""Reads the file ``conversations.json`` of a Claude data export.

A session holds the messages of one day. Of a content in parts, those of text are read; the model's thinking and its use
of tools are no dialogue. Messages without text are skipped.
"""

from __future__ import annotations

from locigraph.kg.corpora.corpus import Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import (
    SPEAKERS,
    Record,
    Skipped,
    Utterance,
    by_day,
    corpus_of,
    decode,
    listed_records,
    members,
)

_SPEAKERS = {"human": SPEAKERS["user"], "assistant": SPEAKERS["assistant"]}


def read(path: str) -> Corpus:
    """Read an export; each conversation's space is named by its id, and has its title.

    Raises:
        CorpusFormatError: If the file has another format, or none of its conversations can be read; says where.
    """
    skipped, expected = Skipped(), "a list of conversations, as in conversations.json"
    records = listed_records(path, decode(path), expected, skipped=skipped, kind="conversations")
    return corpus_of(records, lambda record: record.string("uuid"), _utterances, skipped, title="name")


def _utterances(conversation: Record, skipped: Skipped) -> list[Utterance]:
    said = []
    for message in members(conversation, "chat_messages", skipped, "messages"):
        with skipped.unreadable("messages"):
            speaker, text = _SPEAKERS.get(message.string("sender")), _text(message)
            if speaker is None or not text.strip():
                skipped.count("messages of other senders" if speaker is None else "messages without text")
                continue
            time = message.timestamp("created_at")
            said.append(Utterance(message.string("uuid"), "", speaker, text, time))
    return by_day(said)


def _text(message: Record) -> str:
    parts = message.items("content", required=False)
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    joined = "\n".join(text for text in texts if isinstance(text, str))
    if joined.strip():
        return message.storable("content", joined)
    return message.text("text") if message.data.get("text") else ""


FORMAT = CorpusFormat("claude", read, keys=frozenset(["chat_messages"]), is_export=True)

"""Reads the file ``conversations.json`` of a Claude data export.

A message can be edited and sent again; what followed on the earlier one is no longer shown, and is skipped. A session
holds the messages of one day. Of a content in parts, those of text are read; the model's thinking and its use
of tools are no dialogue. Messages without text are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    messages = members(conversation, "chat_messages", skipped, "messages")
    leaf = conversation.data.get("current_leaf_message_uuid")
    abandoned = _abandoned([each.data for each in messages], leaf)
    for message in messages:
        if message.data.get("uuid") in abandoned:
            skipped.count("messages of branches that are no longer shown")
            continue
        with skipped.unreadable("messages"):
            speaker, text = _SPEAKERS.get(message.string("sender")), _text(message)
            if speaker is None or not text.strip():
                skipped.count("messages of other senders" if speaker is None else "messages without text")
                continue
            time = message.timestamp("created_at")
            said.append(Utterance(message.string("uuid"), "", speaker, text, time))
    return by_day(said)


def _abandoned(messages: Sequence[Mapping[str, Any]], leaf: Any) -> frozenset[str]:
    """Messages on branches of the tree of messages other than that of the leaf, by default the last without an answer.

    Exports before 2026 do not say what a message answers, and have no such branches.
    """
    parents = {
        str(each["uuid"]): parent
        for each in messages
        if isinstance(each.get("uuid"), str) and isinstance(parent := each.get("parent_message_uuid"), str)
    }
    shown: dict[str, None] = {}
    answered = {*parents.values()}
    at = leaf if leaf in parents else next((name for name in reversed(parents) if name not in answered), "")
    while at in parents and at not in shown:
        shown[at] = None
        at = parents[at]
    branching = {*shown, at}  # what the first shown message answers is no message of the export

    def leaves(name: str) -> bool:
        climbed: set[str] = set()
        while name in parents and name not in branching and name not in climbed:
            climbed.add(name)
            name = parents[name]
        return name in branching  # else an export lacks what joins them

    return frozenset(name for name in parents if name not in shown and leaves(name))


def _text(message: Record) -> str:
    parts = message.items("content", required=False)
    texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
    joined = "\n".join(text for text in texts if isinstance(text, str))
    if joined.strip():
        return message.storable("content", joined)
    # Beside other content, "text" is a note of the app that it cannot be shown.
    if message.data.get("text") and not parts:
        return message.text("text")
    attached = message.data.get("attachments")
    listed = attached if isinstance(attached, list) else ()
    pasted = [each.get("extracted_content") for each in listed if isinstance(each, dict)]
    return message.storable("attachments", "\n".join(text for text in pasted if isinstance(text, str)))


FORMAT = CorpusFormat("claude", read, keys=frozenset(["chat_messages"]), is_export=True)

"""Reads the file ``conversations.json`` of a ChatGPT data export.

Each conversation is a tree, since messages can be edited and sent again; only the branch that was shown last is read.
A session holds the messages of one day. Speech is read as its transcript. Messages of the system and of tools, messages
to tools, hidden messages and messages without text are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import (
    SPEAKERS,
    Record,
    Utterance,
    by_conversation,
    decode,
    listed_records,
    number_turns,
    passed_over,
)


def read(path: str) -> Corpus:
    """Read an export; each conversation's space is named by its id.

    Raises:
        CorpusFormatError: If the file has another format; says where.
    """
    records = listed_records(path, decode(path), "a list of conversations, as in conversations.json")
    named = ((record.optional_string("conversation_id") or record.string("id"), record) for record in records)
    skipped: Counter[str] = Counter()
    conversations = tuple(
        Conversation(space, number_turns(space, list(_utterances(record, skipped))))
        for space, record in by_conversation(named, "id")
    )
    return Corpus(conversations, notes=passed_over(skipped))


def _utterances(conversation: Record, skipped: Counter[str]) -> Iterator[Utterance]:
    for node in _branch(conversation):
        if node.data.get("message") is None:
            continue  # the root node has no message
        message = node.record("message")
        author, content = message.record("author"), message.record("content")
        speaker = SPEAKERS.get(author.string("role"))
        # Transcripts of speech are objects with a text; objects without one are images, sounds and files.
        parts = (
            part.get("text") if isinstance(part, dict) else part for part in content.items("parts", required=False)
        )
        text = "\n".join(part for part in parts if isinstance(part, str))
        metadata = message.data.get("metadata")
        if speaker is None:
            skipped["system and tool messages"] += 1
            continue
        if message.optional_string("recipient") not in (None, "all"):
            skipped["messages to tools"] += 1
            continue
        if isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation") is True:
            skipped["hidden messages"] += 1
            continue
        if not text.strip():
            skipped["messages without text"] += 1
            continue
        time = None if message.data.get("create_time") is None else message.epoch("create_time")
        yield Utterance(
            message.string("id"), "undated" if time is None else time.date().isoformat(), speaker, text, time
        )


def _branch(conversation: Record) -> list[Record]:
    """The nodes from the root to the message that was shown last."""
    mapping = conversation.record("mapping")
    name, branch, seen = conversation.optional_string("current_node"), [], set()
    while name is not None:
        if name in seen:
            raise mapping.error(name, "its own ancestor", "a tree")
        seen.add(name)
        node = mapping.record(name)
        branch.append(node)
        name = node.optional_string("parent")
    return branch[::-1]


FORMAT = CorpusFormat("chatgpt", read, is_export=True)

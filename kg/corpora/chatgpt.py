"""Reads the file ``conversations.json`` of a ChatGPT data export.

Each conversation is a tree, since messages can be edited and sent again; only the branch that was shown last is read.
A session holds the messages of one day. Speech is read as its transcript. Messages of the system and of tools, messages
to tools, hidden messages and messages without text are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
)

# The app shows these as links: sources, pictures, and things by their names.
_MARK = re.compile(
    '\ue200entity\ue202\\["[^"\ue201]*", ?"(?P<name>[^"\ue201]*)"[^\ue201]*\ue201'
    "|\ue200[^\ue200\ue201]*\ue201|【[^【】\n]{0,80}†[^【】\n]{0,80}】"
)


def read(path: str) -> Corpus:
    """Read an export; each conversation's space is named by its id, and has its title.

    Raises:
        CorpusFormatError: If the file has another format, or none of its conversations can be read; says where.
    """
    skipped, expected = Skipped(), "a list of conversations, as in conversations.json"
    records = listed_records(path, decode(path), expected, skipped=skipped, kind="conversations")
    return corpus_of(
        records,
        lambda record: record.optional_string("conversation_id") or record.string("id"),
        _utterances,
        skipped,
        title="title",
    )


def _utterances(conversation: Record, skipped: Skipped) -> list[Utterance]:
    said: list[Utterance] = []
    for node in _branch(conversation):
        if node.data.get("message") is not None:  # the root node has no message
            with skipped.unreadable("messages"):
                said += _said(node.record("message"), skipped)
    return by_day(said)


def _said(message: Record, skipped: Skipped) -> Iterator[Utterance]:
    speaker = SPEAKERS.get(message.record("author").string("role"))
    text, metadata = _text(message), message.data.get("metadata")
    if speaker is None:
        skipped.count("system and tool messages")
    elif message.optional_string("recipient") not in (None, "all"):
        skipped.count("messages to tools")
    elif isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation") is True:
        skipped.count("hidden messages")
    elif not text.strip():
        skipped.count("messages without text")
    else:
        time = None if message.data.get("create_time") is None else message.epoch("create_time")
        yield Utterance(message.string("id"), "", speaker, text, time)


def _text(message: Record) -> str:
    if message.data.get("content") is None:
        return ""
    # Transcripts of speech are objects with a text; objects without one are images, sounds and files.
    parts = (
        part.get("text") if isinstance(part, dict) else part
        for part in message.record("content").items("parts", required=False)
    )
    return _without_marks("\n".join(part for part in parts if isinstance(part, str)))


def _without_marks(text: str) -> str:
    """The text without the marks of its sources, and with the names in place of what the app shows as links."""
    return _MARK.sub(lambda found: found["name"] or "", text)


def _branch(conversation: Record) -> list[Record]:
    """The nodes from the root to the message that was shown last, or, if the export does not name it, to the newest."""
    mapping = conversation.record("mapping")
    name, branch, seen = conversation.optional_string("current_node"), [], set()
    if name not in mapping.data:
        name = _newest_leaf(mapping)
    while name is not None:
        if name in seen:
            raise mapping.error(name, "its own ancestor", "a tree")
        seen.add(name)
        node = mapping.record(name)
        branch.append(node)
        parent = node.optional_string("parent")
        name = parent if parent in mapping.data else None  # an export may lack the beginning
    return branch[::-1]


def _newest_leaf(mapping: Record) -> str | None:
    """The last node of the newest message that has no answer; of messages without times, the last in the file."""
    nodes = {name: mapping.record(name) for name in mapping.data}
    parents = {node.optional_string("parent") for node in nodes.values()}

    def time(name: str) -> float:
        message = nodes[name].data.get("message")
        found = message.get("create_time") if isinstance(message, dict) else None
        return float(found) if isinstance(found, int | float) and abs(found) < 1e12 else 0.0

    leaves = [name for name in nodes if name not in parents]
    return max(reversed(leaves), key=time, default=None)


FORMAT = CorpusFormat("chatgpt", read, keys=frozenset(["mapping"]), is_export=True)

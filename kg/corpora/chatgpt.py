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
    decode,
    file_sha256,
    number_turns,
    parse_json,
    passed_over,
    refuse_repeated,
)
from locigraph.kg.errors import CorpusFormatError
from locigraph.kg.types import SpaceId


def read(path: str) -> Corpus:
    """Read an export; each conversation's space is named by its id.

    Raises:
        CorpusFormatError: If the file has another format; says where.
    """
    document = parse_json(path, decode(path))
    if not isinstance(document, list):
        raise CorpusFormatError(path, None, "(top)", document, "a list of conversations, as in conversations.json")
    conversations: dict[SpaceId, Conversation] = {}
    skipped: Counter[str] = Counter()
    for number, item in enumerate(document):
        head = Record(item, path, None, f"[{number}]")
        space = SpaceId(head.optional_string("conversation_id") or head.string("id"))
        refuse_repeated(path, "id", space, conversations)
        conversations[space] = Conversation(space, number_turns(space, list(_said(Record(item, path, space), skipped))))
    return Corpus("chatgpt", path, file_sha256(path), tuple(conversations.values()), (), {}, notes=passed_over(skipped))


def _said(conversation: Record, skipped: Counter[str]) -> Iterator[Utterance]:
    for node in _branch(conversation):
        message = node.data.get("message")
        if message is None:
            continue  # the root node has no message
        held = Record(message, node.path, node.conversation, f"{node.field}.message")
        author = Record(held.data.get("author"), node.path, node.conversation, f"{held.field}.author")
        content = Record(held.data.get("content"), node.path, node.conversation, f"{held.field}.content")
        speaker = SPEAKERS.get(author.string("role"))
        # Transcripts of speech are objects with a text; objects without one are images, sounds and files.
        parts = (
            each.get("text") if isinstance(each, dict) else each for each in content.items("parts", required=False)
        )
        text = "\n".join(part for part in parts if isinstance(part, str))
        metadata = held.data.get("metadata")
        if speaker is None:
            skipped["system and tool messages"] += 1
            continue
        if held.optional_string("recipient") not in (None, "all"):
            skipped["messages to tools"] += 1
            continue
        if isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation") is True:
            skipped["hidden messages"] += 1
            continue
        if not text.strip():
            skipped["messages without text"] += 1
            continue
        time = None if held.data.get("create_time") is None else held.epoch("create_time")
        yield Utterance(held.string("id"), "undated" if time is None else time.date().isoformat(), speaker, text, time)


def _branch(conversation: Record) -> list[Record]:
    """The nodes from the root to the message that was shown last."""
    mapping = Record(conversation.data.get("mapping"), conversation.path, conversation.conversation, "mapping")
    name, branch, seen = conversation.optional_string("current_node"), [], set()
    while name is not None:
        if name in seen:
            raise mapping.error(name, "its own ancestor", "a tree")
        seen.add(name)
        node = Record(mapping.data.get(name), conversation.path, conversation.conversation, f"mapping.{name}")
        branch.append(node)
        name = node.optional_string("parent")
    return branch[::-1]


FORMAT = CorpusFormat("chatgpt", read, is_export=True)

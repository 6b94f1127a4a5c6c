"""Reads a Slack export, one channel of it (a folder of daily JSON files), or one of these files.

The names of people are read from ``users.json``, which the export puts beside the folders of the channels. Of a message
without a text of its own, that of its blocks or attachments is read. Messages that stand twice are read once. Notices,
messages without text and messages whose sender is not named are skipped.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import (
    Record,
    Skipped,
    Utterance,
    decode,
    forwarded,
    listed_records,
    number_turns,
)
from locigraph.kg.errors import CorpusFormatError
from locigraph.kg.types import SpaceId

_MENTION = re.compile(r"<@([A-Z0-9]{1,30})(?:\|([^<>]{1,80}))?>")
_CHANNEL = re.compile(r"<#([A-Z0-9]{1,30})(?:\|([^<>]{0,80}))?>")
_DATE = re.compile(r"<!date\^[^<>|]{1,200}\|([^<>]{0,200})>")  # of which the text for old programs is kept
_GROUP = re.compile(r"<!(here|channel|everyone|subteam)(?:\^[A-Z0-9]{1,30})?(?:\|@?([^<>]{0,80}))?>")
_LINK = re.compile(r"<(?:https?|mailto)[^<>|]{0,2000}\|([^<>]{1,2000})>")

#: Name of a file of a channel.
DAY_FILE = re.compile(r"\d{4}-\d{2}-\d{2}\.json")
# Subtypes of messages that people and apps write; the others are notices.
_SAID = (None, "thread_broadcast", "me_message", "file_share", "bot_message")
# Elements of blocks of which each stands on a line of its own.
_LINES = ("rich_text_section", "rich_text_preformatted", "rich_text_quote", "section", "header", "context")
# Deeper blocks are not read: Slack nests lists eight deep.
_DEEPEST = 20


def read(path: str) -> Corpus:
    """Read an export or a channel; a conversation is named after the channel's folder, and each day is a session.

    Raises:
        CorpusFormatError: If there is no file, or nothing can be read; says where.
    """
    given, skipped, digest = Path(path), Skipped(), hashlib.sha256()
    folder = given if given.is_dir() else given.parent
    within = sorted(each for each in folder.iterdir() if each.is_dir() and any(each.glob("*.json")))
    # Some exports come without the list of people.
    has_days = any(DAY_FILE.fullmatch(each.name) for each in folder.iterdir())
    is_whole = given.is_dir() and ((given / "users.json").is_file() or (bool(within) and not has_days))
    channels = within if is_whole else [folder]
    names = _names(folder / "users.json" if is_whole else folder.parent / "users.json", skipped)
    conversations = []
    for channel in channels:
        files = [given] if given.is_file() else sorted(channel.glob("*.json"))
        if not files and not is_whole:
            raise CorpusFormatError(path, None, "(folder)", path, "a channel's folder with a JSON file for each day")
        space, found = SpaceId(channel.resolve().name), dict[str, Utterance]()
        for file in files:
            for message in _messages(file, space, digest, skipped):
                with skipped.unreadable("messages"):
                    for utterance in _said(message, names, skipped):
                        if found.setdefault(utterance.turn_id, utterance) != utterance:
                            skipped.count("messages with the time stamp of another")
        said = sorted(found.values(), key=attrgetter("spoken_at"))
        conversations.append(Conversation(space, number_turns(space, said)))
    notes = skipped.notes(has_turns=any(each.turns for each in conversations))
    return Corpus(tuple(conversations), notes=notes, sha256=digest.hexdigest())


def _messages(file: Path, space: SpaceId, digest: hashlib._Hash, skipped: Skipped) -> list[Record]:
    """The messages of a file; none if it cannot be read."""
    messages: list[Record] = []
    with skipped.unreadable("files"):
        text = decode(str(file))
        digest.update(text.encode())
        kind = "a list of messages"
        messages = listed_records(str(file), text, kind, skipped=skipped, kind="messages", conversation=space)
    return messages


def _said(message: Record, names: dict[str, str], skipped: Skipped) -> Iterator[Utterance]:
    if message.data.get("subtype") not in _SAID:
        skipped.count("notices")
        return
    text = message.text("text") if message.data.get("text") else ""
    words = _words(text, names) if text.strip() else _words_of_parts(message, names)
    speaker = _speaker(message, names)
    if not words.strip():
        skipped.count("messages without text")
    elif speaker is None:
        skipped.count("messages without a sender")
    else:
        time = message.epoch("ts")
        yield Utterance(message.string("ts"), time.date().isoformat(), speaker, words, time)


def _names(users: Path, skipped: Skipped) -> dict[str, str]:
    names: dict[str, str] = {}
    if users.is_file():
        for user in listed_records(str(users), decode(str(users)), "a list of users", skipped=skipped, kind="users"):
            with skipped.unreadable("users"):
                name = user.string("id")
                profile = user.data.get("profile")
                names[name] = (
                    user.optional_string("real_name")
                    or _name_in(profile, "real_name")
                    or _name_in(profile, "display_name")
                    or user.optional_string("name")
                    or name
                )
    return names


def _speaker(message: Record, names: dict[str, str]) -> str | None:
    """The name of the sender; None if the message does not have one."""
    user = message.optional_string("user")
    if user is None:
        return message.optional_string("username") or _name_in(message.data.get("bot_profile"), "name")
    return names.get(user) or _name_in(message.data.get("user_profile"), "real_name") or user


def _name_in(profile: Any, key: str) -> str | None:
    name = profile.get(key) if isinstance(profile, dict) else None
    return name if isinstance(name, str) and name.strip() else None


def _words(text: str, names: dict[str, str]) -> str:
    text = _MENTION.sub(lambda match: names.get(match[1]) or match[2] or match[1], text)
    text = _CHANNEL.sub(lambda match: f"#{match[2] or match[1]}", text)
    text = _DATE.sub(r"\1", text)
    text = _GROUP.sub(lambda match: f"@{match[2] or match[1]}", text)
    return html.unescape(_LINK.sub(r"\1", text))


def _words_of_parts(message: Record, names: dict[str, str]) -> str:
    """The words of a message that has them in blocks or attachments only."""
    blocks = "".join(_words_of_block(message.data.get("blocks"), names)).strip()
    return blocks or "\n".join(_words_of_attachments(message.data.get("attachments"), names))


def _words_of_block(block: Any, names: dict[str, str], depth: int = 0) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    if isinstance(block, list):
        for each in block:
            yield from _words_of_block(each, names, depth + 1)
    elif isinstance(block, dict):
        kind, text = block.get("type"), block.get("text")
        if isinstance(text, str):
            yield _words(text, names)
        elif isinstance(user := block.get("user_id"), str):
            yield names.get(user, user)
        elif isinstance(url := block.get("url"), str):
            yield url
        else:
            for key in ("text", "fields", "elements"):
                yield from _words_of_block(block.get(key), names, depth + 1)
        if kind in _LINES:
            yield "\n"


def _words_of_attachments(attachments: Any, names: dict[str, str]) -> Iterator[str]:
    for each in attachments if isinstance(attachments, list) else ():
        found = [each.get(key) for key in ("pretext", "title", "text")] if isinstance(each, dict) else []
        words = [_words(text, names) for text in found if isinstance(text, str) and text.strip()]
        if words:
            is_shared = each.get("is_share") is True or each.get("is_msg_unfurl") is True
            said = "\n".join(words)
            yield forwarded(said, each.get("author_name")) if is_shared else said
        elif isinstance(each, dict) and isinstance(each.get("fallback"), str):
            yield _words(each["fallback"], names)


FORMAT = CorpusFormat("slack", read, keys=frozenset(["type", "ts"]), reads_folders=True, is_export=True)

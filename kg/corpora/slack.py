"""Reads one channel of a Slack export: its folder of daily JSON files, or one of these files.

The names of people are read from ``users.json``, which the export puts beside the channel's folder. Notices, messages
from apps, messages without text and messages whose sender is not named are skipped.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections import Counter
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import Record, Utterance, decode, listed_records, number_turns, passed_over
from locigraph.kg.errors import CorpusFormatError
from locigraph.kg.types import SpaceId

_MENTION = re.compile(r"<@([A-Z0-9]{1,30})(?:\|([^<>]{1,80}))?>")
_CHANNEL = re.compile(r"<#([A-Z0-9]{1,30})(?:\|([^<>]{0,80}))?>")
_DATE = re.compile(r"<!date\^[^<>|]{1,200}\|([^<>]{0,200})>")  # of which the text for old programs is kept
_GROUP = re.compile(r"<!(here|channel|everyone|subteam)(?:\^[A-Z0-9]{1,30})?(?:\|@?([^<>]{0,80}))?>")
_LINK = re.compile(r"<(?:https?|mailto)[^<>|]{0,2000}\|([^<>]{1,2000})>")

# Subtypes of messages that people write; the others are notices and messages from apps.
_SAID = (None, "thread_broadcast", "me_message", "file_share")


def read(path: str) -> Corpus:
    """Read a channel; the conversation is named after the folder, and each day is a session.

    Raises:
        CorpusFormatError: If there is no file, or a file has another format; says where.
    """
    given = Path(path)
    folder = given if given.is_dir() else given.parent
    if given.is_dir() and (given / "users.json").is_file():
        raise CorpusFormatError(path, None, "(folder)", path, "a channel's folder, not the folder of the whole export")
    files = sorted(given.glob("*.json")) if given.is_dir() else [given]
    if not files:
        raise CorpusFormatError(path, None, "(folder)", path, "a channel's folder with a JSON file for each day")
    space, names, digest = SpaceId(folder.resolve().name), _names(folder.parent / "users.json"), hashlib.sha256()
    timed: list[tuple[datetime, Utterance]] = []
    skipped: Counter[str] = Counter()
    for file in files:
        text = decode(str(file))
        digest.update(text.encode())
        for message in listed_records(str(file), text, "a list of messages", space):
            of_app = "bot_id" in message.data and "user" not in message.data
            if of_app or message.data.get("subtype") not in _SAID:
                skipped["notices and messages from apps"] += 1
                continue
            words = _words(message.text("text"), names) if message.data.get("text") else ""
            if not words.strip():
                skipped["messages without text"] += 1
                continue
            stamp = message.string("ts")
            time = message.epoch("ts")
            speaker = _speaker(message, names)
            if speaker is None:
                skipped["messages without a sender"] += 1
                continue
            timed.append((time, Utterance(stamp, time.date().isoformat(), speaker, words, time)))
    timed.sort(key=itemgetter(0))
    utterances = [utterance for _, utterance in timed]
    repeated = [stamp for stamp, times in Counter(each.turn_id for each in utterances).items() if times > 1]
    if repeated:
        raise CorpusFormatError(path, str(space), "ts", repeated[0], "a time stamp that no other message has")
    conversation = Conversation(space, number_turns(space, utterances))
    return Corpus((conversation,), notes=passed_over(skipped), sha256=digest.hexdigest())


def _names(users: Path) -> dict[str, str]:
    if not users.is_file():
        return {}
    return {
        user.string("id"): user.optional_string("real_name") or user.optional_string("name") or user.string("id")
        for user in listed_records(str(users), decode(str(users)), "a list of users")
    }


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


FORMAT = CorpusFormat("slack", read, is_export=True)

"""A valid corpus of every format, as a document whose parts can be replaced before it is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults import workbench

_DAY = 1_714_557_600  # 1 May 2024, in seconds since 1970


@dataclass(frozen=True, slots=True)
class Sound:
    """How a corpus of a format is created.

    Attributes:
        make: Creates a document with one turn for each text.
        write: Writes a document, valid or not, into a folder; returns the path that a user would name.
    """

    make: Callable[[Sequence[str]], Any]
    write: Callable[[Path, Any], Path]


def _locomo(texts: Sequence[str]) -> Any:
    said = [{"dia_id": f"D1:{i}", "speaker": "Ann", "text": text} for i, text in enumerate(texts, start=1)]
    asked = [{"question": "Who?", "answer": "Ann", "evidence": ["D1:1"], "category": 1}]
    talk = {"session_1": said, "session_1_date_time": "1:56 pm on 8 May, 2023", "speaker_a": "Ann", "speaker_b": "Ben"}
    return [{"sample_id": "c1", "conversation": talk, "qa": asked}]


def _longmemeval(texts: Sequence[str]) -> Any:
    session = [{"role": "user", "content": text, "has_answer": i == 0} for i, text in enumerate(texts)]
    return [
        {
            "question_id": "q1", "question_type": "single", "question": "Who?", "answer": "Ann",
            "question_date": "2023/05/30 (Tue) 03:16", "haystack_dates": ["2023/05/20 (Sat) 02:21"],
            "haystack_session_ids": ["s1"], "haystack_sessions": [session], "answer_session_ids": ["s1"],
        }
    ]  # fmt: skip


def _jsonl(texts: Sequence[str]) -> Any:
    told = workbench.conversation("c1", texts)
    told["questions"] = [{"question_id": "q", "text": "Who?", "evidence_turn_ids": ["t0"], "category": "x"}]
    told["events"] = [{"text": "A party.", "turn_ids": ["t0"], "start": "2024-01-01", "end": None}]
    told["facts"] = [{"text": "Ann is here.", "turn_ids": ["t0"]}]
    return [told]


def _messages(texts: Sequence[str]) -> Any:
    said: list[Any] = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
    said[0] |= {"timestamp": "2024-05-01T10:00:00Z", "content": [{"type": "text", "text": texts[0]}]}
    return [{"id": "c1", "messages": said}, {"messages": [{"role": "tool", "content": None}, *said[:1]]}]


def _chatgpt(texts: Sequence[str]) -> Any:
    nodes: dict[str, Any] = {"m": {"id": "m", "parent": None, "children": ["m0"], "message": None}}
    for i, text in enumerate(texts):
        said = {"id": f"m{i}", "author": {"role": "user"}, "create_time": _DAY + i, "content": {"parts": [text]}}
        nodes[f"m{i}"] = {"id": f"m{i}", "parent": f"m{i - 1}" if i else "m", "children": [], "message": said}
    return [{"conversation_id": "c1", "id": "c1", "mapping": nodes, "current_node": f"m{len(texts) - 1}"}]


def _slack(texts: Sequence[str]) -> Any:
    said = [
        {"type": "message", "user": "U1", "ts": f"{_DAY + i}.000100", "text": text, "user_profile": {"real_name": "A"}}
        for i, text in enumerate(texts)
    ]
    named = [{"id": "U1", "name": "ann", "real_name": "Ann"}, {"id": "U2", "name": "ben"}]
    return {"users.json": named, "general/2024-05-01.json": said}


def _whatsapp(texts: Sequence[str]) -> Any:
    """Lines, each in parts; a line without a time continues the previous message."""
    clock = [f"{13 + i // 86_400:02}/05/2024, {i // 3_600 % 24:02}:{i // 60 % 60:02}" for i in range(len(texts))]
    said = [[time, " - ", "Ana", ": ", text] for time, text in zip(clock, texts, strict=True)]
    return [["13/05/2024, 00:00", " - ", "Messages are encrypted."], *said, ["", "and more"]]


def _telegram(texts: Sequence[str]) -> Any:
    said = [
        {"id": i, "type": "message", "date": "2024-05-01T10:00:00", "date_unixtime": str(_DAY + i), "from": "Ann",
         "from_id": "user1", "text": [text]}
        for i, text in enumerate(texts)
    ]  # fmt: skip
    return {"name": "Ann", "type": "personal_chat", "id": 1, "messages": said}


def _discord(texts: Sequence[str]) -> Any:
    said = [
        {"id": str(i), "type": "Default", "timestamp": f"2024-05-01T10:00:{i % 60:02}Z", "content": text,
         "author": {"id": "1", "name": "ann", "nickname": "Ann"}, "embeds": []}
        for i, text in enumerate(texts)
    ]  # fmt: skip
    return {"guild": {"id": "1", "name": "Rowers"}, "channel": {"id": "2", "name": "plans"}, "messages": said}


def _claude(texts: Sequence[str]) -> Any:
    said = [
        {"uuid": f"m{i}", "sender": ("human", "assistant")[i % 2], "text": text, "created_at": "2024-05-01T10:00:00Z",
         "content": [{"type": "text", "text": text}]}
        for i, text in enumerate(texts)
    ]  # fmt: skip
    return [{"uuid": "c1", "name": "Ghent", "chat_messages": said}]


def _imessage(texts: Sequence[str]) -> Any:
    """Lines, each in parts."""
    return [line for text in texts for line in (["May 17, 2022  5:29:42 PM"], ["Ann"], [text], [""])]


def _mbox(texts: Sequence[str]) -> Any:
    return [
        line
        for i, text in enumerate(texts)
        for line in (
            ["From ann@example.org Wed May  1 10:00:00 2024"], ["From: ", "Ann <ann@example.org>"],
            ["Date: ", "Wed, 01 May 2024 10:00:00 +0200"], ["Message-ID: ", f"<{i}@example.org>"], [""], [text], [""],
        )
    ]  # fmt: skip


def _json(folder: Path, document: Any) -> Path:
    return _file(folder / "corpus.json", json.dumps(document))


def _lines(folder: Path, document: Any) -> Path:
    return _file(folder / "corpus.json", "\n".join(json.dumps(each) for each in _listed(document)))


def _channel(folder: Path, document: Any) -> Path:
    for name in _slack(("",)):
        path = folder / name
        path.unlink(missing_ok=True)
        if name in document:  # its name may have been replaced
            _file(path, json.dumps(document[name]))
    return folder / "general"


def _chat(folder: Path, document: Any) -> Path:
    return _file(folder / "chat.txt", "\n".join("".join(map(str, _listed(line))) for line in _listed(document)))


def _listed(document: Any) -> Any:
    return document if isinstance(document, list) else [document]


def _file(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(errors="surrogatepass"))
    return path


#: A valid corpus for each name in ``FORMATS``; a test checks that none is missing.
SOUND: dict[str, Sound] = {
    "locomo": Sound(_locomo, _json),
    "longmemeval": Sound(_longmemeval, _json),
    "jsonl": Sound(_jsonl, _lines),
    "messages": Sound(_messages, _json),
    "chatgpt": Sound(_chatgpt, _json),
    "slack": Sound(_slack, _channel),
    "whatsapp": Sound(_whatsapp, _chat),
    "telegram": Sound(_telegram, _json),
    "discord": Sound(_discord, _json),
    "claude": Sound(_claude, _json),
    "imessage": Sound(_imessage, _chat),
    "mbox": Sound(_mbox, _chat),
}

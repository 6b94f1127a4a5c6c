"""Exports of chats: lists of messages, ChatGPT, Slack, WhatsApp."""

from __future__ import annotations

import gzip
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph.kg.corpora import Corpus, load_corpus
from locigraph.kg.errors import CorpusFormatError
from tests.faults.corpora import SOUND
from tests.kg.chat_files import said, written

TALK = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "I sold the oboe."},
    {"role": "assistant", "content": [{"type": "text", "text": "To whom?"}, {"type": "image_url", "image_url": {}}]},
    {"role": "assistant", "content": None},
    {"role": "tool", "content": "42"},
]


@pytest.mark.parametrize("form", ["list", "object", "lines", "list of objects"])
def test_messages_of_people_are_turns_whatever_the_form_of_the_file(form: str, tmp_path: Path) -> None:
    forms: dict[str, Any] = {
        "list": TALK,
        "object": {"messages": TALK},
        "lines": f"{json.dumps({'id': 'talk', 'messages': TALK})}\n{json.dumps({'id': 'b', 'messages': TALK[1:2]})}\n",
        "list of objects": [{"id": "talk", "messages": TALK}, {"id": "b", "messages": TALK[1:2]}],
    }
    corpus = load_corpus("messages", written(tmp_path, "talk.json", forms[form]))
    expected = [("talk", "User", "I sold the oboe."), ("talk", "Assistant", "To whom?")]
    assert said(corpus)[:2] == expected
    assert len(corpus.conversations) == (2 if form in ("lines", "list of objects") else 1)
    assert corpus.notes[0] == "skipped messages with other roles: 2"


def test_files_of_messages_are_told_apart_by_all_of_their_names(tmp_path: Path) -> None:
    named = {
        load_corpus("messages", written(tmp_path, name, {"messages": TALK})).conversations[0].space
        for name in ("session.1.json", "session.2.json")
    }
    assert named == {"session.1", "session.2"}


def test_a_compressed_chat_has_the_name_of_the_same_chat_uncompressed(tmp_path: Path) -> None:
    (tmp_path / "family chat.txt.gz").write_bytes(gzip.compress(ANDROID.encode()))
    assert load_corpus("whatsapp", str(tmp_path / "family chat.txt.gz")).conversations[0].space == "family chat"


def test_names_and_times_of_messages_are_those_of_the_speakers(tmp_path: Path) -> None:
    talk = [
        {"role": "user", "name": "Ana", "content": "I live in Graz", "created_at": 1714557600},
        {"role": "user", "name": "Tom", "content": "I live in Oslo", "created_at": "2024-05-01T10:01:00Z"},
        {"role": "user", "content": "And I?"},
        "what is this",
        {"role": "user", "content": 5},
    ]
    corpus = load_corpus("messages", written(tmp_path, "talk.json", talk))
    assert [speaker for _, speaker, _ in said(corpus)] == ["Ana", "Tom", "User"]
    minutes = [turn.spoken_at and turn.spoken_at.minute for turn in corpus.conversations[0].turns]
    assert minutes == [0, 1, None]
    assert corpus.notes[0] == "skipped messages that cannot be read: 2"


@pytest.mark.parametrize("kind", ["text", "input_text", "output_text"])
def test_parts_of_text_are_read_whichever_chat_api_has_written_them(kind: str, tmp_path: Path) -> None:
    parts = [{"type": kind, "text": "I sold"}, {"type": "input_image"}, {"type": kind, "text": "the oboe."}]
    corpus = load_corpus("messages", written(tmp_path, "talk.json", [{"role": "user", "content": parts}]))
    assert said(corpus) == [("talk", "User", "I sold\nthe oboe.")]


@pytest.mark.parametrize("form", SOUND)
def test_a_byte_order_mark_changes_nothing(form: str, tmp_path: Path) -> None:
    path = SOUND[form].write(tmp_path, SOUND[form].make(["I sold the oboe.", "To whom?"]))
    conversations = load_corpus(form, str(path)).conversations
    for file in tmp_path.rglob("*.*"):
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load_corpus(form, str(path)).conversations == conversations


def test_places_in_a_file_with_a_byte_order_mark_are_counted_as_in_others(tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    for content, place in ((b"{}\n{", "line 2"), (b"[\n}", "line 2"), (b"[\xff]", "byte 4")):
        path.write_bytes(b"\xef\xbb\xbf" + content)
        with pytest.raises(CorpusFormatError, match=place):
            load_corpus("messages", str(path))


def test_a_window_of_the_last_messages_continues_a_chat(tmp_path: Path) -> None:
    texts = ["Hello", "Where is Ghent?", "In Belgium.", "Thanks", "In Belgium."]
    talk = [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]
    dated = [each | {"timestamp": f"2024-05-01T10:0{minute}:30"} for minute, each in enumerate(talk)]

    def ids(messages: list[dict[str, str]]) -> list[str]:
        corpus = load_corpus("messages", written(tmp_path, "talk.json", messages))
        return [turn.turn_id for turn in corpus.conversations[0].turns]

    for whole in (talk, dated):
        assert len(set(ids(whole))) == 5
        assert ids(whole[1:]) == ids(whole)[1:]
        assert ids([*whole, *whole[:1]])[:5] == ids(whole)
    assert len(set(ids([*talk, *talk]))) == 10


def chatgpt_export() -> list[dict[str, Any]]:
    def node(name: str, parent: str | None, role: str, text: str, time: float | None) -> dict[str, Any]:
        message = {"id": name, "author": {"role": role}, "create_time": time, "content": {"parts": [text, {"a": 1}]}}
        return {"id": name, "parent": parent, "children": [], "message": message}

    mapping: dict[str, Any] = {"root": {"id": "root", "parent": None, "children": ["a"], "message": None}}
    mapping["a"] = node("a", "root", "user", "Where is Ghent?", 1714557600.5)
    mapping["b"] = node("b", "a", "assistant", "In Wales.", 1714557601)
    mapping["c"] = node("c", "a", "assistant", "In Belgium.", 1714650000)  # asked again: this answer was kept
    return [{"conversation_id": "talk-1", "title": "Ghent", "mapping": mapping, "current_node": "c"}]


def test_of_a_chatgpt_conversation_the_branch_that_was_shown_last_is_read(tmp_path: Path) -> None:
    corpus = load_corpus("chatgpt", written(tmp_path, "conversations.json", chatgpt_export()))
    assert said(corpus) == [("talk-1", "User", "Where is Ghent?"), ("talk-1", "Assistant", "In Belgium.")]
    first, last = corpus.conversations[0].turns
    assert (first.session_id, last.session_id) == ("2024-05-01", "2024-05-02")
    assert first.spoken_at == datetime(2024, 5, 1, 10, 0, 0, 500_000, tzinfo=UTC)


def test_what_a_chatgpt_export_holds_besides_the_talk_is_counted(tmp_path: Path) -> None:
    export = chatgpt_export()
    mapping = export[0]["mapping"]
    for name, parent, role, parts in (("d", "c", "tool", ["{}"]), ("e", "d", "user", [{"image": 1}])):
        message = {"id": name, "author": {"role": role}, "content": {"parts": parts}}
        mapping[name] = {"id": name, "parent": parent, "children": [], "message": message}
    export[0]["current_node"] = "e"
    corpus = load_corpus("chatgpt", written(tmp_path, "conversations.json", export))
    assert [text for _, _, text in said(corpus)] == ["Where is Ghent?", "In Belgium."]
    assert corpus.notes == ("skipped messages without text: 1", "skipped system and tool messages: 1")


def chatgpt_talk(tmp_path: Path, *messages: dict[str, Any]) -> Corpus:
    mapping: dict[str, Any] = {}
    for number, message in enumerate(messages):
        parent = f"m{number - 1}" if number else None
        mapping[f"m{number}"] = {"parent": parent, "message": {"id": f"m{number}"} | message}
    export = [{"id": "talk-1", "mapping": mapping, "current_node": f"m{len(messages) - 1}"}]
    return load_corpus("chatgpt", written(tmp_path, "conversations.json", export))


def test_speech_in_a_chatgpt_export_is_read_as_its_transcript(tmp_path: Path) -> None:
    speech = {"content_type": "audio_transcription", "text": "Where is Ghent?", "direction": "in"}
    sound = {"content_type": "audio_asset_pointer", "asset_pointer": "sediment://1"}
    parts = {"content_type": "multimodal_text", "parts": [speech, sound]}
    corpus = chatgpt_talk(tmp_path, {"author": {"role": "user"}, "content": parts})
    assert said(corpus) == [("talk-1", "User", "Where is Ghent?")]


def test_chatgpt_messages_that_were_not_shown_or_went_to_tools_are_no_turns(tmp_path: Path) -> None:
    def message(role: str, text: str, **others: Any) -> dict[str, Any]:
        return {"author": {"role": role}, "content": {"parts": [text]}} | others

    corpus = chatgpt_talk(
        tmp_path,
        message("user", "I am Ana.", metadata={"is_visually_hidden_from_conversation": True}),
        message("user", "Draw a cat.", recipient="all", metadata={"is_visually_hidden_from_conversation": False}),
        message("assistant", '{"size":"1024x1024","prompt":"A cat"}', recipient="dalle.text2im"),
        message("assistant", "Here it is.", recipient=None, metadata=None),
    )
    assert [text for _, _, text in said(corpus)] == ["Draw a cat.", "Here it is."]
    assert corpus.notes == ("skipped hidden messages: 1", "skipped messages to tools: 1")


def test_without_a_node_that_was_shown_last_the_newest_branch_of_a_chatgpt_conversation_is_read(tmp_path: Path) -> None:
    for last in (None, "gone"):
        export = chatgpt_export()
        export[0]["current_node"] = last
        corpus = load_corpus("chatgpt", written(tmp_path, "conversations.json", export))
        assert [text for _, _, text in said(corpus)] == ["Where is Ghent?", "In Belgium."]


def test_one_conversation_or_message_of_chatgpt_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    export: list[Any] = [{"id": "c9", "mapping": None}, *chatgpt_export(), 7, {"mapping": {}}]
    export[1]["mapping"]["b2"] = {"id": "b2", "parent": "c", "message": {"id": "b2", "content": None}}
    export[1]["current_node"] = "b2"
    corpus = load_corpus("chatgpt", written(tmp_path, "conversations.json", export))
    assert [text for _, _, text in said(corpus)] == ["Where is Ghent?", "In Belgium."]
    assert corpus.notes[:2] == (
        "skipped conversations that cannot be read: 3",
        "skipped messages that cannot be read: 1",
    )


def test_a_chatgpt_message_without_a_time_stays_in_the_session_of_the_one_before(tmp_path: Path) -> None:
    export = chatgpt_export()
    export[0]["mapping"]["c"]["message"]["create_time"] = None
    corpus = load_corpus("chatgpt", written(tmp_path, "conversations.json", export))
    assert [(turn.session_id, turn.spoken_at is None) for turn in corpus.conversations[0].turns] == [
        ("2024-05-01", False), ("2024-05-01", True)
    ]  # fmt: skip


def test_a_chatgpt_branch_that_is_a_ring_is_refused_and_one_that_breaks_off_begins_there(tmp_path: Path) -> None:
    ring = chatgpt_export()
    ring[0]["mapping"]["a"]["parent"] = "c"
    with pytest.raises(CorpusFormatError, match="its own ancestor"):
        load_corpus("chatgpt", written(tmp_path, "ring.json", ring))
    broken = chatgpt_export()
    del broken[0]["mapping"]["a"]
    corpus = load_corpus("chatgpt", written(tmp_path, "broken.json", broken))
    assert [text for _, _, text in said(corpus)] == ["In Belgium."]


def test_a_slack_channel_is_one_conversation_with_a_session_a_day(tmp_path: Path) -> None:
    written(tmp_path, "users.json", [{"id": "U1", "real_name": "Ana Ruiz"}, {"id": "U2", "name": "tom"}])
    written(
        tmp_path,
        "plans/2024-05-02.json",
        [{"type": "message", "user": "U2", "text": "Fish &amp; chips, <@U1>?", "ts": "1714650000.000200"}],
    )
    written(
        tmp_path,
        "plans/2024-05-01.json",
        [
            {"type": "message", "subtype": "channel_join", "user": "U2", "text": "joined", "ts": "1714557600.1"},
            {"type": "message", "user": "U1", "text": "See <https://a.example|the list>", "ts": "1714557601.000100"},
            {"type": "message", "user": "U9", "text": "", "ts": "1714557602.000100"},
            {"type": "message", "bot_id": "B1", "text": "Build passed", "ts": "1714557603.000100"},
        ],
    )
    corpus = load_corpus("slack", str(tmp_path / "plans"))
    assert said(corpus) == [("plans", "Ana Ruiz", "See the list"), ("plans", "tom", "Fish & chips, Ana Ruiz?")]
    assert [t.session_id for t in corpus.conversations[0].turns] == ["2024-05-01", "2024-05-02"]
    assert corpus.notes == (
        "skipped messages without a sender: 1", "skipped messages without text: 1", "skipped notices: 1"
    )  # fmt: skip
    assert len(load_corpus("slack", str(tmp_path / "plans" / "2024-05-02.json")).conversations[0].turns) == 1


def slack_channel(tmp_path: Path, *messages: dict[str, Any]) -> Corpus:
    dated = [{"type": "message", "ts": f"{1714557600 + second}.000100"} | each for second, each in enumerate(messages)]
    return load_corpus("slack", str(Path(written(tmp_path, "plans/2024-05-01.json", dated)).parent))


def test_the_words_beside_a_file_in_slack_are_a_turn(tmp_path: Path) -> None:
    corpus = slack_channel(
        tmp_path,
        {"subtype": "file_share", "user": "U1", "text": "Our budget", "files": [{}]},
        {"subtype": "file_share", "user": "U1", "text": "", "files": [{}]},
    )
    assert said(corpus) == [("plans", "U1", "Our budget")]
    assert corpus.notes == ("skipped messages without text: 1",)


def test_a_slack_message_without_a_user_is_said_by_its_shown_name_or_skipped(tmp_path: Path) -> None:
    corpus = slack_channel(
        tmp_path,
        {"username": "Ana", "text": "Hello"},
        {"user": None, "bot_profile": {"name": "Planner"}, "text": "Lunch at noon"},
        {"text": "Who said this?"},
        {"username": " ", "bot_profile": {"name": 1}, "text": "And this?"},
        {"user": "U1", "username": "Ana", "text": "I did"},
        {"bot_id": "B1", "subtype": "bot_message", "username": "Builder", "text": "Build passed"},
    )
    assert [(speaker, text) for _, speaker, text in said(corpus)] == [
        ("Ana", "Hello"), ("Planner", "Lunch at noon"), ("U1", "I did"), ("Builder", "Build passed")
    ]  # fmt: skip
    assert corpus.notes == ("skipped messages without a sender: 2",)


@pytest.mark.parametrize(
    ("mention", "words"),
    [
        ("<!here>", "@here"),
        ("<!here|here>", "@here"),
        ("<!channel>", "@channel"),
        ("<!date^1717200000^{date}|June 1>", "June 1"),
        ("<!everyone|@everyone>", "@everyone"),
        ("<#C1|general>", "#general"),
        ("<#C1>", "#C1"),
        ("<#C1|>", "#C1"),
        ("<!subteam^S1|@team>", "@team"),
        ("<!subteam^S1>", "@subteam"),
        ("&lt;!here&gt;", "<!here>"),
    ],
)
def test_mentions_of_groups_and_channels_in_slack_are_read_as_shown(mention: str, words: str, tmp_path: Path) -> None:
    corpus = slack_channel(tmp_path, {"user": "U1", "text": f"Ask {mention}, please"})
    assert said(corpus) == [("plans", "U1", f"Ask {words}, please")]


ANDROID = """12/03/2024, 18:40 - Messages and calls are end-to-end encrypted.
12/03/2024, 18:41 - Ana: I sold
the oboe: finally
13/03/2024, 09:05 - Tom: <Media omitted>
13/03/2024, 09:06 - Tom: To whom?
"""
IOS = (
    "[3/12/24, 6:41:07\u202fPM] Ana: I sold\nthe oboe: finally\n\u200e[3/13/24, 9:05:00\u202fAM] Tom: image omitted\n"
    "[3/13/24, 9:06:00\u202fAM] Tom: To whom?\n"
)


def test_of_a_whole_slack_export_every_channel_is_a_conversation(tmp_path: Path) -> None:
    written(tmp_path, "users.json", [{"id": "U1", "name": "ana", "profile": {"real_name": "", "display_name": "Ana"}}])
    for channel, text in (("general", "Hello"), ("plans", "Lunch at noon"), ("empty", "")):
        said_there = {"type": "message", "user": "U1", "ts": "1714557600.000100", "text": text}
        written(tmp_path, f"{channel}/2024-05-01.json", [said_there])
    corpus = load_corpus("slack", str(tmp_path))
    assert said(corpus) == [("general", "Ana", "Hello"), ("plans", "Ana", "Lunch at noon")]


@pytest.mark.parametrize("beside", [[], ["channels.json"]])
@pytest.mark.parametrize("is_packed", [True, False])
def test_a_slack_export_without_its_list_of_people_is_read_whole(
    beside: list[str], is_packed: bool, tmp_path: Path
) -> None:
    place = tmp_path / "export"
    for channel in ("general", "plans"):
        message = {"type": "message", "user": "U1", "ts": "1714557600.000100", "text": channel}
        written(place, f"{channel}/2024-05-01.json", [message])
    for name in beside:
        written(place, name, [])
    path = shutil.make_archive(str(tmp_path / "packed"), "zip", place) if is_packed else str(place)
    assert said(load_corpus("slack", path)) == [("general", "U1", "general"), ("plans", "U1", "plans")]


def test_a_slack_file_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    message = {"type": "message", "user": "U1", "ts": "1714557600.000100", "text": "Hello"}
    written(tmp_path, "plans/2024-05-01.json", [message])
    written(tmp_path, "plans/2024-05-02.json", {"a": 1})
    written(tmp_path, "plans/2024-05-03.json", "[{")
    corpus = load_corpus("slack", str(tmp_path / "plans"))
    assert said(corpus) == [("plans", "U1", "Hello")]
    assert corpus.notes[0] == "skipped files that cannot be read: 2"


def test_a_chat_of_signal_export_has_the_name_of_its_folder(tmp_path: Path) -> None:
    corpus = load_corpus("whatsapp", written(tmp_path, "Tom/chat.md", ANDROID))
    assert {space for space, _, _ in said(corpus)} == {"Tom"}


@pytest.mark.parametrize(
    ("lines", "days"),
    [
        (["24/8/21 PM 1:28 - Ana: Hi"], ["2024-08-21"]),  # Korean phones write the half of the day first
        (["24/8/21, 1:28 pm - Ana: Hi"], ["2021-08-24"]),
        (["[24/8/30 오후 1:28:12] Ana: Hi", "[24/8/31 오후 1:28:12] Ana: Ho"], ["2024-08-30", "2024-08-31"]),
        (["24/8/21, 13:28 - Ana: Hi", "24/9/2, 13:28 - Ana: Ho"], ["2024-08-21", "2024-09-02"]),
        (["24/8/21, 13:28 - Ana: Hi", "25/8/21, 13:28 - Ana: Ho"], ["2021-08-24", "2021-08-25"]),
        (
            ["15/01/24, 13:28 - Ana: Hi", "15/02/24, 13:28 - Ana: Ho", "15/03/24, 13:28 - Ana: Hi"],
            ["2024-01-15", "2024-02-15", "2024-03-15"],
        ),
        (["24/12/31 PM 1:28 - Ana: Hi", "25/1/2 PM 1:28 - Ana: Ho"], ["2024-12-31", "2025-01-02"]),
    ],
)
def test_a_year_of_two_digits_may_come_first_in_a_whatsapp_chat(
    lines: list[str], days: list[str], tmp_path: Path
) -> None:
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", "\n".join(lines)))
    assert [turn.session_id for turn in corpus.conversations[0].turns] == days
    assert not corpus.notes


def test_dates_in_a_whatsapp_chat_are_read_so_that_it_runs_forward(tmp_path: Path) -> None:
    lines = [f"{day}/24, 9:12 PM - Ana: Hi {day}\n" for day in ("11/12", "12/1", "12/2")]
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", "".join(lines)))
    days = [turn.spoken_at.date().isoformat() for turn in corpus.conversations[0].turns if turn.spoken_at]
    assert days == ["2024-11-12", "2024-12-01", "2024-12-02"]
    assert not corpus.notes


def test_a_slack_message_has_the_words_of_its_blocks_or_attachments_if_it_has_none_itself(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "the key is"},
        {"type": "emoji", "name": "key"},
        {"type": "user", "user_id": "U1"},
    ]
    section = {"type": "rich_text_section", "elements": parts}
    nested: dict[str, Any] = {"type": "rich_text", "elements": [section, section]}
    deep: Any = {"type": "text", "text": "too deep"}
    for _ in range(60):
        deep = {"elements": [deep]}
    corpus = slack_channel(
        tmp_path,
        {"user": "U1", "text": "", "blocks": [nested]},
        {"user": "U1", "text": "", "attachments": [{"title": "Rota", "text": "<@U1> cooks"}, {"fallback": "a photo"}]},
        {"user": "U1", "text": "", "blocks": [deep, 3, None]},
        {"user": "U1", "text": "mine", "blocks": [nested]},
    )
    assert [text for _, _, text in said(corpus)] == ["the key isU1\nthe key isU1", "Rota\nU1 cooks\na photo", "mine"]


def test_a_slack_message_that_stands_in_two_files_is_read_once(tmp_path: Path) -> None:
    message = {"type": "message", "user": "U1", "ts": "1714557600.000100", "text": "Hello"}
    for name, text in (("a", "Hello"), ("b", "Hello"), ("c", "Hello, all")):
        written(tmp_path, f"plans/2024-05-01{name}.json", [message | {"text": text}])
    corpus = load_corpus("slack", str(tmp_path / "plans"))
    assert said(corpus) == [("plans", "U1", "Hello")]
    assert corpus.notes == ("skipped messages with the time stamp of another: 1",)


@pytest.mark.parametrize("text", [ANDROID, IOS], ids=["android", "ios"])
def test_a_whatsapp_chat_of_either_kind_of_phone_is_read(text: str, tmp_path: Path) -> None:
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", text))
    assert said(corpus) == [("family", "Ana", "I sold\nthe oboe: finally"), ("family", "Tom", "To whom?")]
    turns = corpus.conversations[0].turns
    assert [(t.turn_id[:17], t.session_id) for t in turns] == [
        ("2024-03-12T18:41:", "2024-03-12"),
        ("2024-03-13T09:06:", "2024-03-13"),
    ]
    assert turns[0].spoken_at is not None
    assert turns[0].spoken_at.replace(second=0) == datetime(2024, 3, 12, 18, 41, tzinfo=UTC)
    assert "skipped media and empty messages: 1" in corpus.notes


# 28 March 2025 at 21:29, and five minutes past the following midnight.
PHONES = {
    "Spanish": "28/3/2025, 9:29\u202fp.\xa0m. - Clara: hola\n29/3/2025, 12:05 a. m. - Pablo: vale\n",
    "Korean": "2025. 3. 28. 오후 9:29 - 지우: 안녕\n2025. 3. 29. 오전 12:05 - 민준: 응\n",
    "Korean with units": "2025년 3월 28일 오후 9:29 - 지우: 안녕\n2025년 3월 29일 오전 12:05 - 민준: 응\n",
    "Chinese": "[2025/3/28 下午9:29:01] 小红: 你好\n[2025/3/29 上午12:05:00] 小明: 好\n",
    "Japanese": "2025/3/28 21:29 - 花子: やあ\n2025/3/29 午前0:05 - 太郎: はい\n",
    "Danish": "28.03.2025 21.29 - Mads: hej\n29.03.2025 00.05 - Ida: hej\n",
    "Thai": "28/3/2568 21:29 - Somchai: sawasdee\n29/3/2568 00:05 - Mali: sawasdee\n",
    "Thai, short": "28/3/68 21:29 - Somchai: sawasdee\n29/3/68 00:05 - Mali: sawasdee\n",
    "Arabic": "٢٨/٣/٢٠٢٥، ٩:٢٩ م - ليلى: مرحبا\n٢٩/٣/٢٠٢٥، ١٢:٠٥ ص - سامي: أهلا\n",
    "old": "28/3/25 21:29:10: Pia: hello\n29/3/25 0:05:00: Tom: hi\n",
}


@pytest.mark.parametrize("phone", PHONES)
def test_the_dates_and_clocks_of_phones_of_many_languages_are_read(phone: str, tmp_path: Path) -> None:
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", PHONES[phone]))
    times = [turn.spoken_at for turn in corpus.conversations[0].turns]
    assert [time and (time.year, time.month, time.day, time.hour, time.minute) for time in times] == [
        (2025, 3, 28, 21, 29), (2025, 3, 29, 0, 5)
    ]  # fmt: skip
    assert not corpus.notes


def test_a_message_with_a_clock_that_is_not_understood_is_nobody_elses_words(tmp_path: Path) -> None:
    text = (
        "20/6/2024, 08:28 - Ana: the keys are with Nora\n21/6/2024, 9:01 xyz - Tom: I took them\nand left\n"
        "22/6/2024, 08:30 - Ana: thanks\non 23/6/2024, 08:30 - maybe: later\n"
    )
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", text))
    assert [text for _, _, text in said(corpus)] == [
        "the keys are with Nora", "thanks\non 23/6/2024, 08:30 - maybe: later"
    ]  # fmt: skip
    assert corpus.notes == ("skipped messages with a date or clock that is not understood: 1",)


def test_what_the_app_itself_writes_on_an_iphone_is_nobodys_words_in_any_language(tmp_path: Path) -> None:
    lines = [
        "Paddler: \u200eMessages and calls are end-to-end encrypted.", "Bo: \u200eBo hat diese Gruppe erstellt",
        "Bo: \u200eimage omitted", "\u200e~ Nils: the canoe is at the shed", "Bo: ok \u200e<This message was edited>",
    ]  # fmt: skip
    text = "".join(f"[14.08.2024, 21:00:{second}] {line}\n" for second, line in enumerate(lines, start=10))
    corpus = load_corpus("whatsapp", written(tmp_path, "canoe.txt", text))
    assert said(corpus) == [("canoe", "Nils", "the canoe is at the shed"), ("canoe", "Bo", "ok")]
    assert corpus.notes == ("skipped media and empty messages: 1", "skipped notices of the app: 2")


def test_a_name_with_quotation_marks_speaks_and_words_in_angle_brackets_are_words(tmp_path: Path) -> None:
    corpus = whatsapp_chat(tmp_path, 'Robert "Bob" Hill: hello', "Ana: <see you at 5>", "Ana: <Media weggelaten>")
    assert said(corpus) == [("family", 'Robert "Bob" Hill', "hello"), ("family", "Ana", "<see you at 5>")]


def test_pasted_lines_that_look_like_notices_of_later_days_stay_with_their_message(tmp_path: Path) -> None:
    text = (
        "12/03/2024, 18:40 - Ana: from my calendar:\n14/03/2024, 09:00 - dentist\n21/03/2024, 15:30 - parcel 7719\n"
        "12/03/2024, 18:41 - Tom: ok\n13/03/2024, 08:00 - Ana added Bo\n13/03/2024, 08:01 - Bo: hi\n"
    )
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", text))
    assert [text for _, _, text in said(corpus)] == [
        "from my calendar:\n14/03/2024, 09:00 - dentist\n21/03/2024, 15:30 - parcel 7719", "ok", "hi"
    ]  # fmt: skip
    assert corpus.notes == ("skipped notices without a speaker: 1",)


def test_one_line_that_cannot_be_read_costs_that_message_alone(tmp_path: Path) -> None:
    lines = ["30/02/2024, 09:00 - Ana: never", "28/02/2024, 09:00 - Ana: a\0b", "28/02/2024, 10:00 - Ana: fine"]
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", "\n".join(lines)))
    assert [text for _, _, text in said(corpus)] == ["fine"]
    assert corpus.notes[0] == "skipped messages that cannot be read: 2"
    assert "line 2" in corpus.notes[1]


def test_lines_of_another_form_are_pasted_and_cost_nobody_a_word(tmp_path: Path) -> None:
    text = (
        "2024-03-12 18:40 - Ana: Hi\n1/2/2024, 10:00 - Foo: pasted\n2024-03-12 18:41 - Tom: ok\n"
        "15.03.2024 Training 10:30 Halle 3 - bitte mitbringen: Schuhe\nund danach essen\n"
    )
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", text))
    assert said(corpus) == [
        ("family", "Ana", "Hi\n1/2/2024, 10:00 - Foo: pasted"),
        ("family", "Tom", "ok\n15.03.2024 Training 10:30 Halle 3 - bitte mitbringen: Schuhe\nund danach essen"),
    ]
    assert corpus.notes == ()


def test_one_date_that_contradicts_the_others_costs_its_message_alone(tmp_path: Path) -> None:
    lines = ["3/13/2024, 10:00 - Ana: Hi", "3/14/2024, 10:00 - Tom: ok", "13/12/2024, 10:00 - Foo: x"]
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", "\n".join(lines)))
    assert [text for _, _, text in said(corpus)] == ["Hi", "ok"]
    assert corpus.notes[0] == "skipped messages that cannot be read: 1"


def test_a_notice_slightly_out_of_order_is_a_notice_and_pasted_earlier_days_are_not(tmp_path: Path) -> None:
    text = (
        "13/03/2024, 18:40 - Ana: Timeline:\n01/02/2024, 10:00 - Kickoff\nand then all else\n"
        "13/03/2024, 18:45 - Bob left\n13/03/2024, 18:44 - Carl: bye\n"
    )
    corpus = load_corpus("whatsapp", written(tmp_path, "family.txt", text))
    assert [text for _, _, text in said(corpus)] == [
        "Timeline:\n01/02/2024, 10:00 - Kickoff\nand then all else", "bye"
    ]  # fmt: skip
    assert corpus.notes == ("skipped notices without a speaker: 1",)


@pytest.mark.parametrize("header", ["26/09/2019 à 22:39 - ", "26.9.2019 klo 22.39 - ", "26.09.2019 г., 22:39 - ",
                                    "٢٦\u200f/٩\u200f/٢٠١٩، ١٠:٣٩ م - "])  # fmt: skip
def test_words_and_marks_between_date_and_clock_are_read_over(header: str, tmp_path: Path) -> None:
    corpus = load_corpus("whatsapp", written(tmp_path, "a.txt", f"{header}\u202a+49 151 2345678\u202c: hi\n"))
    (turn,) = corpus.conversations[0].turns
    assert (turn.speaker, turn.spoken_at) == ("+49 151 2345678", datetime(2019, 9, 26, 22, 39, tzinfo=UTC))


def whatsapp_chat(tmp_path: Path, *messages: str) -> Corpus:
    text = "".join(f"13/03/2024, 09:{minute:02} - {each}\n" for minute, each in enumerate(messages))
    return load_corpus("whatsapp", written(tmp_path, "family.txt", text))


def test_a_whatsapp_notice_is_no_turn_although_it_quotes_a_colon_or_continues_with_one(tmp_path: Path) -> None:
    corpus = whatsapp_chat(
        tmp_path,
        'Tom changed the group name from "Rome" to "Rome: the trip"',
        "Tom changed the group name from “Rome” to “Rome: the trip”",
        "Tom changed the group description\nWhat to bring: a hat",
        'Ana: He said: "Rome: the trip"\nSee: nothing',
    )
    assert said(corpus) == [("family", "Ana", 'He said: "Rome: the trip"\nSee: nothing')]
    assert "skipped notices without a speaker: 3" in corpus.notes


def test_deleted_messages_and_media_of_whatsapp_are_no_turns(tmp_path: Path) -> None:
    deleted = [
        "This message was deleted",
        "This message was deleted.",
        "You deleted this message",
        "\u200eYou deleted this message.",
    ]
    media = [
        "null",
        "<attached: 00000012-PHOTO-2024-03-12-18-40-12.jpg>",
        "<pièce jointe : 00000012-Liste de noms.pdf>",
        "GIF omitted",
        "<Medien ausgeschlossen>",
    ]
    talk = ["Is it null?", "This message was deleted. Why?", "null and void", "wifi omitted", "<hello>"]
    corpus = whatsapp_chat(tmp_path, *(f"Ana: {text}" for text in [*deleted, *media, *talk]))
    assert [text for _, _, text in said(corpus)] == talk
    assert {"skipped deleted messages: 4", "skipped media and empty messages: 5"} <= set(corpus.notes)


def test_an_edited_whatsapp_message_is_read_without_the_remark(tmp_path: Path) -> None:
    remark = "\u200e<This message was edited>"
    corpus = whatsapp_chat(tmp_path, f"Ana: I sold\nthe oboe {remark}", f"Tom: {remark} is new")
    assert [text for _, _, text in said(corpus)] == ["I sold\nthe oboe", "<This message was edited> is new"]


def test_messages_of_a_whatsapp_chat_keep_their_ids_in_exports_that_begin_later_or_lack_some(tmp_path: Path) -> None:
    lines = [
        "12/03/2024, 23:58 - Ana: Hello", "12/03/2024, 23:59 - Ana: Hello", "12/03/2024, 23:59 - Ana: Hello",
        "13/03/2024, 00:01 - Tom: Hi", "12/03/2024, 23:59 - Ana: Are you awake?",
    ]  # fmt: skip

    def ids(*places: int) -> list[str]:
        text = "\n".join(lines[place] for place in places)
        return [
            turn.turn_id for turn in load_corpus("whatsapp", written(tmp_path, "a.txt", text)).conversations[0].turns
        ]

    whole = ids(0, 1, 2, 3, 4)
    assert len(set(whole)) == 5
    assert ids(1, 2, 3, 4) == whole[1:]
    assert ids(0, 3, 4) == [whole[0], *whole[3:]]


def test_alike_messages_of_one_minute_keep_their_ids_in_an_export_that_begins_between_them(tmp_path: Path) -> None:
    def turns(form: str, content: Any) -> list[tuple[str, datetime | None]]:
        corpus = load_corpus(form, written(tmp_path, f"{form}.txt", content))
        return [(turn.turn_id, turn.spoken_at) for turn in corpus.conversations[0].turns]

    seconds = (0, 10, 50)
    lines = [f"[13/03/2024, 18:40:{second:02}] Tom: ok\n" for second in seconds]
    talk = [{"role": "user", "content": "ok", "timestamp": f"2024-03-13T18:40:{second:02}"} for second in seconds]
    assert turns("whatsapp", "".join(lines[2:])) == turns("whatsapp", "".join(lines))[2:]
    assert turns("messages", talk[2:]) == turns("messages", talk)[2:]
    # The IDs of whole minutes are those that exports without seconds have.
    minute = turns("whatsapp", "13/03/2024, 18:40 - Tom: ok\n")
    assert turns("whatsapp", lines[0]) == minute
    assert minute[0][0].startswith("2024-03-13T18:40:")
    assert len(minute[0][0]) == len("2024-03-13T18:40:") + 8


def test_a_whatsapp_chat_whose_dates_are_ambiguous_says_so_and_contradictions_are_refused(tmp_path: Path) -> None:
    corpus = load_corpus("whatsapp", written(tmp_path, "a.txt", "02/03/2024, 18:41 - Ana: Hello\n"))
    assert corpus.conversations[0].turns[0].session_id == "2024-03-02"
    assert "no date shows whether the day or the month comes first; dates were read with the day first" in corpus.notes
    lines = "".join(f"25/12/{year}, 09:00 - Ana: Merry Christmas\n" for year in (22, 23, 24))
    yearly = load_corpus("whatsapp", written(tmp_path, "d.txt", lines))  # or three days of December 2025
    assert [turn.session_id for turn in yearly.conversations[0].turns] == ["2022-12-25", "2023-12-25", "2024-12-25"]
    assert "dates may have the year first; they were read with the day first" in yearly.notes
    both = "13/03/2024, 18:41 - Ana: Hello\n03/13/2024, 18:41 - Ana: Hello\n"
    with pytest.raises(CorpusFormatError, match="line 2"):
        load_corpus("whatsapp", written(tmp_path, "b.txt", both))
    with pytest.raises(CorpusFormatError, match="line 1"):
        load_corpus("whatsapp", written(tmp_path, "c.txt", "31/02/2024, 18:41 - Ana: Hello\n"))


@pytest.mark.parametrize("name", ["_chat.txt", "_chat (1).txt"])
def test_a_file_that_is_called_as_every_exported_chat_needs_the_name_of_its_space(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name, ANDROID)
    with pytest.raises(CorpusFormatError, match=r"does not identify the chat; name this chat with --corpus\.space"):
        load_corpus("whatsapp", path)
    corpus = load_corpus("whatsapp", path, space="family")
    assert said(corpus) == [("family", "Ana", "I sold\nthe oboe: finally"), ("family", "Tom", "To whom?")]
    assert {turn.conversation_id for turn in corpus.conversations[0].turns} == {"family"}


def test_a_name_of_a_space_is_for_one_conversation_whose_questions_follow_it(tmp_path: Path) -> None:
    with pytest.raises(CorpusFormatError, match="'x'; expected null, since the file holds 8 conversations, such as 'h"):
        load_corpus("jsonl", "sample", space="x")
    with pytest.raises(CorpusFormatError, match="1 to 240 bytes"):
        load_corpus("jsonl", "sample", conversations=["harbor"], space="")
    harbor, renamed = (load_corpus("jsonl", "sample", conversations=["harbor"], space=name) for name in (None, "x"))
    assert [each.space for each in renamed.conversations] == ["x"]
    assert {each.space for each in renamed.questions} == {"x"}
    assert [q.evidence for q in renamed.questions] == [q.evidence for q in harbor.questions]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["messages", "role", "content", "id", "mapping", "current_node", "ts", "user", "text", "message"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(JSON, st.text(max_size=60)), form=st.sampled_from(["messages", "chatgpt", "slack", "whatsapp"])
)
def test_whatever_a_file_holds_it_is_read_or_refused_in_one_line(content: Any, form: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    text = content if isinstance(content, str) and form == "whatsapp" else json.dumps(content)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    refused = ""
    try:
        load_corpus(form, str(path))
    except CorpusFormatError as error:
        refused = str(error)
    assert "\n" not in refused


def test_one_document_over_several_lines_is_told_from_jsonl(tmp_path: Path) -> None:
    pretty = written(tmp_path, "chats.jsonl", json.dumps({"conversation_id": "a", "sessions": []}, indent=1))
    with pytest.raises(CorpusFormatError, match=r"documents over several lines \(jq -c [.] writes"):
        load_corpus("jsonl", pretty)
    several = written(tmp_path, "two.jsonl", {})
    Path(several).write_text('{\n"conversation_id": "a"}\n\n{\n"conversation_id": "b"}\n')
    with pytest.raises(CorpusFormatError, match=r"documents over several lines \(jq -c [.] writes"):
        load_corpus("jsonl", several)


@pytest.mark.parametrize("indent", [None, 1])
def test_a_list_in_the_place_of_jsonl_is_told_how_to_become_lines(tmp_path: Path, indent: int | None) -> None:
    chats = json.dumps([{"conversation_id": "a", "sessions": []}], indent=indent)
    with pytest.raises(CorpusFormatError, match=r"jq -c '[.]\[\]' writes each member on a line"):
        load_corpus("jsonl", written(tmp_path, "chats.jsonl", chats))


def test_contacts_with_a_quotation_mark_within_their_name_speak(tmp_path: Path) -> None:
    corpus = whatsapp_chat(
        tmp_path, 'ד"ר כהן: שלום', "Tom 6'2\": I am tall", 'Bo "the cook" Ek: Hi', 'Ana named it "A: B"'
    )
    assert [speaker for _, speaker, _ in said(corpus)] == ['ד"ר כהן', "Tom 6'2\"", 'Bo "the cook" Ek']


def test_of_media_with_a_caption_the_caption_is_read(tmp_path: Path) -> None:
    corpus = whatsapp_chat(
        tmp_path,
        "Ana: Our hotel \u200e<attached: 00000012-PHOTO-2024-03-12-18-40-12.jpg>",
        "Ana: The pool is heated \u200eimage omitted",
        "Ana: contract.pdf • \u200e12 pages \u200edocument omitted",
        "Ana: IMG-20240312-WA0001.jpg (file attached)\nOur new kitchen",
        "Ana: Das Zimmer \u200eBild weggelassen",
        "Ana: Look at this: \u200eimage omitted",
        "Ana: PS: \u200ehttps://a.b",
        "Ana: Please sign this \u200eLease.pdf • \u200e3 pages \u200edocument omitted",
        "Ana: Sign by Friday • thanks • \u200e<attached: 00000012-Lease.pdf>",
        "Ana: \u200eMy lease.pdf (file attached)\nPlease sign",
    )
    assert [text for _, _, text in said(corpus)] == [
        "Our hotel", "The pool is heated", "Our new kitchen", "Das Zimmer", "Look at this:", "PS: https://a.b",
        "Please sign this", "Sign by Friday • thanks •", "Please sign",
    ]  # fmt: skip


def test_what_the_app_says_in_the_name_of_a_contact_or_group_is_no_turn(tmp_path: Path) -> None:
    corpus = whatsapp_chat(
        tmp_path,
        "Ana: Missed voice call",
        "Ana: Waiting for this message. This may take a while.",
        "Ana: <View once voice message omitted>",
        "Анна: Данное сообщение удалено",
        "Ana: Missed voice call from the bank",
    )
    assert [text for _, _, text in said(corpus)] == ["Missed voice call from the bank"]


def test_marks_of_sources_in_an_answer_of_chatgpt_are_left_out(tmp_path: Path) -> None:
    export = chatgpt_export()
    cited = "\ue200cite\ue202turn0search0\ue201【12†source】"
    marked = f'In \ue200entity\ue202["city","Paris","capital"]\ue201 it rains. {cited}'
    text = json.dumps(export).replace("In Belgium.", json.dumps(marked)[1:-1])
    assert "turn0search0" in text
    corpus = load_corpus("chatgpt", written(tmp_path, "conversations.json", json.loads(text)))
    assert "In Paris it rains. " in [text for _, _, text in said(corpus)]

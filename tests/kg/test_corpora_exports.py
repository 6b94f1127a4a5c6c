"""Exports of Telegram, Discord, Claude, Messages on a Mac and mail; which format a file has, and archives."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from locigraph.kg.corpora import FORMATS, Corpus, load_corpus
from locigraph.kg.corpora.recognition import recognised
from locigraph.kg.errors import CorpusFormatError
from tests.faults.corpora import SOUND
from tests.kg.chat_files import said, written


def days(corpus: Corpus) -> list[str]:
    return [str(turn.session_id) for conversation in corpus.conversations for turn in conversation.turns]


TELEGRAM = {
    "name": "Tom",
    "type": "personal_chat",
    "id": 7,
    "messages": [
        {"id": 1, "type": "service", "date": "2024-03-01T09:00:00", "actor": "Tom", "action": "joined", "text": ""},
        {
            "id": 2, "type": "message", "date": "2024-03-01T10:00:00", "date_unixtime": "1709283600", "from": "Tom",
            "from_id": "user1", "text": ["see ", {"type": "link", "text": "http://a.b"}, " now"],
        },
        {"id": 3, "type": "message", "date": "2024-03-02T10:00:00", "from": None, "from_id": "user2", "text": "Ok"},
        {"id": 4, "type": "message", "date": "2024-03-02T10:00:01", "from": "Tom", "text": "", "photo": "a.jpg"},
        {"id": "x", "type": "message", "date": "2024-03-02T10:00:02", "from": "Tom", "text": "?"},
        {
            "id": 5, "type": "message", "date": "2024-03-02T10:00:03", "from": "Tom", "text": "",
            "poll": {
                "question": ["Who ", {"type": "bold", "text": "comes"}, "?"],
                "answers": [{"text": "I"}, {"text": "Not I"}],
            },
        },
    ],
}  # fmt: skip


def test_a_telegram_chat_is_read_with_its_links_and_without_its_notices(tmp_path: Path) -> None:
    corpus = load_corpus("telegram", written(tmp_path, "result.json", TELEGRAM))
    assert said(corpus) == [
        ("Tom", "Tom", "see http://a.b now"),
        ("Tom", "user2", "Ok"),
        ("Tom", "Tom", "Who comes?\nI\nNot I"),
    ]
    assert days(corpus) == ["2024-03-01", "2024-03-02", "2024-03-02"]
    assert corpus.notes[:3] == (
        "skipped messages that cannot be read: 1", "skipped messages without text: 1", "skipped notices: 1"
    )  # fmt: skip


def test_all_chats_of_a_telegram_account_are_conversations_and_alike_names_are_told_apart(tmp_path: Path) -> None:
    chats = [TELEGRAM, TELEGRAM | {"id": 8}, TELEGRAM | {"id": 9, "name": None}]
    corpus = load_corpus("telegram", written(tmp_path, "result.json", {"chats": {"list": chats}}))
    assert [str(each.space) for each in corpus.conversations] == ["Tom 7", "Tom 8", "chat 9"]


def test_what_somebody_passes_on_is_marked_as_not_theirs(tmp_path: Path) -> None:
    message = {"type": "message", "date": "2024-03-02T10:00:00", "from": "Ana", "text": "I moved to Berlin."}
    messages = [message | {"id": 1, "forwarded_from": "Tom"}, message | {"id": 2, "forwarded_from": None}]
    corpus = load_corpus("telegram", written(tmp_path, "result.json", TELEGRAM | {"messages": messages}))
    assert [text for _, _, text in said(corpus)] == [
        "Forwarded from Tom: I moved to Berlin.", "Forwarded: I moved to Berlin."
    ]  # fmt: skip
    share = {"is_share": True, "author_name": "Bob", "text": "I quit."}
    shared = {"type": "message", "user": "U1", "ts": "1714557600.000100", "text": "", "attachments": [share]}
    corpus = load_corpus("slack", written(tmp_path, "2024-05-01.json", [shared]))
    assert [text for _, _, text in said(corpus)] == ["Forwarded from Bob: I quit."]


def test_a_discord_channel_is_read_with_the_names_that_it_shows(tmp_path: Path) -> None:
    ana = {"id": "1", "name": "ana_r", "nickname": "Ana", "isBot": False}
    at = "2024-05-01T10:00:00+02:00"
    channel = {
        "guild": {"id": "1", "name": "Rowers"},
        "channel": {"id": "2", "type": "GuildTextChat", "name": "plans"},
        "messages": [
            {"id": "10", "type": "Default", "timestamp": at, "content": "I sold the oboe.", "author": ana},
            {"id": "11", "type": "GuildMemberJoin", "timestamp": at, "content": "joined", "author": ana},
            {"id": "12", "type": "Reply", "timestamp": at, "content": "", "author": ana, "embeds": [{"title": "Rota"}]},
            {"id": "13", "type": "Default", "timestamp": at, "content": "", "author": ana},
            {"id": "15", "type": "20", "timestamp": at, "content": "Row at six.", "author": ana},
            {"id": "14", "type": "Default", "timestamp": None, "content": "When?", "author": ana},
        ],
    }
    corpus = load_corpus("discord", written(tmp_path, "export.json", channel))
    assert said(corpus) == [
        ("Rowers plans", "Ana", "I sold the oboe."), ("Rowers plans", "Ana", "Rota"),
        ("Rowers plans", "Ana", "Row at six."),
    ]  # fmt: skip
    assert len(corpus.notes) == 4
    passed_on = {"id": "16", "type": "Default", "timestamp": at, "content": "", "author": ana}
    channel["messages"] = [passed_on | {"forwardedMessage": {"content": "We move to Berlin."}}]
    assert (
        said(load_corpus("discord", written(tmp_path, "passed.json", channel)))[0][2] == "Forwarded: We move to Berlin."
    )
    channel["guild"] = {"id": "0", "name": "Direct Messages"}
    assert load_corpus("discord", written(tmp_path, "direct.json", channel)).conversations[0].space == "plans"


def test_a_claude_export_is_read_without_thinking_and_tools(tmp_path: Path) -> None:
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "In Belgium."}, {"type": "tool_use"}]
    export = [
        {
            "uuid": "c1",
            "name": "Ghent",
            "chat_messages": [
                {"uuid": "a", "sender": "human", "text": "Where is Ghent?", "created_at": "2024-05-01T10:00:00Z"},
                {"uuid": "b", "sender": "assistant", "text": "", "content": parts, "created_at": None},
                {"uuid": "c", "sender": "human", "text": "", "content": [{"type": "image"}]},
                {"uuid": "d", "sender": "system", "text": "Be kind."},
                {"uuid": "e", "sender": "human", "text": "", "attachments": [{"extracted_content": "A long poem."}]},
                {"uuid": "f", "sender": "human", "text": "Sum it up", "attachments": [{"extracted_content": "Long."}]},
                {"uuid": "g", "sender": "human", "text": "Thanks", "attachments": None},
            ],
        },
        {"uuid": "c2", "chat_messages": None},
    ]
    corpus = load_corpus("claude", written(tmp_path, "conversations.json", export))
    assert said(corpus) == [
        ("c1", "User", "Where is Ghent?"),
        ("c1", "Assistant", "In Belgium."),
        ("c1", "User", "A long poem."),
        ("c1", "User", "Sum it up"),
        ("c1", "User", "Thanks"),
    ]
    assert days(corpus) == ["2024-05-01"] * 5
    assert "skipped conversations that cannot be read: 1" in corpus.notes


@pytest.mark.parametrize(
    ("leaf", "shown"), [(None, "Munich."), ("b", "Munich."), ("d", "Berlin."), ("unknown", "Munich.")]
)
def test_of_a_claude_conversation_the_branch_that_was_shown_last_is_read(
    leaf: str | None, shown: str, tmp_path: Path
) -> None:
    root = "00000000-0000-4000-8000-000000000000"
    edited = [
        ("c", root, "Berlin."),
        ("d", "c", "Berlin, noted."),
        ("a", root, "Munich."),
        ("b", "a", "Munich, noted."),
    ]
    messages = [
        {"uuid": name, "parent_message_uuid": parent, "sender": "human", "text": text}
        for name, parent, text in [*edited, ("e", "lost", "Earlier.")]
    ]
    if leaf != "b":
        messages = messages[:4]
    export = [{"uuid": "c1", "chat_messages": messages, "current_leaf_message_uuid": leaf}]
    corpus = load_corpus("claude", written(tmp_path, "conversations.json", export))
    texts = {text for _, _, text in said(corpus)}
    assert {shown, f"{shown[:-1]}, noted."} <= texts
    assert len(texts) == (3 if leaf == "b" else 2)  # what nothing joins to the rest is kept
    assert corpus.notes == ("skipped messages of branches that are no longer shown: 2",)


IMESSAGE = """May 17, 2022  5:29:42 PM (Read by you after 1 minute)
Ana Ruiz
I sold the oboe.

To whom, you ask?
Tapbacks:
    Loved by Tom

May 17, 2022  5:30:00 PM
Me
    May 18, 2022  9:00:00 AM
    Tom
    A reply

May 18, 2022  9:00:01 AM You named the conversation Oboes
May 18, 2022  9:00:02 AM
Tom

"""


def test_a_chat_of_imessage_exporter_is_read(tmp_path: Path) -> None:
    corpus = load_corpus("imessage", written(tmp_path, "Ana.txt", IMESSAGE))
    assert said(corpus)[0] == ("Ana", "Ana Ruiz", "I sold the oboe.\n\nTo whom, you ask?")
    assert corpus.conversations[0].turns[0].spoken_at is not None
    assert corpus.conversations[0].turns[0].spoken_at.hour == 17
    assert "skipped notices: 1" in corpus.notes


def test_a_name_in_parentheses_is_read_over_in_imessage(tmp_path: Path) -> None:
    line = "May 17, 2022  5:29:42 PM (Read by Bob (work) after 1 minute)"
    corpus = load_corpus("imessage", written(tmp_path, "Ana.txt", f"{line}\nAna Ruiz\nI sold the oboe.\n\n"))
    assert said(corpus) == [("Ana", "Ana Ruiz", "I sold the oboe.")]


MBOX = """From ana@example.org Wed May  1 10:00:00 2024
From: Ana Ruiz <ana@example.org>
Date: Wed, 01 May 2024 10:00:00 +0200
Message-ID: <1@example.org>
Subject: =?utf-8?q?The_caf=C3=A9?=

It opens at nine.
From the bus stop it is near.
--\x20
Ana, baker

From tom@example.org Thu May  2 10:00:00 2024
From: tom@example.org
Date: Thu, 02 May 2024 10:00:00 +0200
Message-ID: <2@example.org>
Subject: Re: The cafe

On Wed, 1 May 2024 Ana Ruiz wrote:
> It opens at nine.
See you there.

From x@example.org Thu May  2 10:00:00 2024
From: x@example.org
Subject: no date

Hm.
"""


def test_a_mailbox_is_read_without_what_its_mails_quote(tmp_path: Path) -> None:
    corpus = load_corpus("mbox", written(tmp_path, "bakery.mbox", MBOX))
    assert said(corpus) == [
        ("bakery", "Ana Ruiz", "The café\nIt opens at nine.\nFrom the bus stop it is near."),
        ("bakery", "tom@example.org", "Re: The cafe\nSee you there."),
    ]
    assert days(corpus) == ["2024-05-01", "2024-05-02"]
    assert corpus.notes[0] == "skipped mails that cannot be read: 1"


def test_of_messages_with_one_id_the_first_is_read_and_the_others_are_counted(tmp_path: Path) -> None:
    texts, common = ("Hi", "Ho", "Hi"), {"uuid": "a", "sender": "human", "created_at": "2024-05-01T10:00:00Z"}
    said_twice = [common | {"text": text} for text in texts]
    corpus = load_corpus("claude", written(tmp_path, "c.json", [{"uuid": "c1", "chat_messages": said_twice}]))
    assert [text for _, _, text in said(corpus)] == ["Hi"]
    assert corpus.notes == ("skipped messages with the ID of another: 1",)


REPLY = """May 17, 2022  5:29:42 PM
Ana
Did you send it?
    May 17, 2022  5:30:00 PM
    Bob
    Sent! Check your email

May 17, 2022  5:30:00 PM
Bob
Sent! Check your email
This message responded to an earlier message.
"""


def test_a_reply_that_imessage_exporter_writes_twice_is_read_once(tmp_path: Path) -> None:
    corpus = load_corpus("imessage", written(tmp_path, "Ana.txt", REPLY))
    assert said(corpus) == [("Ana", "Ana", "Did you send it?"), ("Ana", "Bob", "Sent! Check your email")]


LONG_REPLY = """May 17, 2022  5:29:42 PM
Tom
Where do you live now?

    May 17, 2022  5:30:00 PM
    Ana
    I moved to Berlin.
I work as a nurse there.

My flat is small.

And where do you work?

May 17, 2022  5:30:00 PM
Ana
I moved to Berlin.
I work as a nurse there.

My flat is small.
This message responded to an earlier message.
"""


def test_no_line_of_a_reply_in_imessage_is_put_into_the_mouth_of_who_is_answered(tmp_path: Path) -> None:
    corpus = load_corpus("imessage", written(tmp_path, "Ana.txt", LONG_REPLY))
    (_, asking, asked), (_, replying, replied) = said(corpus)
    assert (asking, replying) == ("Tom", "Ana")
    assert asked.split() == ["Where", "do", "you", "live", "now?", "And", "where", "do", "you", "work?"]
    assert replied == "I moved to Berlin.\nI work as a nurse there.\n\nMy flat is small."


@pytest.mark.parametrize(
    ("body", "own"),
    [
        (">From now on I live in Rome.\n", "From now on I live in Rome."),
        ("Yes.\n\nFrom here we drive to Rome.\n", "Yes.\n\nFrom here we drive to Rome."),
        ("Yes.\n\nOn Mon, 1 May 2024 at 10:00 Ana <a@x.org> wrote:\n\n> It opens.\n", "Yes."),
        ("Yes.\n\nOn Mon, 1 May 2024 at 10:00 Ana Ruiz the baker\n<a@x.org> wrote:\n\n> It opens.\n", "Yes."),
        ("I sold the car!\nOn Thu, Jun 13, 2024 at 9:12 AM Ana <a@x> wrote:\n> Cafe\n", "I sold the car!"),
        ("Ja.\nAm 13.06.2024 um 09:12 schrieb Ana:\n> Kommst du?\n", "Ja."),
        ("Ana Ruiz wrote:\n> Cafe?\nYes.\n", "Yes."),
        ("2024-06-13 9:12 GMT+02:00 Ana <a@x.org>:\n> Cafe?\nYes.\n", "Yes."),
        ("I doubt this sentence of yours:\n> It pays.\n", "I doubt this sentence of yours:"),
        ("We meet at 9:30 for these reasons:\n> It pays.\n", "We meet at 9:30 for these reasons:"),
        ("In 2019 my sister wrote:\n> It pays.\n", "In 2019 my sister wrote:"),
        (
            "On Friday I sold the boat and then my boss wrote:\n> Stay.\n",
            "On Friday I sold the boat and then my boss wrote:",
        ),
        ("Ja.\n\nVon: Ana Ruiz\nGesendet: Montag\nAn: b\n\nIch wohne in Rom.\n", "Ja."),
        ("Yes.\n\n*From:* Ana Ruiz\n*Sent:* Monday\n\nI live in Rome.\n", "Yes."),
        ("Oui.\n\nDe : Ana Ruiz\nDate : lundi\n\nJe vis en Italie.\n", "Oui."),
        ("Yes.\n\n-----Original Message-----\nFrom: Ana\nSent: Monday\n\nI live in Rome.\n", "Yes."),
    ],
)
def test_own_words_in_a_mail_are_told_from_those_of_others(body: str, own: str, tmp_path: Path) -> None:
    head = "From b@x.org Wed May  1 10:00:00 2024\nFrom: b@x.org\nDate: Wed, 01 May 2024 10:00:00 +0000\n"
    head += "Message-ID: <1>\n\n"
    assert [text for _, _, text in said(load_corpus("mbox", written(tmp_path, "a.mbox", head + body)))] == [own]


@pytest.mark.parametrize(("said_there", "read"), [(b"The oven is out.", "The oven is out."), (b"Caf\xe9", "Café")])
def test_a_mail_in_an_encoding_that_nobody_knows_is_read(said_there: bytes, read: str, tmp_path: Path) -> None:
    head = b"From b@x.org Wed May  1 10:00:00 2024\nFrom: b@x.org\nDate: Wed, 01 May 2024 10:00:00 +0000\n"
    head += b"Message-ID: <1>\nContent-Type: text/plain; charset=x-none\nContent-Transfer-Encoding: 8bit\n\n"
    (tmp_path / "a.mbox").write_bytes(head + said_there + b"\n")
    assert [text for _, _, text in said(load_corpus("mbox", str(tmp_path / "a.mbox")))] == [read]


@pytest.mark.parametrize(
    ("content", "form"),
    [
        ([{"role": "user", "content": "Hi", "type": "message", "ts": "1"}], "messages"),
        ([{"role": "user", "content": [{"type": "x", "input": {"from": "a", "text": "b"}}]}], "messages"),
        ('[13/06/24, 21:41:07] Ana: {"role": "user", "content": "Hi"}\n', "whatsapp"),
    ],
)
def test_words_and_keys_within_a_chat_do_not_decide_its_format(content: Any, form: str, tmp_path: Path) -> None:
    row = recognised(written(tmp_path, "chat.txt", content))
    assert row is not None
    assert row.name == form


def test_a_mail_that_the_parser_fails_on_costs_no_other(tmp_path: Path) -> None:
    hostile = MBOX.replace("<2@example.org>", "<a@[").replace("tom@example.org\nDate", "(" * 400 + "\nDate")
    corpus = load_corpus("mbox", written(tmp_path, "bakery.mbox", hostile))
    assert len(corpus.conversations[0].turns) == 1
    assert corpus.notes[0] == "skipped mails that cannot be read: 2"


@pytest.mark.parametrize("form", SOUND)
def test_the_format_of_a_file_is_found_out_and_said(form: str, tmp_path: Path) -> None:
    path = str(SOUND[form].write(tmp_path, SOUND[form].make(["I sold the oboe.", "To whom?"])))
    row = recognised(path)
    assert row is not None
    assert row.name == form
    corpus = load_corpus(None, path)
    assert corpus.format == form
    assert corpus.conversations == load_corpus(form, path).conversations
    assert (f"read as {form}; --corpus.format names another format" in corpus.notes) == FORMATS[form].is_export


@pytest.mark.parametrize("form", ["messages", "jsonl", "chatgpt"])
def test_a_file_that_is_read_as_another_format_is_told_which_one_it_looks_like(form: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusFormatError, match=r"this looks like the format 'discord': name it with --corpus\.format"):
        load_corpus(form, written(tmp_path, "x.json", {"guild": 1, "channel": 2, "messages": [3]}))
    with pytest.raises(CorpusFormatError, match="the format is not recognised; known: locomo, "):
        load_corpus(form, written(tmp_path, "y.json", {"what": "is this?"}))


@pytest.mark.parametrize("form", ["chatgpt", "whatsapp", "slack", "telegram"])
def test_an_archive_is_read_as_what_it_holds(form: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    SOUND[form].write(inside, SOUND[form].make(["I sold the oboe.", "To whom?"]))
    files = sorted(each for each in inside.rglob("*") if each.is_file())
    names = {"chatgpt": "conversations.json", "whatsapp": "_chat.txt", "telegram": "export/result.json"}
    archive = tmp_path / "WhatsApp Chat - Tom.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for file in files:
            packed.write(file, names.get(form, str(file.relative_to(inside))))
        packed.writestr("__MACOSX/._a.txt", "x")
        packed.writestr("../out.json", "[]")
    corpus = load_corpus(None, str(archive))
    assert corpus.format == form
    assert corpus.path == str(archive)
    assert [text for _, _, text in said(corpus)][:1] == ["I sold the oboe."]
    if form == "whatsapp":
        assert corpus.conversations[0].space == "WhatsApp Chat - Tom"
    assert not (tmp_path.parent / "out.json").exists()


def test_what_is_said_of_an_archive_names_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "team.zip"
    message = {"type": "message", "user": "U1", "ts": "1714557600.000100", "text": "Hello"}
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("general/2024-05-01.json", json.dumps([message]))
        packed.writestr("general/2024-05-02.json", "{}")
        packed.writestr("plans/2024-05-01.json", json.dumps([message]))
    corpus = load_corpus(None, str(archive))
    assert f"the first that cannot be read: {archive}: general/2024-05-02.json" in "\n".join(corpus.notes)
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("conversations.json", '[{"mapping": 3}]')
    with pytest.raises(CorpusFormatError, match=f"^{archive}: ") as raised:
        load_corpus(None, str(archive))
    assert "corpus_" not in str(raised.value)


def test_an_archive_that_cannot_be_unpacked_or_holds_several_files_is_refused(tmp_path: Path) -> None:
    several = tmp_path / "several.zip"
    with zipfile.ZipFile(several, "w") as packed:
        packed.writestr("a.txt", "x")
        packed.writestr("b.txt", "x")
    with pytest.raises(CorpusFormatError, match=r"it holds 2 files \(a.txt, b.txt\); unpack it and name one"):
        load_corpus(None, str(several))
    broken = tmp_path / "broken.zip"
    content = bytearray(several.read_bytes())
    content[0:4] = b"xxxx"
    broken.write_bytes(content)
    with pytest.raises(CorpusFormatError, match=r"cannot be unpacked|holds 2 files"):
        load_corpus(None, str(broken))


def test_the_parts_of_a_large_chatgpt_export_are_read_together_and_several_exports_are_refused(tmp_path: Path) -> None:
    node = {"parent": None, "message": {"id": "a", "author": {"role": "user"}, "content": {"parts": ["Hi"]}}}
    archive = tmp_path / "export.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for number in range(2):
            one = {"conversation_id": f"c{number}", "mapping": {"a": node}}
            packed.writestr(f"conversations-00{number}.json", json.dumps([one]))
        packed.writestr("user.json", "{}")
    assert [each.space for each in load_corpus(None, str(archive)).conversations] == ["c0", "c1"]
    with zipfile.ZipFile(archive, "a") as packed:
        packed.writestr("conversations-002.json", "{}")
    with pytest.raises(CorpusFormatError, match="a list of conversations"):
        load_corpus(None, str(archive))
    with zipfile.ZipFile(archive, "w") as packed:
        for number in (1, 2):
            packed.writestr(f"ChatExport_{number}/result.json", json.dumps(TELEGRAM))
    with pytest.raises(CorpusFormatError, match="it holds 2 exports"):
        load_corpus(None, str(archive))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_any_end_of_line_and_either_unicode_encoding_is_read(encoding: str, end: str, tmp_path: Path) -> None:
    lines = ["13/03/2024, 18:41 - Ana: I sold", "the oboe: finally", "13/03/2024, 18:42 - Tom: Olé"]
    path = tmp_path / "family.txt"
    path.write_bytes(end.join(lines).encode(encoding))
    assert said(load_corpus(None, str(path))) == [
        ("family", "Ana", "I sold\nthe oboe: finally"), ("family", "Tom", "Olé")
    ]  # fmt: skip


def test_a_turn_that_no_store_could_hold_costs_an_export_that_turn_alone(tmp_path: Path) -> None:
    talk = [{"role": "user", "name": "A" * 300, "content": "x"}, {"role": "user", "content": "I sold the oboe."}]
    corpus = load_corpus("messages", written(tmp_path, "talk.json", talk))
    assert [text for _, _, text in said(corpus)] == ["I sold the oboe."]
    assert corpus.notes[0].startswith("skipped turns that cannot be stored: 1, the first: ")


def test_what_the_app_of_claude_says_in_place_of_tools_is_no_turn(tmp_path: Path) -> None:
    note = "```\nThis block is not supported on your current device yet.\n```"
    message = {"uuid": "a", "sender": "assistant", "text": note, "content": [{"type": "tool_use", "name": "search"}]}
    asked = {"uuid": "b", "sender": "human", "text": "Read this"}
    corpus = load_corpus("claude", written(tmp_path, "c.json", [{"uuid": "c1", "chat_messages": [asked, message]}]))
    assert [text for _, _, text in said(corpus)] == ["Read this"]


def test_attachments_and_reactions_of_imessage_are_not_words(tmp_path: Path) -> None:
    path = "/Users/ana/Library/Messages/Attachments/ab/IMG_1.HEIC"
    head = "May 17, 2022  5:{}:00 PM\nAna Ruiz\n"
    text = "\n\n".join(
        [
            head.format("01") + path,
            head.format("02") + f"{path}\nOur dog",
            head.format("03") + "Hi\nReactions:\nLoved by Me",
        ]
    )
    corpus = load_corpus("imessage", written(tmp_path, "Ana.txt", f"{text}\n"))
    assert [said_ for _, _, said_ in said(corpus)] == ["Our dog", "Hi"]
    asked = "The doctor asked:\nAllergies: none\nReactions:\nhives after penicillin\nattachments/plan.md"
    corpus = load_corpus("imessage", written(tmp_path, "Bo.txt", head.format("04") + asked + "\n"))
    assert [said_ for _, _, said_ in said(corpus)] == [asked]

"""Titles of conversations: read from exports, listed with their spaces, and understood by the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from locigraph.assembly.opening import space_of
from locigraph.assembly.settings import CorpusSettings
from locigraph.kg.corpora import load_corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.kg.types import MAX_NAME_BYTES, SpaceId, title_of
from locigraph.memory import Memory
from locigraph.scripts.commands.memory.build import build
from locigraph.scripts.commands.memory.forget import forget
from locigraph.scripts.commands.memory.recall import recall
from locigraph.scripts.commands.memory.show import show
from locigraph.scripts.commands.memory.spaces import spaces

KEY = "sk-" + "a1B2" * 12


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def export(*conversations: tuple[str, Any], said: str = "I sold the oboe to Tom.") -> CorpusSettings:
    """An export of Claude with a conversation of one message for each ID and title."""
    written = [
        {
            "uuid": uuid,
            "name": title,
            "chat_messages": [
                {"uuid": f"{uuid}-1", "sender": "human", "text": said, "created_at": "2024-05-01T10:00:00Z"}
            ],
        }
        for uuid, title in conversations
    ]
    Path("conversations.json").write_text(json.dumps(written))
    return CorpusSettings(format="claude", path="conversations.json")


def built(*conversations: tuple[str, Any], redact: bool = False) -> dict[SpaceId, str]:
    """Titles after a build."""
    build(corpus=export(*conversations), store="g.sqlite", checkpoint=None, redact=redact)
    with Store("g.sqlite", access="read") as graph:
        return graph.titles()


def test_chatgpt_and_claude_name_their_conversations(place: Path) -> None:
    mapping = {"a": {"parent": None, "message": {"id": "a", "author": {"role": "user"}, "content": {"parts": ["Hi"]}}}}
    Path("chatgpt.json").write_text(json.dumps([{"conversation_id": "c", "title": "A trip", "mapping": mapping}]))
    assert [each.title for each in load_corpus("chatgpt", "chatgpt.json").conversations] == ["A trip"]
    corpus = load_corpus("claude", str(export(("a", "An oboe"), ("b", None), ("c", " "), ("d", ["x"])).path))
    assert [each.title for each in corpus.conversations] == ["An oboe", None, None, None]


@pytest.mark.parametrize(
    ("given", "title"),
    [
        ("A\ttrip \n to\x00 Ghent\u202e", "A trip to Ghent"),
        ("\ud800", None),
        ("é" * 200, "é" * (MAX_NAME_BYTES // 2)),
        (7, None),
    ],
)
def test_a_title_is_one_line_that_can_be_stored(given: object, title: str | None) -> None:
    assert title_of(given) == title


def test_titles_are_listed_and_those_of_a_later_export_replace_them(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert built(("id-1", "The oboe"), ("id-2", None)) == {"id-1": "The oboe"}
    assert built(("id-1", "The oboe is sold"), ("id-2", "More")) == {"id-1": "The oboe is sold", "id-2": "More"}
    assert built(("id-1", None)) == {"id-1": "The oboe is sold", "id-2": "More"}
    capsys.readouterr()
    spaces(store="g.sqlite")
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("id-1  'The oboe is sold'  1 turn")
    assert second.startswith("id-2  'More'  1 turn")
    spaces(store="g.sqlite", json=True)
    assert json.loads(capsys.readouterr().out.splitlines()[0])["title"] == "The oboe is sold"
    with Memory.open("g.sqlite", access="read", checkpoint=None) as memory:
        assert memory.titles() == {"id-1": "The oboe is sold", "id-2": "More"}


def test_commands_take_a_title_for_the_name_of_its_space(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built(("id-1", "The oboe"), ("id-2", "id-1"))
    capsys.readouterr()
    recall("Who has the oboe?", space="The oboe", store="g.sqlite", strategy="bm25")
    assert "Tom" in capsys.readouterr().out
    show(space="The oboe", store="g.sqlite", types="turn")
    assert "Tom" in capsys.readouterr().out
    assert space_of("id-1", "g.sqlite") == "id-1"  # a name, though it is the title of another, too
    assert space_of("nothing", "g.sqlite") == "nothing"
    assert space_of(None, "g.sqlite") is None
    forget(space="The oboe", store="g.sqlite", yes=True, checkpoint=None)
    with Store("g.sqlite", access="read") as graph:
        assert graph.titles() == {"id-2": "id-1"}


def test_a_title_is_forgotten_with_any_turn_of_which_it_may_tell(place: Path) -> None:
    assert built(("id-1", "Zyzzogeton")) == {"id-1": "Zyzzogeton"}
    with Memory.open("g.sqlite", checkpoint=None) as memory:
        memory.add(space="id-1", session="s", speaker="Tom", text="It is tuned now.")
        memory.forget(space="id-1", turn_ids=["id-1-1"])
        assert memory.titles() == {}
    assert b"Zyzzogeton" not in b"".join(each.read_bytes() for each in place.glob("g.sqlite*"))
    assert built(("id-1", "Zyzzogeton")) == {}


def test_a_title_of_several_spaces_names_none_of_them(place: Path) -> None:
    built(*((f"id-{place}", "New chat") for place in range(5)))
    with pytest.raises(LocigraphError, match=r"5 spaces have the title 'New chat'; .*: 'id-0', 'id-1', 'id-2', \.\.\."):
        space_of("New chat", "g.sqlite")


def test_a_secret_in_a_title_is_replaced_like_others(place: Path) -> None:
    assert KEY not in built(("id-1", f"Why is {KEY} refused?"), redact=True)[SpaceId("id-1")]

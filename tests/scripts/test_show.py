from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from locigraph.assembly.graphs import build_graph
from locigraph.assembly.opening import partial_memory
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.kg.corpora import Corpus
from locigraph.kg.counts import Spent
from locigraph.kg.errors import LocigraphError, UnknownNodeError, UnknownSpaceError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, TurnId
from locigraph.scripts.cli import main
from locigraph.scripts.commands.memory.show import show
from locigraph.scripts.commands.memory.spaces import spaces
from locigraph.scripts.console.node_lines import lines_of
from tests.fakes import MONDAY, PlainEncoder, make_conversation


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "graph.sqlite"
    talk = make_conversation(
        ["I live in Porto by the river.", "My sister plays the oboe in an orchestra."],
        ["I live in Lyon since last month.", "\x1b[31mI bought a red kayak for the lake."],
        space=SpaceId("ana"),
    )
    read = Corpus((talk,), format="jsonl", path="made.jsonl", sha256="0")
    with Store(path) as graph:
        build_graph(read, RuleExtractor(), graph, cast(Any, PlainEncoder()))
    return str(path)


def test_what_is_said_in_several_lines_is_shown_in_one() -> None:
    node = {"id": "n", "type": "episode", "text": "Ben: hi\nn2  episode", "turn_ids": ["t"], "valid_from": None}
    version = {"until": "2024", "status": "active", "text": "Ben: ho\u2028n3  episode"}
    source = {"turn_id": "t", "tokens": 0, "cost": 0.0, "text": "Ben: hi\rn2  episode"}
    edge = {"label": "NEXT", "direction": "to", "node": "n4", "text": "Ann: so\nn5  episode"}
    whole = {
        **node,
        "status": "active",
        "known_since": "2024",
        "history": [version],
        "sources": [source],
        "edges": [edge],
    }
    lines = lines_of(whole)
    assert "\n".join(lines).splitlines() == lines
    assert len(lines) == 5


def test_spaces_counts_what_each_holds_and_says_from_when(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    spaces(store=store, json=True)
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["space"], row["turns"], row["pending"], row["failed"]) == ("ana", 4, 0, 0)
    assert row["facts"] >= 3
    assert (row["first"], row["last"]) == (MONDAY.date().isoformat(), (MONDAY + timedelta(7)).date().isoformat())
    spaces(store=store)
    assert capsys.readouterr().out.startswith(f"ana  4 turns  {row['facts']} facts")


def test_show_lists_facts_and_tells_how_one_came_and_went(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(space="ana", store=store, json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (porto,) = [row for row in rows if "Porto" in row["text"]]
    assert porto["valid_to"] is not None  # Lyon has taken its place
    show(space="ana", store=store, node=porto["id"], json=True)
    found = json.loads(capsys.readouterr().out)
    assert [version["valid_to"] for version in found["history"]] == [None]
    assert found["sources"][0]["text"].endswith("I live in Porto by the river.")
    labels = {edge["label"]: edge for edge in found["edges"]}
    assert "Lyon" in labels["SUPERSEDED_BY"]["text"]
    assert labels["SUPERSEDED_BY"]["direction"] == "to"
    show(space="ana", store=store, node=porto["id"])
    assert "  said in t0: " in capsys.readouterr().out
    with Store(store) as graph:
        for stage in ("architect", "scribe"):
            graph.add_spent(SpaceId("ana"), "t0", stage, Spent(1, 900, 100, 0.002))
    main(["show", "ana", "--store", store, "--node", porto["id"]])
    assert "  said in t0 (2,000 tokens, cost 0.0040): " in capsys.readouterr().out


def test_show_says_which_turns_of_its_space_are_not_consolidated_and_keeps_that_out_of_json(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(space="ana", store=store)
    assert "incomplete" not in capsys.readouterr().out
    with Store(store) as graph:
        turns = graph.turns(SpaceId("ana"))
        graph.append_turns([replace(turns[-1], turn_id=TurnId("t9"))])
        (note,) = partial_memory(graph, graph.standings([SpaceId("ana")]))
    show(space="ana", store=store)
    assert capsys.readouterr().out.splitlines()[-1] == note
    show(space="ana", store=store, json=True)
    said = capsys.readouterr()
    assert all("id" in json.loads(line) for line in said.out.splitlines())
    assert said.err == f"{note}\n"


def test_show_as_of_knows_nothing_of_later_turns(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(space="ana", store=store, as_of=(MONDAY + timedelta(1)).isoformat())
    early = capsys.readouterr().out
    assert "Porto" in early
    assert "Lyon" not in early
    show(space="ana", store=store, as_of=datetime(1990, 1, 1, tzinfo=UTC).isoformat())
    assert capsys.readouterr().out == "no nodes of these types are known\n"


def test_what_is_shown_cannot_steer_the_terminal(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    show(space="ana", store=store, types=["episode"])
    out = capsys.readouterr().out
    assert "red kayak" in out
    assert "\x1b" not in out


def test_what_has_expired_is_not_shown_although_it_is_not_erased_yet(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(store) as graph:
        (node,) = (each for each in graph.nodes(SpaceId("ana"), types=["knowledge_node"]) if "oboe" in each.description)
        (turn,) = (each for each in graph.turns(SpaceId("ana")) if "oboe" in each.text)
        graph.append_turns([dataclasses.replace(turn, expires_at=MONDAY)])
    show(space="ana", store=store, types=["turn", "fact"])
    shown = capsys.readouterr().out
    assert "oboe" not in shown
    assert "kayak" in shown
    with Store(store) as graph:
        beside = next(each.id for each in graph.nodes(SpaceId("ana"), types=["episode"]) if "Porto" in each.description)
    show(space="ana", store=store, node=beside)
    assert "oboe" not in capsys.readouterr().out
    with pytest.raises(LocigraphError, match=f"node '{node.id}' has expired"):
        show(space="ana", store=store, node=node.id)


def test_unknown_spaces_nodes_and_types_are_named(store: str) -> None:
    with pytest.raises(UnknownSpaceError, match="'bob' is not in the store; known: 'ana'"):
        show(space="bob", store=store)
    with pytest.raises(UnknownNodeError, match="has no node 'n0'"):
        show(space="ana", store=store, node="n0")
    with pytest.raises(LocigraphError, match="node type 'facts' is not known; nearest is 'fact'; known: turn, fact, "):
        show(space="ana", store=store, types=["facts"])


@pytest.mark.parametrize(
    ("option", "name"),
    [
        *itertools.product(
            ["--space={}", "--user={}", "--space {}"],
            ["#general", "~", " null", "Null", "[]", "{a: b}", "[", "1", "true", "a=b"],
        ),
        ("--space={}", "---"),  # as a word of its own it would be an option
    ],
)
def test_a_name_is_taken_as_it_is_whatever_yaml_would_read(
    option: str, name: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["recall", "Who plays?", *[word.format(name) for word in option.split(" ")], "--store", store])
    assert ended.value.code == 2
    assert repr(name) in capsys.readouterr().err


def test_types_are_separated_by_commas_and_have_the_names_of_the_prose(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    for types in ("fact,turn", "knowledge_node, episode", ["fact", "turn"]):
        show(space="ana", store=store, types=types, json=True)
        shown.append(capsys.readouterr().out)
    assert {json.loads(line)["type"] for line in shown[0].splitlines()} == {"knowledge_node", "episode"}
    assert shown[1:] == shown[:1] * 2


def test_a_terminal_that_lacks_letters_gets_escapes_and_closed_streams_get_nothing(store: str) -> None:
    with Store(store) as graph:
        graph.put_titles({SpaceId("ana"): "Größe 🛶"})
    command = shlex.join([sys.executable, "-m", "locigraph", "spaces", "--store", store])
    for streams, shown in (("", "'Gr\\xf6\\xdfe \\U0001f6f6'"), ("2>&-", "Gr\\xf6"), (">&-", "")):
        ran = subprocess.run(
            f"{command} {streams}", shell=True, capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONIOENCODING": "ascii"},
        )  # fmt: skip
        assert (ran.returncode, ran.stderr) == (0, "")
        assert shown in ran.stdout


def test_a_reader_that_has_seen_enough_ends_a_command_without_a_word(store: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as head does once it has its lines
    command = [sys.executable, "-m", "locigraph", "show", "ana", "--store", store]
    ran = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (141, "")

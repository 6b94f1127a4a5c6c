"""Turns that come late into a large space: they are consolidated between the others, which stay as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from locigraph.assembly import graphs
from locigraph.assembly.graphs import GraphWriter
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.kg.store import Store
from locigraph.kg.types import Turn, TurnId
from tests.fakes import MONDAY, SPACE, PlainEncoder, make_turn

STATEMENTS = (
    "I live in Boston with my two cats.", "My favourite colour is green.", "I moved to Denver last week.",
    "I sold the blue bike to Tom yesterday.", "How nice!", "I met Carol in Lisbon on Monday.",
    "My favourite colour is red.", "I work as a baker.", "We went to the harbour and saw three ships.",
    "I moved to Austin in spring.", "My favourite colour is blue.",
)  # fmt: skip


@pytest.fixture(autouse=True)
def is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "_MOST_REDONE", 0)


def told(*sessions: Sequence[int]) -> list[list[Turn]]:
    """For each session its turns, given by statements, one an hour."""
    made: list[list[Turn]] = []
    for session, said in enumerate(sessions):
        start = sum(map(len, made))
        made.append(
            [
                replace(
                    make_turn(start + i, STATEMENTS[each], session=session),
                    spoken_at=MONDAY + timedelta(days=7 * session, hours=i),
                )
                for i, each in enumerate(said)
            ]
        )
    return made


def writer_of(store: Store, *, inserts_late: bool = True) -> GraphWriter:
    return GraphWriter(store, RuleExtractor(), cast(Any, PlainEncoder()), keep=999, inserts_late=inserts_late)


def add_each(store: Store, *turns: Turn) -> None:
    writer = writer_of(store)
    for turn in turns:
        writer.add([turn])


def graph_of(store: Store) -> tuple[Counter[Any], Counter[Any]]:
    """Nodes and edges by their descriptions, without topics, of which the first of several alike names the others."""
    nodes = {node.id: node for node in store.nodes(SPACE, include_archived=True) if node.type != "concept"}
    described = {key: (node.type, node.description) for key, node in nodes.items()}
    edges = [edge for edge in store.relations(SPACE) if {edge.source, edge.target} <= nodes.keys()]
    return (
        Counter((*described[node.id], node.valid_from, node.valid_to, node.provenance) for node in nodes.values()),
        Counter((described[edge.source], edge.label, described[edge.target]) for edge in edges),
    )


def in_order(sessions: Iterable[Sequence[Turn]]) -> tuple[list[TurnId], Any]:
    with TemporaryDirectory() as folder, Store(Path(folder, "graph.sqlite")) as store:
        writer_of(store, inserts_late=False).add([turn for session in sessions for turn in session])
        return [turn.turn_id for turn in store.turns(SPACE)], graph_of(store)


@pytest.mark.long
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_sessions_that_come_in_any_order_end_in_the_graph_of_those_in_order(data: st.DataObject) -> None:
    # Each once, since a statement that comes before the same one stays a fact of its own.
    said = data.draw(st.permutations(range(len(STATEMENTS))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(said) - 1), min_size=1, max_size=4)))
    sessions = told(*(said[start:end] for start, end in pairwise((0, *cuts, len(said)))))
    # Each step gives the next turns of a session; sessions are interleaved.
    left = [list(session) for session in sessions]
    with TemporaryDirectory() as folder, Store(Path(folder, "graph.sqlite")) as store:
        writer = writer_of(store)
        while waiting := [session for session in left if session]:
            session = data.draw(st.sampled_from(waiting))
            count = data.draw(st.integers(1, len(session)))
            given, session[:] = session[:count], session[count:]
            if data.draw(st.booleans()):
                writer = writer_of(store)  # without what the last one has kept
            writer.add(given)
            assert store.faults() == []
        found = [turn.turn_id for turn in store.turns(SPACE)], graph_of(store)
    expected_order, (nodes, edges) = in_order(sessions)
    assert found[0] == expected_order
    assert found[1][1] == edges
    assert found[1][0] == nodes


def lives_in(places: str, *, days: Sequence[int | None], sessions: Sequence[int] | None = None) -> list[Turn]:
    """Turns in which Ann says where she lives, each given by the first letter of the place, some days after Monday."""
    names = {"B": "Boston", "D": "Denver", "A": "Austin", "L": "Lisbon"}
    return [
        replace(
            make_turn(number, f"I live in {names[place]} with my cats.", session=sessions[number] if sessions else 0),
            speaker="Ann",
            turn_id=TurnId(place),
            spoken_at=None if day is None else MONDAY + timedelta(days=day),
        )
        for number, (place, day) in enumerate(zip(places, days, strict=True))
    ]  # fmt: skip


def ended(store: Store) -> tuple[set[str], dict[str, Any]]:
    """Which fact replaced which, by the first letters of their places, and their ends."""
    nodes = {node.id: node for node in store.nodes(SPACE, types=["knowledge_node"])}
    letter = {key: node.description.split(" in ")[1][0] for key, node in nodes.items()}
    edges = (edge for edge in store.relations(SPACE) if edge.label == "SUPERSEDED_BY")
    return {letter[edge.source] + letter[edge.target] for edge in edges}, {
        letter[key]: None if node.valid_to is None else (node.valid_to - MONDAY).days for key, node in nodes.items()
    }


@pytest.mark.parametrize("session", [0, 1])
def test_a_last_turn_without_a_time_ends_what_was_said_before_it_and_is_not_ended(session: int, tmp_path: Path) -> None:
    first, second = lives_in("BD", days=[3, None], sessions=[0, session])
    with Store(tmp_path / "graph.sqlite") as store:
        add_each(store, first, second)
        edges, _ = ended(store)
        assert "DB" not in edges


def test_a_turn_put_between_turns_of_the_same_time_is_ended_by_the_next(tmp_path: Path) -> None:
    first, late, last = lives_in("BDA", days=[0, 0, 0])
    with Store(tmp_path / "graph.sqlite") as store:
        writer = writer_of(store)
        writer.add([first, last])
        writer.add([first, late, last])
        assert [turn.turn_id for turn in store.turns(SPACE)] == ["B", "D", "A"]
        edges, _ = ended(store)
        assert edges == {"BA", "DA"}  # of one time, B had been ended already when D came


@pytest.mark.parametrize(
    ("forgotten", "edges", "ends"),
    [
        ("D", {"BA"}, {"B": 9, "A": None}),
        ("DA", set(), {"B": None}),
        ("A", {"BD"}, {"B": 5, "D": None}),
        ("B", {"DA"}, {"D": 9, "A": None}),
    ],
)
def test_what_is_left_once_a_late_turn_or_its_neighbours_are_forgotten_is_as_if_they_had_not_been_said(
    forgotten: str, edges: set[str], ends: dict[str, int | None], tmp_path: Path
) -> None:
    first, late, last = lives_in("BDA", days=[0, 5, 9], sessions=[0, 1, 2])
    with Store(tmp_path / "graph.sqlite") as store:
        add_each(store, first, last, late)
        assert ended(store) == ({"BD", "DA"}, {"B": 5, "D": 9, "A": None})
        store.forget(SPACE, [TurnId(each) for each in forgotten])
        assert ended(store) == (edges, ends)
        assert store.faults() == []


def test_two_late_turns_of_which_one_is_forgotten_leave_the_other_open(tmp_path: Path) -> None:
    first, second, last = lives_in("DLA", days=[1, 5, 9], sessions=[0, 1, 2])
    with Store(tmp_path / "graph.sqlite") as store:
        add_each(store, last, first, second)
        assert ended(store) == ({"DL", "LA"}, {"D": 5, "L": 9, "A": None})
        store.forget(SPACE, [TurnId("L"), TurnId("A")])
        assert ended(store) == (set(), {"D": None})


def rents(*said: str) -> list[Turn]:
    """Turns of a session each, a day apart, in which Ann says such things of the rent as "800" and "1000 now"."""
    return [
        replace(
            make_turn(day, f"The rent is {words.replace(' ', ' euros ', 1) if ' ' in words else f'{words} euros'}."),
            speaker="Ann",
            session_id=f"s{day}",
            spoken_at=MONDAY + timedelta(days=day),
        )
        for day, words in enumerate(said)
    ]


@pytest.mark.parametrize("late", ["800", "900 now", "900"])
def test_a_late_price_is_no_more_current_than_in_order(late: str, tmp_path: Path) -> None:
    first, second, last = rents("800", late, "1000 now")
    graphs_made = []
    for name, order in (("in order", (first, second, last)), ("late", (first, last, second))):
        with Store(tmp_path / f"{name}.sqlite") as store:
            add_each(store, *order)
            nodes, edges = graph_of(store)
            graphs_made.append(({node for node in nodes if node[0] == "knowledge_node"}, edges))
    assert graphs_made[1] == graphs_made[0]
    assert [node[1] for node in graphs_made[0][0] if node[3] is None] == ["Ann: The rent is 1000 euros now."]


@pytest.mark.parametrize(("later", "is_ended"), [("1000 now", True), ("1000", False)])
def test_a_first_price_that_comes_late_is_ended_by_a_later_one_that_says_that_it_has_changed(
    later: str, is_ended: bool, tmp_path: Path
) -> None:
    first, last = rents("800", later)
    with Store(tmp_path / "graph.sqlite") as store:
        add_each(store, last, first)
        ends = {node.description: node.valid_to for node in store.nodes(SPACE, types=["knowledge_node"])}
        assert (ends["Ann: The rent is 800 euros."] is not None) == is_ended
        assert ends[f"Ann: The rent is {later.replace('1000', '1000 euros')}."] is None


def test_a_late_price_is_not_ended_by_a_plain_one_of_the_turn_that_says_it_changed(tmp_path: Path) -> None:
    first, late, last, plain = rents("800", "850", "850 now", "900")
    plain = replace(plain, spoken_at=last.spoken_at, session_id=last.session_id)
    with Store(tmp_path / "graph.sqlite") as store:
        add_each(store, first, last, plain, late)
        nodes = {node.id: node.description for node in store.nodes(SPACE)}
        edges = [edge for edge in store.relations(SPACE) if edge.label == "SUPERSEDED_BY"]
        assert {(nodes[edge.source], nodes[edge.target]) for edge in edges} == {
            ("Ann: The rent is 800 euros.", "Ann: The rent is 850 euros now.")
        }


@pytest.mark.parametrize("forgotten", ["", "B", "again", "B again"])
def test_what_was_said_before_and_after_a_late_turn_is_not_ended_by_it_and_does_not_end_it(
    forgotten: str, tmp_path: Path
) -> None:
    first, late, again = lives_in("BDB", days=[0, 5, 9], sessions=[0, 1, 2])
    again = replace(again, turn_id=TurnId("again"))
    with Store(tmp_path / "graph.sqlite") as store:
        add_each(store, first, again, late)
        assert ended(store) == (set(), {"B": None, "D": None})
        if forgotten:
            store.forget(SPACE, [TurnId(each) for each in forgotten.split()])
        edges, ends = ended(store)
        assert (edges, ends["D"]) == (set(), None)
        assert store.faults() == []


def test_a_late_turn_that_repeats_what_was_said_before_and_after_it_is_a_source_of_that(tmp_path: Path) -> None:
    first, late, again = lives_in("BBB", days=[0, 5, 9], sessions=[0, 1, 2])
    late, again = replace(late, turn_id=TurnId("late")), replace(again, turn_id=TurnId("again"))
    with Store(tmp_path / "graph.sqlite") as store:
        add_each(store, first, again, late)
        (fact,) = store.nodes(SPACE, types=["knowledge_node"])
        assert {*fact.provenance} == {"B", "late", "again"}


@pytest.mark.parametrize("session", [0, 1])
def test_what_another_process_forgot_at_the_end_is_not_taken_for_a_late_turn(session: int, tmp_path: Path) -> None:
    first, gone, new = lives_in("BDA", days=[0, 1, 2], sessions=[0, 0, session])
    with Store(tmp_path / "graph.sqlite") as store, Store(tmp_path / "graph.sqlite") as other:
        writer = writer_of(store)
        writer.add([first, gone])
        other.forget(SPACE, [gone.turn_id])
        writer.add([new])
        assert [turn.turn_id for turn in store.turns(SPACE)] == ["B", "A"]
        assert ended(store) == ({"BA"}, {"B": 2, "A": None})
        assert store.faults() == []

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
from tests.fakes import MONDAY, SPACE, FakeEncoder, make_turn

STATEMENTS = (
    "I live in Boston with my two cats.", "My favourite colour is green.", "I moved to Denver last week.",
    "I sold the blue bike to Tom yesterday.", "How nice!", "I met Carol in Lisbon on Monday.",
    "My favourite colour is red.", "I work as a baker.", "We went to the harbour and saw three ships.",
    "I moved to Austin in spring.", "My favourite colour is blue.",
)  # fmt: skip


class PlainEncoder(FakeEncoder):
    adapter = None

    def without_adapter(self) -> PlainEncoder:
        return self


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

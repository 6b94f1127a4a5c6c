from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.joint import joint_name, parted, read_by_space, side_by_side
from locigraph.kg.types import NodeId, SpaceId
from tests.fakes import OTHER_SPACE, SPACE, FakeEncoder, make_turns
from tests.fakes_graph import Extra, make_snapshot

NAMES = st.text(alphabet="a:%3A25/ é", max_size=8)


@given(NAMES, NAMES)
def test_a_joint_name_gives_space_and_name_back(space: str, name: str) -> None:
    assert parted(joint_name(space, name)) == (space, name)


def test_what_is_read_by_space_comes_back_under_joint_names() -> None:
    asked: list[tuple[SpaceId, list[NodeId]]] = []

    def read(space: SpaceId, nodes: list[NodeId]) -> dict[NodeId, str]:
        asked.append((space, nodes))
        return {node: f"{node} of {space}" for node in nodes if node != "gone"}

    names = [NodeId("a:n"), NodeId("b:n"), NodeId("a:gone")]
    assert read_by_space(names, read) == {"a:n": "n of a", "b:n": "n of b"}
    assert asked == [("a", ["n", "gone"]), ("b", ["n"])]


def test_graphs_side_by_side_are_what_each_is_by_itself_and_no_edge_joins_them() -> None:
    parts = []
    for number, space in enumerate((SPACE, OTHER_SPACE)):
        turns = make_turns(["I sold the bike.", "To whom?"][number:], space=space)
        last = len(turns) - 1
        parts.append(
            make_snapshot(
                turns,
                [Extra("knowledge_node", f"The bike of {space}", (last,))],
                [(len(turns), "DERIVED_FROM", last)],
                encoder=FakeEncoder(8),
                key_offset=1 + 10 * number,
            )
        )
    empty = make_snapshot([])
    joint = side_by_side([*parts, empty], SpaceId("both"))
    assert joint.num_nodes == sum(part.num_nodes for part in parts)
    for part in parts:
        for row, node in enumerate(part.ids):
            here = joint.row_of[joint_name(part.space, node)]
            assert joint.descriptions[here] == part.descriptions[row]
            assert [parted(turn) for turn in joint.turns_of[here]] == [(part.space, t) for t in part.turns_of[row]]
            np.testing.assert_array_equal(joint.embeddings[here], part.embeddings[row])
    edges = [(parted(joint.ids[a]), parted(joint.ids[b])) for a, b in zip(joint.source, joint.target, strict=True)]
    assert edges == [
        ((part.space, part.ids[a]), (part.space, part.ids[b]))
        for part in parts
        for a, b in zip(part.source, part.target, strict=True)
    ]
    assert {parted(session)[0] for session in joint.session_ids} == {SPACE, OTHER_SPACE}


def test_conversations_stand_in_the_order_in_which_they_began() -> None:
    early = make_snapshot(make_turns(["Hello."], space=OTHER_SPACE))
    late = make_snapshot(make_turns(["Hello."], space=SPACE))
    late.spoken_at[:] = 2_000
    early.spoken_at[:] = 1_000
    assert [parted(turn)[0] for turn in side_by_side([late, early], SpaceId("both")).turn_ids] == [OTHER_SPACE, SPACE]

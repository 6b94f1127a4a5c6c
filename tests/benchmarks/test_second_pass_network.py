from __future__ import annotations

import numpy as np
import pytest

from benchmarks.second_pass_network import ROWS, with_turns
from locigraph.gnn.relations import RELATIONS
from tests.fakes import make_turns
from tests.fakes_graph import Extra, make_inputs, make_snapshot

TURNS = make_turns(["We moved.", "The van broke down."], ["So I was late.", "I like tea."])
#: Rows 4 to 11 of the snapshot.
EXTRAS = [
    Extra("event_node", "Ann moved", (0,)),
    Extra("sub_event", "the van of the move broke down", (1,)),
    Extra("knowledge_node", "Ann likes tea", (3,)),
    Extra("event_category", "moves"),
    Extra("knowledge_category", "drinks"),
    Extra("reflection", "Ann likes what is warm", (3,)),
    Extra("knowledge_node", "Ann owns a pot", (3,)),
    Extra("knowledge_category", "other dishes"),
]
EDGES = [(4, "CONTAINS", 5), (5, "CAUSES", 2), (7, "CONTAINS", 4), (8, "CONTAINS", 6), (9, "DERIVED_FROM_FACT", 6),
         (11, "CONTAINS", 10)]  # fmt: skip
#: (relation, neighbour, turn), as rows of the snapshot.
EXPECTED = {
    "sub_event": {("whole", 4, 1), ("part", 5, 0)},
    "cause": {("cause_event_node", 5, 2), ("effect_episode", 2, 1)},
    "category": {("category", 7, 0), ("category", 8, 3), ("category", 11, 3)},
    "reflection": {("reflection", 9, 3)},
    "session": {("session", 0, 1), ("session", 1, 0), ("session", 2, 3), ("session", 3, 2)},
}


@pytest.mark.parametrize("name", ROWS)
def test_turns_take_in_what_the_edges_of_a_row_join_to_what_was_drawn_from_them(name: str) -> None:
    before = {*RELATIONS}
    for relation in ROWS[name].relations:
        RELATIONS.add(relation)
    try:
        inputs = make_inputs(with_turns(make_snapshot(TURNS, EXTRAS, EDGES)))
        names = list(RELATIONS)
    finally:
        for relation in ROWS[name].relations:
            RELATIONS.remove(relation.name)
    rows = inputs.rows.numpy()
    ends = np.stack([rows[inputs.source.numpy()], rows[inputs.target.numpy()]], axis=1).tolist()
    found = {(names[kind], *end) for kind, end in zip(inputs.relation.tolist(), ends, strict=True)}
    assert {edge for edge in found if edge[0] not in before} == EXPECTED[name]

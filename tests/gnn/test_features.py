from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.synthetic import synthetic_space
from locigraph.gnn.encoders import EncoderConfig, HGTEncoder
from locigraph.gnn.errors import GraphError
from locigraph.gnn.features import TRAITS, GraphInputs, GraphReader, node_types
from locigraph.gnn.relations import RELATIONS, network_relations
from locigraph.gnn.sketch import bucket
from locigraph.kg.language.terms import terms
from locigraph.kg.registry import UnknownNameError
from locigraph.kg.snapshot import NO_TIME, Snapshot
from tests.fakes import make_turn, make_turns
from tests.fakes_graph import HASHED, TEXT_DIM, Extra, make_inputs, make_snapshot

TURNS = make_turns(["Did you see it? [shares a photo]", "two", "three", "four", "five", "six"], ["seven", "eight"])
EXTRAS = [
    Extra("knowledge_node", "Ann owns a canoe", (0, 1)),
    Extra("event_node", "Ann painted", (1,)),
    Extra("concept", "canoe_painting", (1,)),
    Extra("entity", "Ann", (0,)),
    Extra("reflection", "Ann likes boats", (0, 1)),
    Extra("sub_event", "Ann bought paint", (1,)),
]
FACT, EVENT, TOPIC, PERSON, INSIGHT, PART = range(8, 14)
EDGES = [
    (FACT, "DERIVED_FROM", 0), (FACT, "DERIVED_FROM", 1), (EVENT, "DERIVED_FROM", 1), (PART, "DERIVED_FROM", 1),
    (1, "HAS_CONCEPT", TOPIC), (FACT, "ABOUT_CONCEPT", TOPIC), (0, "MENTIONS", PERSON),
    (INSIGHT, "DERIVED_FROM_FACT", FACT), (EVENT, "CONTAINS", PART), (PERSON, "ADMIRES", FACT),
]  # fmt: skip
SNAPSHOT = make_snapshot(TURNS, EXTRAS, EDGES)
DAY = 1_700_000_000  # 14 November 2023


def edges_of(inputs: GraphInputs, *, names: tuple[str, ...] = tuple(RELATIONS)) -> dict[str, set[tuple[int, int]]]:
    """(row of the neighbour, row of the turn) of each edge in the snapshot, by the relation's name."""
    found: dict[str, set[tuple[int, int]]] = {name: set() for name in names}
    ends = inputs.rows[inputs.source].tolist(), inputs.rows[inputs.target].tolist()
    for source, target, relation in zip(*ends, inputs.relation.tolist(), strict=True):
        found[names[relation]].add((source, target))
    return found


def renumbered(snapshot: Snapshot, order: list[int]) -> Snapshot:
    """The same graph with its rows in another order: row i is the old row ``order[i]``."""
    place = np.argsort(order)
    provenance = np.stack([place[snapshot.provenance[:, 0]], snapshot.provenance[:, 1]], axis=1)
    return replace(
        snapshot,
        ids=tuple(snapshot.ids[row] for row in order),
        labels=tuple(snapshot.labels[row] for row in order),
        descriptions=tuple(snapshot.descriptions[row] for row in order),
        types=snapshot.types[order],
        active=snapshot.active[order],
        recorded_at=snapshot.recorded_at[order],
        valid_from=snapshot.valid_from[order],
        valid_to=snapshot.valid_to[order],
        embeddings=snapshot.embeddings[order],
        source=place[snapshot.source],
        target=place[snapshot.target],
        provenance=provenance[np.lexsort(provenance.T[::-1])],
    )


def test_turns_come_first_in_conversation_order_then_the_nodes_that_a_relation_joins_to_them() -> None:
    inputs = make_inputs(SNAPSHOT)
    assert inputs.num_turns == 8
    assert inputs.rows.tolist() == [*range(8), FACT, EVENT, TOPIC, PART]
    mixed = renumbered(SNAPSHOT, [EVENT, 0, FACT, 1, 2, PERSON, 3, 4, 5, PART, 6, TOPIC, 7, INSIGHT])
    inputs = make_inputs(mixed)
    assert [mixed.ids[row] for row in inputs.rows[:8].tolist()] == [f"n{row}" for row in range(8)]
    assert {mixed.ids[row] for row in inputs.rows[8:].tolist()} == {f"n{row}" for row in (FACT, EVENT, TOPIC, PART)}


def test_every_relation_has_its_edges() -> None:
    found = edges_of(make_inputs(SNAPSHOT))
    assert found["fact"] == {(FACT, 0), (FACT, 1)}
    assert found["event"] == {(EVENT, 1), (PART, 1)}
    assert found["topic"] == {(TOPIC, 1)}  # the graph's edge runs from the turn to the topic


def test_steps_of_several_turns_never_cross_sessions() -> None:
    found = edges_of(make_inputs(SNAPSHOT))
    for hops in range(1, 5):
        later = {(i, i + hops) for i in range(6 - hops)} | ({(6, 7)} if hops == 1 else set())
        suffix = "" if hops == 1 else f"_{hops}"
        assert found[f"previous{suffix}"] == later
        assert found[f"next{suffix}"] == {(b, a) for a, b in later}


def test_edges_are_sorted_by_their_turn_and_carry_positions_of_nodes() -> None:
    inputs = make_inputs(SNAPSHOT)
    assert torch.equal(inputs.target, inputs.target.sort().values)
    assert int(inputs.target.max()) < inputs.num_turns
    assert int(inputs.source.max()) == len(inputs.rows) - 1
    assert {t.dtype for t in (inputs.source, inputs.target, inputs.relation, inputs.node_type)} == {torch.int64}


def test_positions_of_relations_and_types_are_those_of_the_relations_that_were_asked_for() -> None:
    relations = network_relations(["fact", "NEXT"])
    inputs = GraphReader(SNAPSHOT, HASHED, relations).inputs()
    assert edges_of(inputs, names=("event", "topic")) == {
        "event": {(EVENT, 1), (PART, 1)},
        "topic": {(TOPIC, 1)},
    }
    assert inputs.rows.tolist() == [*range(8), EVENT, TOPIC, PART]
    types = node_types(relations)
    assert types == ("episode", "event_node", "concept")
    assert [types[i] for i in inputs.node_type.tolist()] == ["episode"] * 8 + ["event_node", "concept", "event_node"]


def test_without_relations_the_turns_stand_alone() -> None:
    inputs = GraphReader(SNAPSHOT, HASHED, ()).inputs()
    assert inputs.rows.tolist() == list(range(8))
    assert [len(t) for t in (inputs.source, inputs.target, inputs.relation)] == [0, 0, 0]
    assert {t.dtype for t in (inputs.source, inputs.target, inputs.relation)} == {torch.int64}


def test_rare_types_share_the_weights_of_the_nearest() -> None:
    snapshot = make_snapshot(TURNS, EXTRAS, [*EDGES, (INSIGHT, "DERIVED_FROM", 2)])
    inputs = make_inputs(snapshot)
    assert edges_of(inputs)["fact"] == {(FACT, 0), (FACT, 1), (INSIGHT, 2)}
    kinds = dict(zip(inputs.rows.tolist(), inputs.node_type.tolist(), strict=True))
    assert kinds[INSIGHT] == kinds[FACT]
    assert kinds[PART] == kinds[EVENT]


def test_nodes_carry_their_own_features() -> None:
    inputs = make_inputs(SNAPSHOT)
    np.testing.assert_array_equal(inputs.text, SNAPSHOT.embeddings[inputs.rows])
    lengths, asks, image, opens = inputs.traits.T.tolist()
    # "Did you see it? [shares a photo]" leaves see, share and photo.
    assert lengths[0] == pytest.approx(np.log(4) - 2)
    assert asks == [1] + [0] * 11
    assert image == [1] + [0] * 11
    assert opens == [1, 1, 0, 0, 0, 0, 1, 1] + [0] * 4


def test_the_first_two_turns_of_a_session_open_it_where_sessions_alternate() -> None:
    turns = [make_turn(i, "Hello there", session=1 + i % 2) for i in range(8)]
    opens = make_inputs(make_snapshot(turns)).traits[:, TRAITS.index("opens_session")]
    assert opens.tolist() == [1, 1, 1, 1, 0, 0, 0, 0]


def test_terms_are_weighed_within_the_graph_network_s_types() -> None:
    inputs = make_inputs(SNAPSHOT)
    texts = [*(turn.text for turn in TURNS), *(SNAPSHOT.descriptions[row] for row in (FACT, EVENT, TOPIC, PART))]
    kinds = ["episode"] * 8 + ["knowledge_node", "event_node", "concept", "event_node"]
    np.testing.assert_array_equal(inputs.lexical, HASHED.documents([terms(text) for text in texts], kinds=kinds))


def test_turns_by_one_speaker_share_the_speakers_part_and_other_nodes_have_none() -> None:
    inputs = make_inputs(SNAPSHOT)
    assert torch.equal(inputs.speakers[0], inputs.speakers[2])
    assert not torch.equal(inputs.speakers[0], inputs.speakers[1])
    assert not inputs.speakers[8:].any()
    assert torch.equal(inputs.speakers, inputs.context[:, : HASHED.speaker_dim])


def test_the_speakers_name_is_no_word_of_the_turn_unless_somebody_says_it() -> None:
    lexical = make_inputs(make_snapshot(make_turns(["canoe", "canoe", "canoe, Ann"]))).lexical
    assert torch.equal(lexical[0], lexical[1])  # "Ann: canoe" and "Ben: canoe"
    column, _ = bucket("ann", HASHED.lexical_dim)
    assert column != bucket("cano", HASHED.lexical_dim)[0]
    assert [bool(row[column]) for row in lexical] == [False, False, True]


def test_turns_and_events_are_dated_and_facts_and_topics_are_not() -> None:
    held = np.full(SNAPSHOT.num_nodes, DAY, dtype=np.int64)
    inputs = make_inputs(replace(SNAPSHOT, valid_from=held, valid_to=held))
    is_dated = [row not in (FACT, TOPIC) for row in inputs.rows.tolist()]
    assert inputs.context[:, HASHED.speaker_dim :].any(dim=1).tolist() == is_dated
    assert (~inputs.days.isnan()).tolist() == is_dated
    assert inputs.days[0].item() == pytest.approx(DAY / 86_400)


def test_a_turn_of_no_known_time_has_no_date() -> None:
    valid_from = SNAPSHOT.valid_from.copy()
    valid_from[3] = NO_TIME
    inputs = make_inputs(replace(SNAPSHOT, valid_from=valid_from))
    assert inputs.days[:8].isnan().tolist() == [row == 3 for row in range(8)]
    assert not inputs.context[3, HASHED.speaker_dim :].any()


def test_an_archived_node_is_as_if_it_had_never_been_there() -> None:
    archived = [*EXTRAS, Extra("knowledge_node", "The canoe was stolen", (0,))]
    snapshot = make_snapshot(TURNS, archived, [*EDGES, (14, "DERIVED_FROM", 0)])
    active = snapshot.active.copy()
    active[14] = False
    with_it, without = make_inputs(snapshot), make_inputs(SNAPSHOT)
    found = make_inputs(replace(snapshot, active=active))
    for f in fields(GraphInputs):
        if f.name not in ("num_turns", "other_facts"):
            np.testing.assert_array_equal(getattr(found, f.name), getattr(without, f.name), f.name)
    assert len(with_it.rows) == len(without.rows) + 1


def test_an_archived_turn_is_neither_turn_nor_neighbour() -> None:
    active = SNAPSHOT.active.copy()
    active[1] = False
    inputs = make_inputs(replace(SNAPSHOT, active=active))
    assert inputs.rows.tolist() == [0, 2, 3, 4, 5, 6, 7, FACT]
    found = edges_of(inputs)
    assert found["previous"] == {(2, 3), (3, 4), (4, 5), (6, 7)}
    assert found["previous_2"] == {(0, 2), (2, 4), (3, 5)}  # turns 0 and 2 remain two turns apart
    assert found["event"] == found["topic"] == set()


def test_a_snapshot_without_turns_is_refused() -> None:
    with pytest.raises(GraphError, match="snapshot of space 'harbor' holds no turns"):
        make_inputs(make_snapshot([], [Extra("concept", "canoes")]))
    with pytest.raises(GraphError, match="holds no turns"):
        make_inputs(replace(SNAPSHOT, active=SNAPSHOT.types != "episode"))


def test_a_snapshot_without_embeddings_is_refused() -> None:
    bare = replace(SNAPSHOT, embeddings=np.zeros((SNAPSHOT.num_nodes, 0), dtype=np.float32))
    with pytest.raises(GraphError, match="snapshot of space 'harbor' has no embeddings"):
        make_inputs(bare)


def test_an_unknown_node_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="node type 'mood' is not known; known: "):
        make_inputs(make_snapshot(TURNS, [Extra("mood", "glad")]))
    with pytest.raises(UnknownNameError, match="node type 'concpt' is not known; nearest is 'concept'"):
        make_inputs(make_snapshot(TURNS, [Extra("concpt", "boats")]))


def test_a_mask_of_edges_leaves_the_nodes_as_they_are() -> None:
    inputs = make_inputs(SNAPSHOT)
    is_fact = inputs.relation == list(RELATIONS).index("fact")
    found = inputs.with_edges(~is_fact)
    assert edges_of(found) == edges_of(inputs) | {"fact": set()}
    assert found.text is inputs.text
    assert found.num_turns == inputs.num_turns


def test_features_move_to_another_device_and_the_structure_stays_on_the_cpu() -> None:
    inputs = make_inputs(SNAPSHOT)
    moved = inputs.to("meta")
    features = {"text", "lexical", "context", "speakers", "traits", "days"}
    for f in fields(GraphInputs):
        if f.name in features:
            assert getattr(moved, f.name).device.type == "meta", f.name
        else:
            assert getattr(moved, f.name) is getattr(inputs, f.name), f.name
    assert {each.device.type for each in moved.ends} == {"meta"}
    for here, there in zip(inputs.ends, (inputs.source, inputs.target, inputs.relation), strict=True):
        assert here is there


ENCODER = HGTEncoder(EncoderConfig(TEXT_DIM, HASHED, attention_dim=4))
with torch.no_grad():
    for _parameter in ENCODER.parameters():
        _parameter.normal_(0, 0.3, generator=torch.Generator().manual_seed(_parameter.numel()))


@settings(max_examples=25)
@given(st.permutations(range(8, 14)), st.permutations(range(len(SNAPSHOT.source))), st.sets(st.integers(0, 13)))
def test_the_order_in_which_nodes_and_edges_were_stored_does_not_matter(
    extras: list[int], edges: list[int], early: set[int]
) -> None:
    # The turns keep their order; the extras come between them, in any order.
    waiting, order = list(range(8)), []
    for place in range(14):
        from_extras = extras and (place in early or not waiting)
        order.append(extras.pop(0) if from_extras else waiting.pop(0))
    mixed = renumbered(SNAPSHOT, order)
    arrays = {name: getattr(mixed, name)[edges] for name in ("source", "target", "relations", "families", "weights")}
    with torch.no_grad():
        expected = ENCODER(make_inputs(SNAPSHOT)).joined()
        found = ENCODER(make_inputs(replace(mixed, **arrays))).joined()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.data())
def test_a_turn_has_the_same_vector_whichever_others_are_encoded_with_it(seed: int, data: st.DataObject) -> None:
    snapshot, _ = synthetic_space(seed, turns=23, dim=TEXT_DIM)
    archived = data.draw(st.sets(st.integers(0, snapshot.num_nodes - 1), max_size=9))
    active = np.array([row not in archived for row in range(snapshot.num_nodes)])
    reader = GraphReader(replace(snapshot, active=active), HASHED, network_relations())
    whole = ENCODER(reader.inputs()).joined().detach().numpy()
    chosen = sorted(data.draw(st.sets(st.integers(0, len(reader.turns) - 1), min_size=1)))
    inputs = reader.inputs(reader.turns[chosen])
    assert inputs.rows[: inputs.num_turns].tolist() == reader.turns[chosen].tolist()
    np.testing.assert_allclose(ENCODER(inputs).joined().detach().numpy(), whole[chosen], rtol=1e-5, atol=1e-6)
    size = data.draw(st.integers(1, 30))
    blocks = list(reader.blocks(size))
    assert [block.num_turns for block in blocks[:-1]] == [size] * (len(blocks) - 1)
    together = np.concatenate([ENCODER(block).joined().detach().numpy() for block in blocks])
    np.testing.assert_allclose(together, whole, rtol=1e-5, atol=1e-6)


def test_a_few_turns_bring_no_more_than_their_neighbours() -> None:
    snapshot, _ = synthetic_space(1, turns=2_000, dim=TEXT_DIM)
    reader = GraphReader(snapshot, HASHED, network_relations())
    assert len(reader.inputs(reader.turns[:1]).rows) < 50
    assert len(reader.inputs().rows) > 6_000

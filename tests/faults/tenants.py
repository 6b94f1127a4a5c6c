"""Tenants: every public method is called with hostile space names; none may see or change the data of another tenant.

Hypothesis draws the names, and looks for the shortest one that does harm. Pages of the index hold only two rows here,
so that its iterators have to fetch several pages.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from locigraph.kg.joint import joint_name, parted
from locigraph.kg.store import Store
from locigraph.kg.types import (
    MAX_NAME_BYTES,
    GraphChange,
    NewRelation,
    NodeId,
    NodeStatus,
    NodeUpdate,
    Scope,
    SpaceId,
    TurnId,
    is_name,
)
from locigraph.retrieval.index import milvus_collection
from locigraph.retrieval.index.descriptions import DescriptionIndexer
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.protocols import SearchFilter
from tests.fakes import MONDAY, FakeEncoder, change_of, fact, make_turns
from tests.faults import methods
from tests.faults.children import in_child
from tests.faults.drawing import drawn
from tests.faults.methods import VICTIM

PIECES = (
    '"', "'", "\\", 'z" or pk != "', 'a" or space != "', '" or 1 == 1 or "', "victim", "victim@0", "victim/1",
    "@", "/", "%", "_", "self", "locigraph:self", "{}", "{0}", "{space}", "[", "]", ") or (", " and ", "--", ";",
    "' OR '1'='1", ":space", "?", "*", "\u202e", "é", "e\u0301", "中", "🎉", " ", "\u00a0", "\u200b",
    "null", "None", "0", "-1", "1e999", "true",
)  # fmt: skip
_NAMES_AT_ONCE, _PAGE = 4, 2
_ENCODER = FakeEncoder(16)


HOSTILE = (
    st.lists(st.sampled_from(PIECES) | st.text(max_size=3), min_size=1, max_size=4)
    .map(lambda pieces: SpaceId("".join(pieces)))
    .filter(lambda name: is_name(name) and name != VICTIM)
)


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with a name and a group of methods."""
    number = 0
    while True:
        number += 1
        place = folder / str(number)
        for fault in in_child(partial(_faults, place, 1_000_003 * seed + number)):
            yield partial(_raise, fault)


def hostile_name(randomness: random.Random) -> SpaceId:
    """A name for a space, made of pieces that have a meaning elsewhere, such as in filter expressions."""
    while True:
        name = "".join(randomness.choice(PIECES) for _ in range(randomness.randint(1, 4)))[:MAX_NAME_BYTES]
        if is_name(name) and name != VICTIM:
            return SpaceId(name)


def _raise(fault: str | None) -> None:
    assert fault is None, fault


def _faults(folder: Path, number: int) -> list[str | None]:
    """None for each try that went well, or the error of one that did not."""
    folder.mkdir()
    vars(milvus_collection)["BATCH"] = _PAGE  # not restored, since this process ends after these tries
    found: list[str | None] = []
    names: list[SpaceId] = []
    with (
        Store(folder / "graph.sqlite") as store,
        MilvusIndex(str(folder / "index.db")) as index,
        methods.opened(folder / "memory") as memory,
    ):
        indexer = DescriptionIndexer(store, index, _ENCODER.model_id)
        _tell(store, indexer, VICTIM)

        @drawn(number, _NAMES_AT_ONCE, HOSTILE)
        def tried(name: SpaceId) -> None:
            names.append(name)
            _tell(store, indexer, name)
            for check in (_store_reads, _store_writes, _scopes, _indexes, _index_writes):
                check(store, indexer, name)
                found.append(None)
            methods.check(memory, name)
            found.append(None)

        try:
            tried()
        except Exception:
            return [traceback.format_exc()[-2_500:]]  # of the shortest name; the other tries were not run
        before = {node.id for node in store.nodes(VICTIM)}
        for name in dict.fromkeys(names):
            store.forget_spaces([space for space, scope in store.scopes().items() if Scope(name).covers(scope)])
            memory.forget(user=name)
        indexer.drain()
        is_whole = {node.id for node in store.nodes(VICTIM)} == before and store.spaces() == [VICTIM]
        is_whole = is_whole and all(each.is_clean for each in indexer.verify()) and memory.spaces() == [VICTIM]
        return [*found, None if is_whole else f"forgetting {names} changed the victim's memory"]


def _tell(store: Store, indexer: DescriptionIndexer, space: SpaceId) -> None:
    """Add two turns and a fact to a space, unless it has them already."""
    turns = make_turns([f"I painted {space}", "It is red now"], space=space)
    if store.append_turns(turns):
        canoe, edge = fact("f", f"The canoe of {space}", turns[0]), NewRelation("f", "PAINTED_BY", "episode")
        change = change_of(turns[0], nodes=[canoe], relations=[edge], encoder=_ENCODER)
        store.commit(replace(change, coined={"PAINTED_BY": f"What {space} painted"}))
        store.commit(change_of(turns[1], encoder=_ENCODER))
        indexer.drain()


def _store_reads(store: Store, indexer: DescriptionIndexer, name: SpaceId) -> None:
    victims = store.snapshot(VICTIM, embedding_model=_ENCODER.model_id)
    keys = [int(key) for key in victims.keys]
    own = store.snapshot(name, embedding_model=_ENCODER.model_id)
    assert {node.space for node in store.nodes(name)} == {name}
    assert {turn.space for turn in store.turns(name)} == {name}
    assert not {int(key) for key in own.keys} & {*keys}
    assert len(own.ids) == 3
    assert store.vectors_by_key(name, keys, _ENCODER.model_id)[0] == []
    assert store.turns_of_nodes(name, keys) == {}
    assert store.node_counts(name).total() == 3
    assert store.turn_counts(name).total() == 2
    assert [edge.label for edge in store.relations(name)] == ["PAINTED_BY"]
    assert store.relation_labels(name)["PAINTED_BY"].description == f"What {name} painted"
    assert not any("victim" in text and "victim" not in name for text in own.descriptions)


def _store_writes(store: Store, indexer: DescriptionIndexer, name: SpaceId) -> None:
    before = store.snapshot(VICTIM).fingerprint
    for node in store.nodes(name, types=["knowledge_node"]):
        store.commit(GraphChange(name, MONDAY, updates=(NodeUpdate(node.id, status=NodeStatus.ARCHIVED),)))
        store.commit(GraphChange(name, MONDAY, updates=(NodeUpdate(node.id, status=NodeStatus.ACTIVE),)))
    store.remember({f"extractor/{name}": "rules"})
    assert store.setting(f"extractor/{VICTIM}") is None
    assert store.snapshot(VICTIM).fingerprint == before
    indexer.drain()


def _scopes(store: Store, indexer: DescriptionIndexer, name: SpaceId) -> None:
    store.append_turns([], scoped=[(name, Scope(name, name)), (VICTIM, Scope(VICTIM))])
    for asked in (Scope(name), Scope(agent=name), Scope(name, name)):
        assert [space for space, scope in store.scopes().items() if asked.covers(scope)] == [name]
    own = {joint_name(name, node.id) for node in store.nodes(name)}
    assert {parted(node)[0] for node in own} == {name}
    assert not own & {joint_name(VICTIM, node.id) for node in store.nodes(VICTIM)}
    memory = MemoryVectors()
    for space in (VICTIM, name):
        memory.add_snapshot(store.snapshot(space, embedding_model=_ENCODER.model_id))
    query = _ENCODER.encode(["I painted victim"])[0]
    for searched in (indexer.collection(), memory):
        assert {match.node_id for match in searched.search(query, SearchFilter((name, "nobody")), top_k=50)} == own


def _indexes(store: Store, indexer: DescriptionIndexer, name: SpaceId) -> None:
    collection = indexer.collection()
    indexer.require_complete([name])
    keys = sorted(int(key) for key in store.snapshot(name).keys)
    victims = [int(key) for key in store.snapshot(VICTIM).keys]
    query = _ENCODER.encode(["I painted victim"])[0]
    lexical = LexicalIndex(lambda space, as_of: store.snapshot(space, as_of=as_of))
    memory = MemoryVectors()
    for space in (VICTIM, name):
        memory.add_snapshot(store.snapshot(space, embedding_model=_ENCODER.model_id))
    own = {node.id: node.description for node in store.nodes(name)}
    assert collection.count(name) == 3
    assert collection.node_keys(name) == keys
    assert sorted(collection.rows(name)) == keys
    assert {row.space for row in collection.rows(name).values()} == {name}
    assert collection.vectors(name, victims) == {}
    assert name in collection.counts()
    for searched in (collection, memory):
        assert len(searched.search(query, SearchFilter(name), top_k=50)) == 3
        assert len(searched.search(query, SearchFilter(name, ("episode",), MONDAY), top_k=50)) <= 2
    for document, _ in lexical.search("painted canoe red", name, top_k=50):
        assert own[document.node_id] == document.description


def _index_writes(store: Store, indexer: DescriptionIndexer, name: SpaceId) -> None:
    collection = indexer.collection()
    victims = [int(key) for key in store.snapshot(VICTIM).keys]
    collection.delete_nodes(name, victims)
    row = next(iter(collection.rows(name).values()))
    stranger = replace(row, node_key=victims[0], node_id=NodeId("stranger"), turn_ids=(TurnId("t"),))
    collection.upsert([stranger], np.ones((1, 16), dtype=np.float32))
    assert collection.count(VICTIM) == 3
    assert "stranger" not in {each.node_id for each in collection.rows(VICTIM).values()}
    collection.delete_nodes(name, [victims[0]])
    assert (collection.count(name), collection.count(VICTIM)) == (3, 3)

"""Calls every public method of the classes that hold a memory, for one tenant with the names and keys of another."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locigraph.assembly import opening
from locigraph.assembly.search_parts import indexer_of
from locigraph.kg.counts import Spent
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.kg.types import GraphChange, NodeId, NodeStatus, NodeUpdate, SpaceId, TurnId
from locigraph.memory import AsyncMemory, Memory
from locigraph.retrieval.index.descriptions import DescriptionIndexer
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection
from locigraph.retrieval.index.scoped_vectors import ScopedVectors
from locigraph.retrieval.protocols import GraphVectors, SearchFilter, VectorMatch
from locigraph.training.live_embeddings import LiveEmbeddings
from tests.fakes import MONDAY
from tests.fakes_graph import small_checkpoint
from tests.faults.workbench import FakeCachedEncoder

VICTIM = SpaceId("victim")
#: A word in every text and ID of the victim's turns, and in no others.
SECRET = "zanzibar"
_FILTER = {"$or": [{"$session": {"$exists": True}}, {"project": "boats"}]}
_QUESTION = f"Who painted the canoe of {SECRET}?"


@dataclass
class Place:
    """A memory with the victim and another tenant, and its parts.

    Attributes:
        memory: The memory.
        name: Name of the tenant's space.
        nodes: IDs of the victim's nodes.
        keys: Their keys.
        turns: IDs of the victim's turns.
    """

    memory: Memory
    name: SpaceId
    nodes: list[NodeId]
    keys: list[int]
    turns: list[TurnId]

    @property
    def store(self) -> Store:
        return self.memory._graph

    @property
    def indexer(self) -> DescriptionIndexer:
        return indexer_of(self.store, self.memory._parts.index(), self.memory._encoder)

    @property
    def collection(self) -> Collection:
        return self.indexer.collection()

    @property
    def live(self) -> LiveEmbeddings:
        return self.memory._parts.require_live()

    @property
    def query(self) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self.memory._encoder.encode([_QUESTION])[0]
        return vector

    @property
    def lexical(self) -> LexicalIndex:
        return LexicalIndex(lambda space, as_of: self.store.snapshot(space, as_of=as_of))

    @property
    def vectors(self) -> MemoryVectors:
        found = MemoryVectors()
        for space in (VICTIM, self.name):
            found.add_snapshot(self.store.snapshot(space, embedding_model=self.memory._encoder.model_id))
        return found

    def turn(self, number: int) -> dict[str, Any]:
        return told(self.name, f"h{number}", f"I painted the canoe number {number} in Porto.")

    def up_to_date(self) -> GraphVectors:
        return self.live.current(self.store.standings([self.name]))

    def victims(self) -> Any:
        """Everything that is stored of the victim."""
        self.live.current(self.store.standings([VICTIM]))
        due = [self.collection, self.live.collection([VICTIM])]
        vectors = [{key: v.tobytes() for key, v in each.vectors(VICTIM, self.keys).items()} for each in due]
        store = self.store
        return (
            store.turns(VICTIM), store.snapshot(VICTIM).fingerprint, store.failures(VICTIM), store.scopes()[VICTIM],
            [each.rows(VICTIM) for each in due], vectors,
        )  # fmt: skip


def told(space: str, turn_id: str, text: str) -> dict[str, Any]:
    """A turn as ``Memory.add`` takes it."""
    return {
        "space": space, "user": space, "session": "s1", "speaker": "Ann", "turn_id": turn_id, "text": text,
        "spoken_at": "2024-01-01T10:00",
    }  # fmt: skip


def opened(folder: Path) -> Memory:
    """A memory that holds the victim's turns."""
    folder.mkdir(parents=True)
    opening.text_encoder = lambda settings: FakeCachedEncoder("fake", cache=folder / "cache.sqlite")
    small_checkpoint(text_encoder="fake").save(folder / "checkpoint")
    memory = Memory.open(folder / "memory.sqlite", checkpoint=str(folder / "checkpoint"))
    memory.add_many(told(VICTIM, f"{SECRET}{i}", f"I painted the canoe {SECRET}{i} in {SECRET}.") for i in range(5))
    memory.flush()
    return memory


def _async(call: Callable[[AsyncMemory, Place], Any]) -> Callable[[Place], Any]:
    def called(at: Place) -> Any:
        served = AsyncMemory(lambda: at.memory)

        async def run() -> Any:
            return await call(served, at)

        with ThreadPoolExecutor(1) as threads:
            served._memory, served._threads, served._changing = (
                at.memory,
                threads,
                threads,
            )  # since ``async with`` would open and close it
            return asyncio.run(run())

    return called


def _update(at: Place) -> GraphChange:
    return GraphChange(
        at.name, datetime(2024, 1, 2, tzinfo=UTC), updates=(NodeUpdate(at.nodes[0], status=NodeStatus.ARCHIVED),)
    )  # fmt: skip


def _match(at: Place) -> tuple[VectorMatch, int]:
    return VectorMatch(at.nodes[0], "episode", (), 0.0), 0


_MEMORY: Mapping[str, Callable[[Any, Place], Any]] = {
    "add": lambda memory, at: memory.add(**at.turn(1)),
    "add_each": lambda memory, at: memory.add_each([at.turn(5), at.turn(6)]),
    "add_many": lambda memory, at: memory.add_many([at.turn(1), at.turn(2), at.turn(3), at.turn(4)]),
    "forget": lambda memory, at: memory.forget(space=at.name, turn_ids=at.turns),
    "restore": lambda memory, at: memory.restore(space=at.name),
    "flush": lambda memory, at: memory.flush(),
    "forget_expired": lambda memory, at: memory.forget_expired(),
    "spaces": lambda memory, at: memory.spaces(user=at.name),
    "scopes": lambda memory, at: memory.scopes(),
    "titles": lambda memory, at: memory.titles(),
    "set_retention": lambda memory, at: memory.set_retention(at.name, days=100_000 / 7),
    "retentions": lambda memory, at: memory.retentions(),
    "turns": lambda memory, at: memory.turns(at.name, filter=_FILTER),
    "times": lambda memory, at: memory.times(at.name),
    "overview": lambda memory, at: memory.overview(at.name),
    "recall": lambda memory, at: memory.recall(_QUESTION, user=at.name, top_k=100),
    "recall_each": lambda memory, at: memory.recall_each(
        [{"question": _QUESTION, "space": at.name}, {"question": _QUESTION, "space": at.name, "filter": _FILTER}]
    ),
    "recall_at_once": lambda memory, at: memory.recall_at_once([{"question": _QUESTION, "user": at.name}] * 2),
    "state": lambda memory, at: memory.state(),
    "is_rebuilding": lambda memory, at: memory.is_rebuilding(at.name),
    "is_being_added": lambda memory, at: memory.is_being_added([at.name]),
    "warm_up": lambda memory, at: memory.warm_up(),
    "notes": lambda memory, at: memory.notes(at.name),
    "profile": lambda memory, at: memory.profile(space=at.name),
    "explain": lambda memory, at: memory.explain(_QUESTION, space=at.name, top_k=9),
}

#: Calls by class and method. None marks a method that takes no name and belongs to all tenants.
CALLS: dict[type, dict[str, Callable[[Place], Any] | None]] = {
    Memory: {
        **{name: lambda at, call=call: call(at.memory, at) for name, call in _MEMORY.items()},  # type: ignore[misc]
        "adding": lambda at: list(at.memory.adding([at.turn(7), at.turn(8)])),
        "open": None, "close": None,
    },
    AsyncMemory: {
        **{name: _async(call) for name, call in _MEMORY.items()},
        "call": _async(lambda memory, at: memory.call(lambda each: each.recall(_QUESTION, space=at.name, top_k=100))),
        "open": None, "close": None,
    },
    Store: {
        "setting": lambda at: at.store.setting(f"extractor/{at.name}"),
        "remember": lambda at: at.store.remember({f"mine/{at.name}": "x"}),
        "remember_first": lambda at: at.store.remember_first(f"mine/{at.name}", "x"),
        "spent": lambda at: at.store.spent(at.name),
        "add_spent": lambda at: at.store.add_spent(at.name, "h0", "architect", Spent(1)),
        "require_space": lambda at: at.store.require_space(at.name),
        "append_turns": lambda at: at.store.append_turns(at.store.turns(at.name)),
        "forgotten": lambda at: at.store.forgotten(at.name, at.turns),
        "forgotten_alike": lambda at: at.store.forgotten_alike(at.name, at.store.turns(at.name)),
        "require_appendable": lambda at: at.store.require_appendable(at.store.turns(at.name)),
        "has_forgotten_of": lambda at: at.store.has_forgotten_of(at.name),
        "restore": lambda at: at.store.restore(at.name, at.turns),
        "turns": lambda at: at.store.turns(at.name),
        "turn_counts": lambda at: at.store.turn_counts(at.name),
        "states_of": lambda at: at.store.states_of(at.name, at.turns),
        "speakers": lambda at: at.store.speakers(at.name),
        "topics_of": lambda at: at.store.topics_of(at.name, now=MONDAY, most=9),
        "origins_of": lambda at: at.store.origins_of(at.name, at.nodes),
        "replacements_of": lambda at: at.store.replacements_of(at.name, at.nodes),
        "said_in": lambda at: at.store.said_in(at.name),
        "names_since": lambda at: at.store.names_since(at.name, 0),
        "part_since": lambda at: at.store.part_since(at.name, 0),
        "expired": lambda at: at.store.expired(datetime.now(UTC), [at.name]),
        "retry_turn": lambda at: at.store.retry_turn(at.name, at.turns[0]),
        "failures": lambda at: at.store.failures(at.name),
        "commit": lambda at: at.store.commit(_update(at)),
        "nodes": lambda at: at.store.nodes(at.name) + at.store.nodes(at.name, ids=at.nodes, include_archived=True),
        "node_counts": lambda at: at.store.node_counts(at.name),
        "count_of_type": lambda at: at.store.count_of_type(at.name, "episode"),
        "neighbourhood": lambda at: at.store.neighbourhood(at.name, at.keys, families=["NEXT"], hops=4, most=100),
        "changed_nodes": lambda at: at.store.changed_nodes(at.name),
        "word_statistics": lambda at: at.store.word_statistics(at.name),
        "put_word_statistics": lambda at: at.store.put_word_statistics(SpaceId(f"{at.name}*"), "emb_0", b""),
        "node": lambda at: at.store.node(at.name, at.nodes[0]),
        "relations": lambda at: at.store.relations(at.name) + at.store.relations(at.name, node=at.nodes[0]),
        "used_labels": lambda at: at.store.used_labels(at.name),
        "forget": lambda at: at.store.forget(at.name, at.turns),
        "forget_spaces": lambda at: at.store.forget_spaces([SpaceId(f"{at.name}*")]),
        "put_embeddings": lambda at: at.store.put_embeddings(
            at.name, "another", at.store.unembedded(VICTIM, "another")[:1], np.ones((1, 4), dtype=np.float32)
        ),
        "unembedded": lambda at: at.store.unembedded(at.name, "another"),
        "vectors_by_key": lambda at: at.store.vectors_by_key(at.name, at.keys, at.memory._encoder.model_id),
        "turns_of_nodes": lambda at: at.store.turns_of_nodes(at.name, at.keys),
        "outbox_size": lambda at: at.store.outbox_size(at.name),
        "put_titles": lambda at: at.store.put_titles({at.name: "a title"}),
        "set_retention": lambda at: at.store.set_retention(at.name, timedelta(days=36_500)),
        "revision": lambda at: at.store.revision(at.name),
        "versions": lambda at: at.store.versions([at.name]),
        "standings": lambda at: at.store.standings([at.name]),
        "relation_labels": lambda at: at.store.relation_labels(at.name),
        "acknowledge_changes": lambda at: at.store.acknowledge_changes({at.name: 0}),
        "embedded_by": lambda at: at.store.embedded_by([at.name]),
        "list_changed": lambda at: at.store.list_changed([SpaceId(f"{at.name}*")]),
        "held": lambda at: at.store.held(at.name),
        "is_held": lambda at: at.store.is_held(at.name),
        "snapshot": lambda at: at.store.snapshot(at.name, embedding_model=at.memory._encoder.model_id),
        **dict.fromkeys(
            (
                "close", "empty_log", "faults", "identity", "known_identity", "reading",
                "spent_by_stage", "spaces", "scopes", "titles",
                "retentions", "last_spoken", "first_spoken", "places_of", "misplaced", "read_outbox", "has_forgotten",
                "relist_outbox", "acknowledge_outbox", "changed_spaces", "forgotten_count", "exported", "import_lines",
                "counts_of_type", "keep_word_statistics",
            )
        ),
    },
    DescriptionIndexer: {
        "require_complete": lambda at: at.indexer.require_complete([at.name]),
        "repair": lambda at: at.indexer.repair([at.name]),
        **dict.fromkeys(("collection", "drain", "verify", "rebuild")),
    },
    MilvusIndex: dict.fromkeys(
        (
            "close", "collections", "owned", "create", "open_or_create", "clear", "open", "find", "is_open", "has",
            "drop", "alias_target", "point",
        )
    ),
    Collection: {
        "upsert": lambda at: at.collection.upsert(
            [*at.collection.rows(at.name).values()],
            np.stack([*at.collection.vectors(at.name, [*at.collection.rows(at.name)]).values()]),
        ),
        "delete_nodes": lambda at: at.collection.delete_nodes(at.name, at.keys),
        "delete_space": lambda at: at.collection.delete_space(f"{at.name}*"),
        "count": lambda at: at.collection.count(at.name),
        "has_written": lambda at: at.collection.has_written([(at.name, key) for key in at.keys]),
        "node_keys": lambda at: at.collection.node_keys(at.name),
        "rows": lambda at: at.collection.rows(at.name),
        "contents": lambda at: at.collection.contents([at.name]),
        "vectors": lambda at: at.collection.vectors(at.name, at.keys),
        "search": lambda at: at.collection.search(at.query, SearchFilter((at.name, "nobody")), top_k=100),
        **dict.fromkeys(("require", "describe_itself", "flush", "counts", "synchronise")),
    },
    LexicalIndex: {
        "add": lambda at: at.lexical.add(at.name, at.lexical.search("canoe", at.name, top_k=1)[0][0]),
        "remove": lambda at: at.lexical.remove(at.name, at.nodes[0]),
        "drop": lambda at: at.lexical.drop(at.name),
        "load": lambda at: at.lexical.load(at.name),
        "update": lambda at: at.lexical.update(at.name, at.store.snapshot(at.name), None),
        "document": lambda at: at.lexical.document(at.name, at.nodes[0]),
        "last_day": lambda at: at.lexical.last_day(at.name),
        "search": lambda at: at.lexical.search(_QUESTION, at.name, top_k=100),
    },
    MemoryVectors: {
        "add": lambda at: at.vectors.add(at.name, [_match(at)], at.query[None]),
        "add_snapshot": lambda at: at.vectors.add_snapshot(
            at.store.snapshot(at.name, embedding_model=at.memory._encoder.model_id)
        ),
        "update": lambda at: at.vectors.update(
            at.store.snapshot(at.name, embedding_model=at.memory._encoder.model_id)
        ),
        "add_nodes": lambda at: at.vectors.add_nodes(
            at.name, at.store.snapshot(at.name), np.zeros(1, dtype=np.int64), at.query[None]
        ),
        "remove": lambda at: at.vectors.remove(at.name, at.nodes[0]),
        "vector": lambda at: at.vectors.vector(at.name, at.nodes[0]),
        "nbytes": lambda at: at.vectors.nbytes(at.name),
        "bytes_of": None,
        "drop": lambda at: at.vectors.drop(at.name),
        "search": lambda at: at.vectors.search(at.query, SearchFilter((at.name, "nobody")), top_k=100),
    },
    ScopedVectors: {
        "search": lambda at: [
            ScopedVectors(at.collection, lambda space, as_of: None, together).search(
                at.query, SearchFilter(named), top_k=100
            )
            for together, named in ((None, at.name), ([at.name], "any"))
        ],
    },
    LiveEmbeddings: {
        "current": lambda at: at.up_to_date().search(_of_width(at), SearchFilter(at.name), top_k=100),
        "readable": lambda at: at.live.readable([at.name]).search(_of_width(at), SearchFilter(at.name), top_k=100),
        "held": lambda at: at.up_to_date() and at.live.held(at.store.standings([at.name])),
        "due": lambda at: at.live.due({at.name: 10**9}),
        "are_settled": lambda at: at.live.are_settled(at.store.standings([at.name])),
        "drop": lambda at: at.live.drop([at.name]),
        "collection": lambda at: at.live.collection([at.name]).rows(at.name),
        "drift": lambda at: at.live.drift(at.name),
        **dict.fromkeys(("update", "refresh", "verify", "verify_all")),
    },
}  # fmt: skip


def _of_width(at: Place) -> NDArray[np.float32]:
    return np.ones(at.live.checkpoint.vector_dim, dtype=np.float32)


def public(kind: type) -> set[str]:
    """Names of a class's public methods."""
    return {name for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))}


def check(memory: Memory, name: SpaceId) -> None:
    """Call every method for a tenant; none may show the victim's secret or IDs, or change the victim's memory."""
    snapshot = memory._graph.snapshot(VICTIM)
    keys = [int(key) for key in snapshot.keys]
    at = Place(memory, name, list(snapshot.ids), keys, [turn.turn_id for turn in memory._graph.turns(VICTIM)])
    memory.add_many([at.turn(0), at.turn(1), at.turn(2)])
    memory.flush()
    before = _digest(at.victims())
    for kind, calls in CALLS.items():
        for method, call in calls.items():
            if call is None:
                continue
            try:
                shown = SECRET in repr(call(at)).replace(_QUESTION, "")
            except LocigraphError as error:  # may name what was asked for
                shown = f"canoe {SECRET}" in str(error)
            assert not shown, f"{kind.__name__}.{method} shows data of the victim"
        assert _digest(at.victims()) == before, f"{kind.__name__} changed the victim's memory"


def _digest(held: Any) -> str:
    return hashlib.sha256(repr(held).encode(errors="backslashreplace")).hexdigest()

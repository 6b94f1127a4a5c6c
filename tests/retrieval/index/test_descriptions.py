from __future__ import annotations

import dataclasses
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import parquet

from locigraph.kg.store import Store
from locigraph.kg.store.queues import OutboxRow
from locigraph.kg.types import GraphChange, NodeId, NodeStatus, NodeUpdate, SpaceId, TurnId
from locigraph.retrieval.errors import IndexMismatchError, IndexUnavailableError
from locigraph.retrieval.index.descriptions import DESCRIPTIONS, DescriptionIndexer, Difference, index_type
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection, CollectionSpec, IndexRow
from locigraph.retrieval.protocols import SearchFilter
from tests.fakes import OTHER_SPACE, SPACE, FakeEncoder, change_of, fact, make_turn, make_turns

ENCODER = FakeEncoder(16)


class CrashingStore(Store):
    """A store whose process dies when it should acknowledge what was indexed."""

    def acknowledge_outbox(self, rows: Sequence[OutboxRow]) -> None:
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusIndex]:
    with MilvusIndex(str(tmp_path_factory.mktemp("index") / "index.db")) as made:
        yield made


@pytest.fixture
def clean(index: MilvusIndex) -> MilvusIndex:
    for name in index.collections():
        index.drop(name)
    return index


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "graph.sqlite") as made:
        tell(made, SPACE)
        yield made


def tell(store: Store, space: SpaceId) -> dict[str, NodeId]:
    """Two turns, the second with a fact; ids by ref of the second."""
    turns = make_turns(["I painted the canoe", "It is red now"], space=space)
    store.append_turns(turns)
    store.commit(change_of(turns[0], encoder=ENCODER))
    return dict(store.commit(change_of(turns[1], nodes=[fact("f", "The canoe is red", *turns)], encoder=ENCODER)))


def indexer_of(store: Store, index: MilvusIndex, model: str = "fake-bow") -> DescriptionIndexer:
    return DescriptionIndexer(store, index, model)


def query(text: str) -> NDArray[np.float32]:
    vector: NDArray[np.float32] = ENCODER.encode([text])[0]
    return vector


def test_drain_writes_every_active_node_and_a_second_drain_nothing(store: Store, clean: MilvusIndex) -> None:
    indexer = indexer_of(store, clean)
    assert indexer.drain() == 3
    assert indexer.drain() == 0
    assert store.read_outbox(limit=10) == []
    assert indexer.verify() == [Difference(SPACE, 0, 0, 0)]
    (best, *_) = indexer.collection().search(query("The canoe is red"), SearchFilter(SPACE), top_k=3)
    assert best.type == "knowledge_node"
    assert best.score == pytest.approx(1, abs=1e-5)


def test_a_drain_shows_progress_only_where_something_is_due(
    store: Store, clean: MilvusIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    indexer_of(store, clean).drain(progress=True)
    assert "index: 100%" in capsys.readouterr().err
    indexer_of(store, clean).drain(progress=True)
    assert capsys.readouterr().err == ""


def test_a_crash_between_write_and_acknowledge_costs_repeated_work_only(
    store: Store, clean: MilvusIndex, tmp_path: Path
) -> None:
    with CrashingStore(tmp_path / "graph.sqlite") as crashing, pytest.raises(KeyboardInterrupt):
        indexer_of(crashing, clean).drain()
    assert len(store.read_outbox(limit=10)) == 3
    assert indexer_of(store, clean).drain() == 3
    assert indexer_of(store, clean).collection().count() == 3
    assert indexer_of(store, clean).verify()[0].is_clean


def test_an_outage_leaves_the_outbox_as_it_was(store: Store, tmp_path: Path) -> None:
    with MilvusIndex(str(tmp_path / "index.db")) as gone:
        pass
    with pytest.raises(IndexUnavailableError):
        indexer_of(store, gone).drain()
    assert len(store.read_outbox(limit=10)) == 3


def test_forgotten_turns_and_archived_nodes_leave_the_index(store: Store, clean: MilvusIndex) -> None:
    made = tell(store, OTHER_SPACE)
    indexer = indexer_of(store, clean)
    indexer.drain()
    store.forget(SPACE, [TurnId("t0")])
    turn = store.turns(OTHER_SPACE)[1]
    update = NodeUpdate(made["f"], status=NodeStatus.ARCHIVED)
    store.commit(GraphChange(OTHER_SPACE, turn.recorded_at, updates=(update,)))
    indexer.drain()
    collection = indexer.collection()
    assert collection.count(SPACE) == 1  # the fact was drawn from the forgotten turn too
    assert collection.count(OTHER_SPACE) == 2
    assert indexer.verify() == [Difference(SPACE, 0, 0, 0), Difference(OTHER_SPACE, 0, 0, 0)]


@pytest.mark.parametrize("way", ["drain", "rebuild"])
def test_a_forgetting_makes_the_whole_index_anew_and_what_is_cut_is_done_again(
    way: str, store: Store, clean: MilvusIndex, tmp_path: Path
) -> None:
    indexer_of(store, clean).drain()
    clean.create("emb_0", CollectionSpec(16, "IP", "checkpoint", "schema"))
    store.forget(SPACE, [TurnId("t0")])
    with CrashingStore(tmp_path / "graph.sqlite") as crashing, pytest.raises(KeyboardInterrupt):
        getattr(indexer_of(crashing, clean), way)()
    assert store.has_forgotten()
    getattr(indexer_of(store, clean), way)()
    assert clean.collections() == [DESCRIPTIONS]
    assert indexer_of(store, clean).verify() == [Difference(SPACE, 0, 0, 0)]
    assert store.read_outbox(limit=10) == []
    assert not store.has_forgotten()


def test_an_index_that_a_deleted_store_has_left_is_made_anew(store: Store, clean: MilvusIndex, tmp_path: Path) -> None:
    indexer_of(store, clean).drain()
    clean.create("emb_0", CollectionSpec(16, "IP", "checkpoint", "schema"))
    with Store(tmp_path / "another.sqlite") as another:
        turn = make_turn(0, "Only this", space=SPACE)
        another.append_turns([turn])
        another.commit(change_of(turn, encoder=ENCODER))
        with pytest.raises(IndexMismatchError, match=r"index '.*' holds the nodes of another store; give each store"):
            indexer_of(another, clean).require_complete([SPACE])
        indexer_of(another, clean).drain()
        assert indexer_of(another, clean).verify() == [Difference(SPACE, 0, 0, 0)]
    assert clean.collections() == [DESCRIPTIONS]


def test_a_collection_of_an_earlier_version_which_names_no_store_is_taken_as_ours(
    store: Store, clean: MilvusIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(Store, "identity", lambda _: "")
        indexer_of(store, clean).drain()
    assert indexer_of(store, clean).verify() == [Difference(SPACE, 0, 0, 0)]


def test_no_file_of_the_index_keeps_a_word_or_a_vector_of_what_was_forgotten(store: Store, tmp_path: Path) -> None:
    secret = make_turn(2, "Xylophonist lives here", speaker="Zebedee")
    store.append_turns([secret])
    vector = ENCODER.encode([secret.utterance])
    store.commit(change_of(secret, nodes=[fact("f", "Xylophonist fact", secret)], encoder=ENCODER))
    path = tmp_path / "kept.db"
    with MilvusIndex(str(path)) as index:
        indexer_of(store, index).drain()
        graphs = index.create("emb_0", CollectionSpec(16, "IP", "checkpoint", "schema"))
        graphs.upsert([IndexRow(SPACE, 99, NodeId("xylophonist"), "episode", 0, (TurnId("t2"),))], vector)
        graphs.flush()
        assert any("xylophonist" in text for text in index_text(path))
        store.forget(SPACE, [TurnId("t2")])
        indexer_of(store, index).drain()
    assert not any("xylophonist" in text for text in index_text(path))
    assert not any(vector.tobytes() in file.read_bytes() for file in path.rglob("*") if file.is_file())


def index_text(path: Path) -> list[str]:
    """What stands in the files of an embedded index, in tables too, in small letters."""
    found = []
    for file in path.rglob("*"):
        if file.suffix == ".parquet":
            found.append(str(parquet.read_table(file).to_pylist()).lower())
        elif file.is_file():
            found.append(file.read_bytes().decode(errors="ignore").lower())
    return found


def test_a_node_made_and_forgotten_before_any_drain_is_never_written(store: Store, clean: MilvusIndex) -> None:
    store.forget(SPACE, [TurnId("t0"), TurnId("t1")])
    assert indexer_of(store, clean).drain() == 6
    assert not clean.has(DESCRIPTIONS)
    assert store.read_outbox(limit=10) == []


def test_a_rewritten_description_is_indexed_anew(store: Store, clean: MilvusIndex) -> None:
    made = tell(store, OTHER_SPACE)
    indexer = indexer_of(store, clean)
    indexer.drain()
    text = "The kayak is green"
    update = NodeUpdate(made["f"], description=text, embedding=query(text))
    turn = store.turns(OTHER_SPACE)[1]
    store.commit(GraphChange(OTHER_SPACE, turn.recorded_at, updates=(update,), embedding_model=ENCODER.model_id))
    indexer.drain()
    (best, *_) = indexer.collection().search(query(text), SearchFilter(OTHER_SPACE), top_k=1)
    assert best.node_id == made["f"]
    assert best.score == pytest.approx(1, abs=1e-5)
    assert all(found.is_clean for found in indexer.verify())


def test_verify_counts_missing_surplus_and_changed_rows(store: Store, clean: MilvusIndex) -> None:
    indexer = indexer_of(store, clean)
    indexer.drain()
    collection, snapshot = indexer.collection(), store.snapshot(SPACE, embedding_model=ENCODER.model_id)
    keys = snapshot.keys.tolist()
    collection.delete_nodes(SPACE, [keys[0]])
    collection.upsert([IndexRow(SPACE, keys[1], snapshot.ids[1], "episode", 0, ())], -snapshot.embeddings[1:2])
    strangers = [IndexRow(SPACE, 9000 + i, NodeId("x"), "episode", 0, ()) for i in range(2)]
    collection.upsert(strangers, snapshot.embeddings[:2])
    (found,) = indexer.verify()
    assert (found.missing, found.surplus, found.changed, found.is_clean) == (1, 2, 1, False)


@pytest.mark.parametrize(
    "changes", [{"type": "episode"}, {"recorded_at": 7}, {"turn_ids": (TurnId("t9"),)}, {"node_id": NodeId("x")}, {}]
)
def test_verify_compares_what_a_row_says_beside_its_vector(
    changes: dict[str, Any], store: Store, clean: MilvusIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexer = indexer_of(store, clean)
    indexer.drain()
    collection, snapshot = indexer.collection(), store.snapshot(SPACE, embedding_model=ENCODER.model_id)
    key = int(snapshot.keys[2])
    vectors = snapshot.embeddings[2:3].copy()
    if not changes:  # the client checks what it writes, Milvus Lite does not
        monkeypatch.setattr(np, "isfinite", lambda values: np.ones(values.shape, dtype=bool))
        vectors[0, 0] = np.nan
    collection.upsert([dataclasses.replace(collection.rows(SPACE)[key], **changes)], vectors)
    assert indexer.verify() == [Difference(SPACE, 0, 0, 1)]


@pytest.mark.long
@pytest.mark.parametrize("damage", ["emptied", "truncated", "flipped"])
def test_an_index_damaged_in_any_file_is_made_anew_by_a_rebuild_and_by_a_forgetting(
    damage: str, store: Store, tmp_path: Path
) -> None:
    with MilvusIndex(str(tmp_path / "whole.db")) as whole:
        indexer_of(store, whole).drain()
        whole.create("emb_0", CollectionSpec(16, "IP", "checkpoint", "schema"))
        whole.point("graph_embeddings", "emb_0")
    files = [file for file in (tmp_path / "whole.db").rglob("*") if file.is_file() and file.stat().st_size]
    assert len(files) > 8
    for file in files:
        shutil.rmtree(tmp_path / "index.db", ignore_errors=True)
        shutil.copytree(tmp_path / "whole.db", tmp_path / "index.db")
        hurt(tmp_path / "index.db" / file.relative_to(tmp_path / "whole.db"), damage)
        with MilvusIndex(str(tmp_path / "index.db")) as index:
            assert indexer_of(store, index).rebuild() == 3
            assert indexer_of(store, index).verify() == [Difference(SPACE, 0, 0, 0)]


def hurt(file: Path, damage: str) -> None:
    content = bytearray(file.read_bytes())
    middle = len(content) // 2
    if damage == "flipped":
        content[middle] ^= 0xFF
    file.write_bytes({"emptied": b"", "truncated": bytes(content[:middle]), "flipped": bytes(content)}[damage])


def test_an_index_is_kept_where_a_damaged_vector_of_the_store_keeps_it_from_being_made_anew(
    store: Store, clean: MilvusIndex, tmp_path: Path
) -> None:
    indexer = indexer_of(store, clean)
    indexer.drain()
    with closing(sqlite3.connect(tmp_path / "graph.sqlite")) as connection, connection:
        nan = np.full(16, np.nan, dtype="<f4").tobytes()
        connection.execute("UPDATE embeddings SET vector = ? WHERE node_key = 1", (nan,))
    with pytest.raises(IndexMismatchError, match=r"1 node without a vector of .*; .* run locigraph build with this"):
        indexer.rebuild()
    assert indexer.collection().count(SPACE) == 3
    lacking = store.unembedded(SPACE, ENCODER.model_id, checks_vectors=True)
    store.put_embeddings(SPACE, ENCODER.model_id, lacking, ENCODER.encode([each.text for each in lacking]))
    assert indexer.rebuild() == 3


def test_verify_counts_the_rows_of_a_space_that_is_gone(store: Store, clean: MilvusIndex) -> None:
    tell(store, OTHER_SPACE)
    indexer = indexer_of(store, clean)
    indexer.drain()
    store.forget_spaces([OTHER_SPACE])
    assert indexer.verify() == [Difference(OTHER_SPACE, 0, 3, 0), Difference(SPACE, 0, 0, 0)]
    indexer.drain()
    assert indexer.verify() == [Difference(SPACE, 0, 0, 0)]


def test_rebuild_makes_a_damaged_collection_equal_to_the_store(store: Store, clean: MilvusIndex) -> None:
    indexer = indexer_of(store, clean)
    indexer.drain()
    tell(store, OTHER_SPACE)
    indexer.collection().delete_nodes(SPACE, store.snapshot(SPACE).keys.tolist())
    assert indexer.rebuild() == 6
    assert all(found.is_clean for found in indexer.verify())
    assert indexer.drain() == 0


def test_a_rebuild_that_is_cut_is_made_good_by_the_next_drain(store: Store, clean: MilvusIndex, tmp_path: Path) -> None:
    indexer_of(store, clean).drain()
    with CrashingStore(tmp_path / "graph.sqlite") as crashing, pytest.raises(KeyboardInterrupt):
        indexer_of(crashing, clean).rebuild()
    tell(store, OTHER_SPACE)
    assert indexer_of(store, clean).drain() == 6
    assert all(found.is_clean for found in indexer_of(store, clean).verify())


def test_an_index_that_is_new_to_the_store_gets_all_its_nodes_not_only_what_is_due(
    store: Store, clean: MilvusIndex
) -> None:
    indexer_of(store, clean).drain()
    clean.drop(DESCRIPTIONS)  # lost, or another index from now on
    tell(store, OTHER_SPACE)
    assert indexer_of(store, clean).drain() == 6
    assert all(found.is_clean for found in indexer_of(store, clean).verify())
    assert indexer_of(store, clean).drain() == 0


def test_vectors_of_another_model_are_refused(store: Store, clean: MilvusIndex) -> None:
    indexer_of(store, clean).drain()
    with pytest.raises(IndexMismatchError, match="version 'fake-bow' but 'other'"):
        indexer_of(store, clean, "other").verify()
    tell(store, OTHER_SPACE)
    with pytest.raises(IndexMismatchError, match="version 'fake-bow' but 'other'"):
        indexer_of(store, clean, "other").drain()
    assert len(store.read_outbox(limit=10)) == 3


def test_the_damaged_index_of_a_store_that_holds_nothing_any_more_is_made_anew(store: Store, tmp_path: Path) -> None:
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        indexer_of(store, index).drain()
    store.forget_spaces(store.spaces())
    hurt(tmp_path / "index.db" / "aliases.json", "emptied")
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        indexer_of(store, index).rebuild()
        assert indexer_of(store, index).verify() == []
    tell(store, OTHER_SPACE)
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        indexer_of(store, index).drain()
        assert indexer_of(store, index).verify() == [Difference(OTHER_SPACE, 0, 0, 0)]


def test_small_collections_are_searched_exactly_and_large_ones_by_hnsw() -> None:
    assert (index_type(49_999), index_type(50_000)) == ("FLAT", "HNSW")


def test_a_rebuild_for_which_vectors_are_lacking_is_refused_and_keeps_the_collection(
    store: Store, clean: MilvusIndex
) -> None:
    indexer = indexer_of(store, clean)
    indexer.drain()
    with pytest.raises(IndexMismatchError, match="without a vector of text encoder 'other'"):
        indexer_of(store, clean, "other").rebuild()
    assert all(found.is_clean for found in indexer.verify())


def test_structure_that_no_search_returns_has_no_row_and_is_not_deleted(
    store: Store, clean: MilvusIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[int] = []
    monkeypatch.setattr(Collection, "delete_nodes", lambda _, space, keys: deleted.extend(keys))
    turn = make_turn(2, "Kayaks")
    store.append_turns([turn])
    store.commit(change_of(turn, nodes=[fact("k", "kayak", turn, kind="concept")], encoder=ENCODER))
    indexer_of(store, clean).drain()
    assert not deleted
    collection = indexer_of(store, clean).collection()
    assert collection.count(SPACE) == 4
    assert indexer_of(store, clean).verify() == [Difference(SPACE, 0, 0, 0)]


def test_a_space_that_the_index_lacks_or_holds_in_part_is_not_searched(store: Store, clean: MilvusIndex) -> None:
    indexer = indexer_of(store, clean)
    indexer.drain()
    indexer.require_complete([SPACE])
    tell(store, OTHER_SPACE)  # and the drain is cut
    with pytest.raises(
        IndexMismatchError, match=r"the index holds 0 of 3 searchable nodes.*run locigraph verify, which"
    ):
        indexer.require_complete([SPACE, OTHER_SPACE])
    store.acknowledge_outbox(store.read_outbox(limit=100))  # to another index
    with pytest.raises(IndexMismatchError, match=r"holds 0 of 3.*run locigraph verify --rebuild true"):
        indexer.require_complete([OTHER_SPACE])
    indexer.require_complete([SPACE])


def test_rows_that_the_index_has_lost_kept_or_changed_are_written_again(store: Store, clean: MilvusIndex) -> None:
    indexer = indexer_of(store, clean)
    indexer.drain()
    collection = indexer.collection()
    rows = collection.rows(SPACE)
    vectors = collection.vectors(SPACE, [*rows])
    lost, changed, *_ = rows
    collection.delete_nodes(SPACE, [lost])
    collection.upsert(
        [rows[changed], dataclasses.replace(rows[changed], node_key=999, node_id=NodeId("gone"))],
        np.stack([-vectors[changed], vectors[changed]]),
    )
    assert indexer.verify() == [Difference(SPACE, missing=1, surplus=1, changed=1)]
    indexer.repair([SPACE])
    assert indexer.verify() == [Difference(SPACE, 0, 0, 0)]
    tell(store, OTHER_SPACE)  # something is due there, which a drain writes
    indexer.repair([SPACE, OTHER_SPACE])
    assert collection.count(OTHER_SPACE) == 0


def test_a_fact_of_more_turns_than_a_row_can_name_is_indexed(store: Store, clean: MilvusIndex) -> None:
    said = make_turns(["again"] * 400)[2:]
    turns = [dataclasses.replace(turn, turn_id=TurnId(f"{turn.turn_id}-{'x' * 200}")) for turn in said]
    store.append_turns(turns)
    change = change_of(turns[-1], nodes=[fact("long", "said again and again", *turns)], encoder=ENCODER)
    store.commit(change)
    indexer_of(store, clean).drain()
    assert indexer_of(store, clean).verify() == [Difference(SPACE, 0, 0, 0)]

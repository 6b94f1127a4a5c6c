"""A Milvus server that restarts, is killed, is shared, is of another version, or is none at all."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locigraph.kg.store import Store
from locigraph.kg.types import NodeId
from locigraph.retrieval.errors import IndexMismatchError, IndexUnavailableError
from locigraph.retrieval.index.descriptions import DESCRIPTIONS, DescriptionIndexer, Difference
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_client import GuardedClient
from locigraph.retrieval.index.milvus_collection import IndexRow
from locigraph.retrieval.index.milvus_server import ServerAccess, cure_of
from locigraph.retrieval.protocols import SearchFilter
from tests.fakes import SPACE, FakeEncoder, change_of, fact, make_turns
from tests.retrieval.index.conftest import Engine
from tests.retrieval.index.rows import DIM, SPEC, random_vectors, row
from tests.servers import milvus
from tests.servers.milvus import MilvusServer


class OwnServer:
    """A server of one test, which may be killed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server: MilvusServer = milvus.start(folder)

    def restart(self) -> None:
        """Kill it and start it on the same port."""
        self.server.kill()
        self.server = milvus.start(self._folder, port=self.server.port)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    made = OwnServer(tmp_path_factory.mktemp("milvus"))
    yield made
    made.server.stop()


@pytest.mark.servers
def test_what_a_server_acknowledged_is_there_after_it_was_killed(own: OwnServer) -> None:
    with MilvusIndex(own.server.uri, namespace="kept_") as index:
        collection = index.create("nodes", SPEC)
        collection.upsert([row(i) for i in range(200)], random_vectors(200))
        index.point("live", "nodes")
    own.restart()
    with MilvusIndex(own.server.uri, namespace="kept_") as index:
        again = index.open("live")
        assert again.node_keys("harbor") == list(range(200))
        np.testing.assert_array_equal(again.vectors("harbor", [7])[7], random_vectors(200)[7])


@pytest.mark.servers
def test_a_server_that_is_killed_in_the_middle_of_a_write_loses_nothing_that_the_store_lists(
    own: OwnServer, tmp_path: Path
) -> None:
    encoder = FakeEncoder(DIM)
    with Store(tmp_path / "graph.sqlite") as store:
        turns = make_turns([f"I saw whale number {i}." for i in range(40)])
        store.append_turns(turns)
        for turn in turns:
            change = change_of(turn, nodes=[fact("f", f"whale {turn.turn_id}", turn)])
            store.commit(change)
        missing = store.unembedded(SPACE, encoder.model_id)
        store.put_embeddings(SPACE, encoder.model_id, missing, encoder.encode([each.text for each in missing]))
        for delay in (0.0, 0.3):
            with MilvusIndex(own.server.uri, namespace="cut_", access=ServerAccess(timeout_s=3)) as index:
                killing = threading.Timer(delay, own.server.kill)
                killing.start()
                with pytest.raises(IndexUnavailableError, match="check that"):
                    write_for_ever(DescriptionIndexer(store, index, encoder.model_id), store)
                killing.join()
            own.restart()
            with MilvusIndex(own.server.uri, namespace="cut_") as index:
                indexer = DescriptionIndexer(store, index, encoder.model_id)
                indexer.drain()
                assert indexer.verify() == [Difference(SPACE, 0, 0, 0)]


def write_for_ever(indexer: DescriptionIndexer, store: Store) -> None:
    while True:
        store.relist_outbox()
        indexer.drain()


@pytest.mark.servers
def test_readers_see_the_old_or_the_new_collection_while_an_alias_is_moved(engine: Engine) -> None:
    with engine.opened("flips") as index:
        for name in ("old", "new"):
            index.create(name, SPEC).upsert([row(i) for i in range(20)], random_vectors(20))
        index.point("live", "old")
        stop, found, failed = threading.Event(), set[int](), list[Exception]()

        def read() -> None:
            while not stop.is_set():
                try:
                    matches = index.open("live").search(random_vectors(1)[0], SearchFilter("harbor"), top_k=20)
                    found.add(len(matches))
                except Exception as error:
                    failed.append(error)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        for flip in range(20):
            index.point("live", ("new", "old")[flip % 2])
        stop.set()
        for reader in readers:
            reader.join()
    assert (found, failed) == ({20}, [])


@pytest.mark.servers
def test_two_stores_on_one_server_never_see_or_clear_each_others_rows(own: OwnServer) -> None:
    with (
        MilvusIndex(own.server.uri, namespace="one_") as one,
        MilvusIndex(own.server.uri, namespace="two_") as two,
    ):
        for index, key in ((one, 1), (two, 2)):
            index.create(DESCRIPTIONS, SPEC).upsert([row(key)], random_vectors(1))
            index.create("emb_0000000000000000", SPEC)
            index.point("graph", "emb_0000000000000000")
        assert one.open(DESCRIPTIONS).node_keys("harbor") == [1]
        one.clear(f"{DESCRIPTIONS}|emb_.*", "")
        assert one.collections() == []
        assert two.collections() == [DESCRIPTIONS, "emb_0000000000000000"]
        assert two.alias_target("graph") == "emb_0000000000000000"
        assert two.open(DESCRIPTIONS).node_keys("harbor") == [2]


@pytest.mark.servers
def test_one_process_reads_what_another_wrote_and_deleted_once_it_is_synchronised(own: OwnServer) -> None:
    with (
        MilvusIndex(own.server.uri, namespace="both_") as writer,
        MilvusIndex(own.server.uri, namespace="both_") as other,
    ):
        written = writer.create("nodes", SPEC)
        read = other.open("nodes")
        for count in (3, 5, 8):
            written.upsert([row(i) for i in range(count)], random_vectors(count))
            read.synchronise()
            assert read.count("harbor") == count
        written.delete_nodes("harbor", [0, 1])
        read.synchronise()
        assert read.node_keys("harbor") == list(range(2, 8))


@pytest.mark.servers
def test_a_collection_that_was_not_finished_is_not_listed_and_not_in_the_way(own: OwnServer) -> None:
    client = GuardedClient(own.server.uri)
    with MilvusIndex(own.server.uri, namespace="part_") as index:
        index.create("nodes", SPEC)
        client.rename_collection("part_nodes", "part_making_nodes")
        assert index.collections() == []
        assert not index.has("nodes")
        assert index.create("nodes", SPEC).count() == 0
        assert index.collections() == ["nodes"]
        assert "part_making_nodes" not in client.list_collections()
    client.close()


@pytest.mark.servers
def test_a_name_of_the_greatest_length_fits_a_row(own: OwnServer) -> None:
    name = "é" * 120  # 240 bytes, as many as a name may have
    with MilvusIndex(own.server.uri, namespace="long_") as index:
        collection = index.create("nodes", SPEC)
        collection.upsert([IndexRow(name, 1, NodeId("n"), "episode", 0, ())], random_vectors(1))
        assert collection.counts() == {name: 1}


@pytest.mark.servers
def test_a_server_of_a_version_that_was_not_tested_is_refused_unless_it_is_allowed(
    own: OwnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locigraph.retrieval.index.milvus_server.TESTED_VERSIONS", ("9.9.9",))
    with pytest.raises(IndexMismatchError, match=r"of version 'v2\.3\.5.*only 9\.9\.9 is tested.*any_version true"):
        MilvusIndex(own.server.uri)
    with MilvusIndex(own.server.uri, namespace="any_", access=ServerAccess(any_version=True)) as index:
        assert index.collections() == []


@pytest.mark.servers
def test_a_server_that_goes_away_is_an_error_within_the_time_limit(own: OwnServer) -> None:
    with MilvusIndex(own.server.uri, namespace="away_", access=ServerAccess(timeout_s=2)) as index:
        collection = index.create("nodes", SPEC)
        collection.upsert([row(1)], random_vectors(1))
        own.server.kill()
        try:
            for action in (
                lambda: collection.search(random_vectors(1)[0], SearchFilter("harbor"), top_k=1),
                index.collections,
            ):
                begun = time.monotonic()
                with pytest.raises(IndexUnavailableError, match=r"check that the server|did not answer") as raised:
                    action()
                assert "\n" not in str(raised.value)
                assert time.monotonic() - begun < 10
        finally:
            own.restart()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"\x00" * 64, b""])
def test_what_answers_nonsense_is_no_server(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1024)
                    connection.sendall(answer)

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        with pytest.raises(
            IndexUnavailableError, match=r"cannot connect: .*; (check|the server did not answer)"
        ) as raised:
            MilvusIndex(f"http://127.0.0.1:{listening.getsockname()[1]}", access=ServerAccess(timeout_s=1))
        assert "\n" not in str(raised.value)
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"timeout_s": 0.0}, r"timeout_s is 0\.0; expected seconds above 0"),
        ({"ca_cert": "nowhere.pem"}, r"ca_cert is 'nowhere\.pem', which is no file"),
        ({"client_key": __file__}, "client_cert, client_key and ca_cert together"),
    ],
)
def test_settings_that_no_connection_can_be_made_with_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(IndexUnavailableError, match=message):
        MilvusIndex("https://127.0.0.1:1", access=ServerAccess(**given))


def test_credentials_certificates_and_limits_reach_the_client() -> None:
    access = ServerAccess("root:x", "chats", 7.0, __file__, server_name="milvus")
    assert access.options() == {
        "token": "root:x", "db_name": "chats", "timeout": 7.0, "server_pem_path": __file__, "server_name": "milvus",
    }  # fmt: skip
    mutual = ServerAccess(ca_cert=__file__, client_cert=__file__, client_key=__file__).options()
    assert {name for name in mutual if name.endswith("_path")} == {"ca_pem_path", "client_pem_path", "client_key_path"}
    assert (access.timeout_of("search"), access.timeout_of("flush")) == (7.0, 600.0)


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ("auth check failure, please check username and password", "--index.token"),
        ("database not found[database=chats]", "--index.database"),
        ("quota exceeded[reason=disk quota exceeded, please allocate more resources]", "make room"),
        ("Deadline Exceeded", "did not answer within 5 seconds"),
        ("failed to connect to all addresses", "is its address"),
    ],
)
def test_an_error_of_the_server_says_what_to_do(said: str, cure: str) -> None:
    assert cure in cure_of(said, ServerAccess(timeout_s=5))

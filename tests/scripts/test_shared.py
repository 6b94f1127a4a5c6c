"""Several processes on one memory, whose store and index are servers."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from locigraph.assembly.search_parts import indexer_of
from locigraph.assembly.settings import IndexSettings
from locigraph.kg.errors import LocigraphError, StoreError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.memory import Memory
from locigraph.scripts.commands.memory.serve import serve
from tests.faults.workbench import prepare
from tests.scripts.shared_writer import opened
from tests.servers.running import require_running

pytestmark = pytest.mark.servers


class Shared(NamedTuple):
    """A memory on servers."""

    folder: Path
    store: str
    uri: str

    def open(self) -> Memory:
        return opened(self.folder, self.store, self.uri)

    def writer(self, space: str, name: str, count: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.scripts.shared_writer", str(self.folder), self.store, self.uri]
        return subprocess.Popen(
            [*command, space, name, str(count)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Shared]:
    servers, database = require_running(), f"test_{secrets.token_hex(6)}"
    prepare(tmp_path)
    yield Shared(tmp_path, servers.postgresql.create(database), servers.milvus.uri)
    servers.postgresql.drop(database)


def finished(writer: subprocess.Popen[str]) -> list[str]:
    out, error = writer.communicate(timeout=300)
    assert writer.returncode == 0, error
    return out.split()


def test_two_writers_and_a_reader_of_one_space_lose_nothing_and_find_everything(shared: Shared) -> None:
    with shared.open() as memory:
        memory.add(space="both", session="s0", speaker="Eve", text="Everybody names a lucky number.", turn_id="e0")
        writers = [shared.writer("both", name, 12) for name in ("Ann", "Ben")]
        while any(writer.poll() is None for writer in writers):
            hits = memory.recall("Who has a lucky number?", space="both", top_k=5)
            assert len(hits) > 0
        said = {turn for writer in writers for turn in finished(writer)}
        assert len(said) == 24
        found = memory.recall("lucky number", space="both", top_k=200, fold=None)
        assert {turn for hit in found for turn in hit.turn_ids} >= said
        assert found.notes == ()
        assert_whole(memory, "both", said | {"e0"})


def test_a_writer_that_is_killed_holds_nobody_up_and_has_lost_nothing(shared: Shared) -> None:
    writer = shared.writer("one", "Ann", 500)
    assert writer.stdout is not None
    said = [writer.stdout.readline().strip() for _ in range(5)]
    writer.send_signal(signal.SIGKILL)
    rest, _ = writer.communicate()
    said += rest.split()
    with shared.open() as memory:
        memory.add(space="one", session="s1", speaker="Ben", text="What became of Ann?", turn_id="b0")
        found = memory.recall("lucky number", space="one", top_k=200, fold=None)
        assert {turn for hit in found for turn in hit.turn_ids} >= {*said}
        held = {turn.turn_id for turn in memory._graph.turns(SpaceId("one"))}
        assert held >= {*said, "b0"}
        assert_whole(memory, "one", held)


def test_what_one_process_forgets_the_other_does_not_find(shared: Shared) -> None:
    with shared.open() as one, shared.open() as other:
        for number in range(6):
            one.add(space="a", session="s", speaker="Ann", text=f"Secret number {number}", turn_id=f"t{number}")
        assert len(other.recall("secret number", space="a", fold=None)) == 6
        one.forget(space="a", turn_ids=["t1", "t2"])
        found = other.recall("secret number", space="a", fold=None, top_k=50)
        assert {turn for hit in found for turn in hit.turn_ids} == {"t0", "t3", "t4", "t5"}
        one.forget(space="a", whole_space=True)
        with pytest.raises(StoreError, match="is not in the store"):
            other.recall("secret number", space="a")
        rows = one._parts.live()
        assert rows is not None
        assert "a" not in one._parts.index().open("graph_embeddings").counts()


def test_a_refresh_beside_writers_leaves_no_turn_without_its_vector(shared: Shared) -> None:
    with shared.open() as memory:
        for number in range(4):
            memory.add(space=f"s{number}", session="s", speaker="Ann", text=f"Number {number}", turn_id="t0")
        memory.recall("number", space="s0")
        writers = [shared.writer("both", name, 9) for name in ("Ann", "Ben")]
        live = memory._parts.require_live()
        refreshed = 0
        while any(writer.poll() is None for writer in writers) or refreshed < 2:
            live.refresh()
            refreshed += 1
        said = {turn for writer in writers for turn in finished(writer)}
        found = memory.recall("lucky number", space="both", top_k=200, fold=None)
        assert {turn for hit in found for turn in hit.turn_ids} >= said
        assert_whole(memory, "both", said)


def test_two_processes_that_set_up_an_empty_database_at_once_make_one_store(shared: Shared) -> None:
    failed, identities = list[Exception](), set[str]()

    def set_up() -> None:
        try:
            with Store(shared.store) as store:
                identities.add(store.identity())
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=set_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (failed, len(identities)) == ([], 1)


def test_readers_do_not_wait_for_a_writer_and_writers_of_other_spaces_neither(shared: Shared) -> None:
    with Store(shared.store) as store, Store(shared.store) as other:
        with store._write("busy"):
            assert other.spaces() == []
            other.remember({"mine": "x"})
        with store.held("busy"), other.held("idle"):
            assert other.is_held("busy")
        assert not other.is_held("busy")


@pytest.mark.parametrize("workers", [0, -1])
def test_workers_are_refused_where_they_cannot_share_a_memory(workers: int, tmp_path: Path) -> None:
    with pytest.raises(LocigraphError, match="expected 1 or more"):
        serve(store=str(tmp_path / "g.sqlite"), workers=workers)
    with pytest.raises(LocigraphError, match=r"cannot share store .* name servers with --store and --index\.uri"):
        serve(store=str(tmp_path / "g.sqlite"), index=IndexSettings(uri="http://127.0.0.1:1"), workers=2)


def assert_whole(memory: Memory, space: str, turns: Collection[str]) -> None:
    """The store holds these turns once each, and both indexes hold what the store holds."""
    graph = memory._graph
    assert {turn.turn_id for turn in graph.turns(SpaceId(space))} == {*turns}
    assert graph.misplaced() == {}
    memory.flush()
    from locigraph.assembly.search_parts import indexer_of

    indexer = indexer_of(graph, memory._parts.index(), memory._encoder)
    assert all(each.is_clean for each in indexer.verify())
    assert all(each.is_clean for each in memory._parts.require_live().verify())


def test_rows_that_a_server_has_lost_are_made_again_before_v1_searches(shared: Shared) -> None:
    with shared.open() as memory:
        for number in range(3):
            memory.add(space="sea", session="s", speaker="Ann", text=f"I saw whale {number}.", turn_id=f"t{number}")
        wanted = memory.recall("whale", space="sea", strategy="v1", top_k=9, fold=None)
        indexer = indexer_of(memory._graph, memory._parts.index(), memory._encoder)
        collection = indexer.collection()
        lost, *_ = collection.rows("sea")
        collection.delete_nodes("sea", [lost])
        collection.flush()
    with shared.open() as memory:
        assert memory.recall("whale", space="sea", strategy="v1", top_k=9, fold=None).hits == wanted.hits
        assert all(each.is_clean for each in indexer_of(memory._graph, memory._parts.index(), memory._encoder).verify())

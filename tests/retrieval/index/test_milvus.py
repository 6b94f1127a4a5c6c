from __future__ import annotations

import errno
import os
import signal
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import Any

import numpy as np
import pytest
from milvus_lite.adapter.grpc import server as lite_server
from numpy.typing import NDArray

from locigraph.kg.files import MAKE_ROOM
from locigraph.retrieval.errors import IndexUnavailableError
from locigraph.retrieval.index import milvus_client
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.protocols import SearchFilter
from tests.retrieval.index.rows import SPEC, random_vectors, row


def test_an_embedded_index_listens_on_no_port_and_needs_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    before = listening()
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        index.create("nodes", SPEC).upsert([row(1)], random_vectors(1))
        assert listening() == before
        with socket.create_server(("127.0.0.1", 0)):
            assert listening() > before


def listening() -> set[str]:
    """Addresses on which this process listens; Linux says so in files."""
    own = set()
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the folder itself, which is closed by now
            own.add(os.readlink(link))
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
    return {line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in own}


def test_an_index_open_elsewhere_is_said_to_be_so_and_is_not_cleared(tmp_path: Path) -> None:
    path = str(tmp_path / "index.db")
    with MilvusIndex(path) as first:
        first.create("nodes", SPEC)
        with pytest.raises(
            IndexUnavailableError,
            match="is already open, in another process or in this one; close it there, or send requests "
            "to that process",
        ):
            MilvusIndex(path)
        assert first.collections() == ["nodes"]


def test_an_interrupt_while_an_embedded_index_opens_leaves_it_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, main = str(tmp_path / "index.db"), get_ident()
    start, handler, is_interrupted = lite_server.start_server_in_thread, signal.getsignal(signal.SIGINT), Event()

    def interrupt(*_: object) -> None:
        is_interrupted.set()
        raise KeyboardInterrupt

    def interrupted(*arguments: Any, **options: Any) -> Any:
        started = start(*arguments, **options)
        signal.pthread_kill(main, signal.SIGINT)
        assert is_interrupted.wait(60)
        return started

    monkeypatch.setattr(lite_server, "start_server_in_thread", interrupted)
    signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            MilvusIndex(path)
    finally:
        signal.signal(signal.SIGINT, handler)
    monkeypatch.undo()
    with MilvusIndex(path) as opened:
        assert opened.collections() == []


def test_an_interrupt_while_the_thread_of_an_embedded_index_starts_leaves_it_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, start = str(tmp_path / "index.db"), Thread.start

    def interrupted(thread: Thread) -> None:
        start(thread)
        if thread.name.startswith("index"):
            raise KeyboardInterrupt

    monkeypatch.setattr(Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        MilvusIndex(path)
    monkeypatch.undo()
    with MilvusIndex(path) as opened:
        assert opened.collections() == []


def test_a_path_that_does_not_say_it_is_an_index_is_refused(tmp_path: Path) -> None:
    (tmp_path / "papers").mkdir()
    with pytest.raises(IndexUnavailableError, match=r"must end in \.db; name such a path"):
        MilvusIndex(str(tmp_path / "papers"))
    assert list((tmp_path / "papers").iterdir()) == []


def test_clearing_leaves_what_is_not_the_indexs_own(tmp_path: Path) -> None:
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        index.create("nodes", SPEC)
        (tmp_path / "index.db" / "thesis.tex").write_text("years")
        index.clear("", "")
        assert index.collections() == []
    assert (tmp_path / "index.db" / "thesis.tex").read_text() == "years"


def test_a_path_that_holds_something_else_is_an_outage(tmp_path: Path) -> None:
    garbage = tmp_path / "index.db"
    garbage.write_text("not an index")
    with pytest.raises(IndexUnavailableError, match=r"index\.db' is a file, .*name another path with --index\.uri"):
        MilvusIndex(str(garbage))
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(IndexUnavailableError, match=r"is a broken link, .* with --index\.uri"):
        MilvusIndex(str(link))
    with pytest.raises(IndexUnavailableError, match="cannot create its folder"):
        MilvusIndex(str(garbage / "inside" / "index.db"))
    assert garbage.read_text() == "not an index"


def test_a_server_that_does_not_answer_is_an_outage() -> None:
    with pytest.raises(IndexUnavailableError, match=r"cannot connect.*check that the server is running"):
        MilvusIndex("http://127.0.0.1:1")


def test_a_folder_that_a_kill_left_of_a_collection_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    (path / "collections" / "making_nodes").mkdir(parents=True)
    with MilvusIndex(str(path)) as index:
        assert index.create("nodes", SPEC).count() == 0
        assert index.collections() == ["nodes"]


@pytest.mark.parametrize("is_reader", [True, False])
def test_a_folder_of_other_software_is_refused_and_left_as_it_is(is_reader: bool, tmp_path: Path) -> None:
    photo = tmp_path / "photos.db" / "collections" / "holiday" / "photo.jpg"
    photo.parent.mkdir(parents=True)
    photo.write_text("sea")
    with pytest.raises(
        IndexUnavailableError, match=r"photos\.db' is a folder with other files, which were not changed"
    ):
        MilvusIndex(str(tmp_path / "photos.db"), is_reader=is_reader)
    assert [path.name for path in (tmp_path / "photos.db").rglob("*")] == ["collections", "holiday", "photo.jpg"]


def test_of_what_has_no_schema_only_milvus_own_folders_are_removed_and_those_not_by_readers(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    with MilvusIndex(str(path)):
        pass
    for name in ("begun/wal", "begun/partitions", "holiday/photos"):
        (path / "collections" / name).mkdir(parents=True)
    for is_reader, left in ((True, ["begun", "holiday"]), (False, ["holiday"])):
        with MilvusIndex(str(path), is_reader=is_reader) as index:
            assert index.collections() == []
        assert sorted(each.name for each in (path / "collections").iterdir()) == left
    assert (path / "collections" / "holiday" / "photos").is_dir()


def test_an_index_that_cannot_be_tidied_is_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(collections: Path) -> None:
        raise OSError("no right to")

    with monkeypatch.context() as broken:
        broken.setattr(milvus_client, "_remove_unfinished", fail)
        with pytest.raises(IndexUnavailableError, match="cannot connect: no right to"):
            MilvusIndex(str(tmp_path / "index.db"))
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        assert index.collections() == []


def test_a_full_disk_is_not_taken_for_a_damaged_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(collections: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(milvus_client, "_remove_unfinished", fail)
    with pytest.raises(IndexUnavailableError, match=f"{os.strerror(errno.ENOSPC)}; {MAKE_ROOM}"):
        MilvusIndex(str(tmp_path / "index.db"))


@pytest.mark.parametrize("name", ["x" * 90, "a#b", "a?b", "a,b", "a%20b"])
def test_a_folder_for_temporary_files_that_no_socket_can_be_in_is_not_used(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    with MilvusIndex(str(tmp_path / "index.db")) as index:
        assert index.create("nodes", SPEC).count() == 0


@pytest.mark.parametrize("left", [0, 40, -8])
def test_a_search_file_that_a_kill_cut_short_is_made_again_when_the_index_is_opened(left: int, tmp_path: Path) -> None:
    place, vectors = tmp_path / "index.db", random_vectors(40)
    with MilvusIndex(str(place)) as made:
        collection = made.create("cut", SPEC)
        collection.upsert([row(key) for key in range(40)], vectors)
        collection.flush()
    files = list(place.rglob("*.idx"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:left])
    with MilvusIndex(str(place)) as opened:
        found = opened.open("cut").search(vectors[7], SearchFilter("harbor"), top_k=40)
    assert (found[0].node_id, len(found)) == ("n007", 40)


@pytest.mark.parametrize("is_reader", [True, False])
@pytest.mark.parametrize(
    "change", [np.negative, lambda held: held[::-1], lambda held: held * np.nan, lambda held: held[:1]]
)
def test_a_changed_search_file_changes_no_answer(
    change: Callable[[NDArray[np.float32]], NDArray[np.float32]], is_reader: bool, tmp_path: Path
) -> None:
    place, vectors = tmp_path / "index.db", random_vectors(40)
    with MilvusIndex(str(place)) as made:
        collection = made.create("changed", SPEC)
        collection.upsert([row(key) for key in range(40)], vectors)
        collection.flush()
    for file in place.rglob("*.idx"):
        with file.open("rb+") as held:
            changed = change(np.load(held))
            held.seek(0)
            held.truncate()
            np.save(held, changed)
    with MilvusIndex(str(place), is_reader=is_reader) as opened:
        found = opened.open("changed").search(vectors[7], SearchFilter("harbor"), top_k=40)
    assert (found[0].node_id, len(found)) == ("n007", 40)
    assert found[0].score == pytest.approx(1, abs=1e-5)

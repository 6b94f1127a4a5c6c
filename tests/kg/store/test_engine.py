from __future__ import annotations

import hashlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from locigraph.kg.errors import StoreError, StoreVersionError
from locigraph.kg.store import Store
from locigraph.kg.store.engine import Access, file_of, make_engine
from tests.fakes import SPACE, FakeEncoder, change_of, make_turn, make_turns

STATEMENTS = {
    "a table of its own": ["CREATE TABLE bookmarks (id INTEGER PRIMARY KEY, url TEXT)"],
    "a mark of its own": ["PRAGMA application_id = 252006674"],
    "one of our names": ["CREATE TABLE settings (name TEXT)", "CREATE TABLE bookmarks (url TEXT)"],
    "only one of our names": ["CREATE TABLE settings (name TEXT)"],
    "two of our names": ["CREATE TABLE nodes (id INTEGER)", "CREATE TABLE relations (source INTEGER)"],
    "migrations of its own": [
        *(f"CREATE TABLE {name} (id INTEGER)" for name in ("spaces", "turns", "nodes")),
        "CREATE TABLE alembic_version (version_num TEXT)",
        "INSERT INTO alembic_version VALUES ('8f2c')",
    ],
    "a view": ["CREATE VIEW bookmarks AS SELECT 1"],
    "a version of its own": ["PRAGMA user_version = 7"],
}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def filled(path: Path) -> Path:
    with Store(path) as store:
        store.append_turns([make_turn(0, "hello")])
        store.commit(change_of(make_turn(0, "hello")))
    return path


@pytest.mark.parametrize("access", ["create", "write", "read"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_the_database_of_another_application_is_refused_and_no_byte_of_it_changed(
    name: str, access: Access, tmp_path: Path
) -> None:
    path = tmp_path / "places.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in STATEMENTS[name]:
            connection.execute(statement)
    before = digest(path)
    with pytest.raises(StoreError, match="another application and was left unchanged; name another file"):
        Store(path, access=access)
    assert digest(path) == before
    assert [each.name for each in tmp_path.iterdir()] == ["places.sqlite"]


def test_a_store_carries_our_mark_and_one_of_an_earlier_version_gets_it(tmp_path: Path) -> None:
    path = filled(tmp_path / "graph.sqlite")
    with closing(sqlite3.connect(path)) as connection, connection:
        (mark,) = connection.execute("PRAGMA application_id").fetchone()
        connection.execute("PRAGMA application_id = 0")
        connection.execute("ALTER TABLE provenance DROP COLUMN worded")
        for column in ("revision", "renewed_in", "user", "agent", "embedded_by", "title", "keep_seconds"):
            connection.execute(f"ALTER TABLE spaces DROP COLUMN {column}")
        for table in ("changed_spaces", "word_statistics", "tombstones", "tombstone_marks", "spent", "coined_labels"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute("DROP INDEX ix_turns_space_session_id_position")
        connection.execute("DROP INDEX ix_turns_space_expires_at")
        for of in (
            "nodes_space_changed_in",
            "turns_space_position",
            "turns_space_spoken_at",
            "turns_space_state_position",
        ):
            connection.execute(f"DROP INDEX ix_{of}")
        connection.execute("CREATE INDEX ix_turns_space_state ON turns (space, state)")
        connection.execute("ALTER TABLE nodes DROP COLUMN changed_in")
        for column in ("metadata", "expires_at"):
            connection.execute(f"ALTER TABLE turns DROP COLUMN {column}")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
    assert mark == int.from_bytes(b"Loci")
    with pytest.raises(
        StoreVersionError,
        match="older version; run locigraph verify once, where store and index can be written, to upgrade",
    ):
        Store(path, access="read")
    with Store(path, access="write") as store:
        assert store.spaces() == [SPACE]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (mark,)


@pytest.mark.parametrize("access", ["write", "read"])
def test_only_the_access_create_makes_a_database(access: Access, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="unable to open database file"):
        Store(tmp_path / "absent.sqlite", access=access)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["", " "])
def test_a_store_without_a_name_is_refused_and_not_kept_in_memory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="path of the store is empty"):
        Store(url)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_reads_and_cannot_write(tmp_path: Path) -> None:
    path = filled(tmp_path / "a graph?#%20.sqlite")
    before = digest(path)
    with Store(path, access="read") as store:
        assert [node.description for node in store.nodes(SPACE)] == ["Ann: hello"]
        with pytest.raises(StoreError, match="readonly"):
            store.append_turns([make_turn(1, "more")])
    assert digest(path) == before


def test_a_reader_works_where_nothing_can_be_written_beside_the_file(tmp_path: Path) -> None:
    path = filled(tmp_path / "graph.sqlite")
    for end in ("-shm", "-wal"):  # a folder of that name is in the way of root too
        (tmp_path / f"graph.sqlite{end}").mkdir()
    (tmp_path / "graph.sqlite-wal").rmdir()
    with Store(path, access="read") as store:
        assert store.spaces() == [SPACE]
        assert store.snapshot(SPACE).turn_ids == ("t0",)


def test_a_store_finds_what_is_wrong_with_itself(tmp_path: Path) -> None:
    path = filled(tmp_path / "graph.sqlite")
    with Store(path) as store:
        assert store.faults() == []
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE nodes SET description = 'Ann: hallo'")
        connection.execute("DELETE FROM turns")
    with Store(path) as store:
        faults = store.faults()
    assert len(faults) == 2
    assert "refers to a row that does not exist" in faults[0]
    assert "was changed after it was written" in faults[1]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("UPDATE turns SET text = 'hallo'", "turn 't0' of space 'harbor' was changed after it was written"),
        ("UPDATE turns SET speaker = 'Bo'", "turn 't0' of space 'harbor' was changed after it was written"),
        ("UPDATE turns SET state = 'dune'", "turn 't0' of space 'harbor' cannot be read"),
        ("UPDATE turns SET spoken_at = 'noon'", "turn 't0' of space 'harbor' cannot be read"),
        ("UPDATE turns SET text = x'00ff'", "turn 't0' of space 'harbor' cannot be read"),
        ("UPDATE nodes SET status = 'actvie'", "cannot be read"),
        ("UPDATE nodes SET created_at = 99999999999999999", "cannot be read"),
        ("UPDATE nodes SET attributes = '{'", "cannot be read"),
        ("UPDATE nodes SET type = 'epasode'", "a row of nodes refers to a row that does not exist"),
        (
            "UPDATE embeddings SET vector = x'0000c07f'",
            "is not 64 finite numbers, and locigraph build computes it again",
        ),
        ("UPDATE embeddings SET vector = x'00'", "is not 64 finite numbers"),
    ],
)
def test_a_store_names_a_row_that_was_changed_or_cannot_be_read(change: str, fault: str, tmp_path: Path) -> None:
    path, encoder = tmp_path / "graph.sqlite", FakeEncoder(64)
    with Store(path) as store:
        for number in range(3):
            store.append_turns([make_turn(number, "hello")])
            store.commit(change_of(make_turn(number, "hello"), encoder=encoder))
    with closing(sqlite3.connect(path)) as connection, connection:
        (first,) = connection.execute("SELECT MIN(key) FROM nodes").fetchone()
        key = {"turns": "key", "nodes": "key", "embeddings": "node_key"}[change.split()[1]]
        connection.execute(f"{change} WHERE {key} = {first if key == 'node_key' else 1}")
    with Store(path) as store:
        (found,) = store.faults()
    assert fault in found


def test_an_open_store_stays_the_same_when_the_process_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        with Store(tmp_path / folder / "memory.sqlite") as store:
            store.append_turns(make_turns([f"of {folder}"]))
    monkeypatch.chdir(tmp_path / "a")
    with Store("memory.sqlite") as store:
        monkeypatch.chdir(tmp_path / "b")
        with ThreadPoolExecutor(4) as threads:
            found = [*threads.map(lambda _: store.turns(SPACE)[0].text, range(20))]
        with store.reading(), ThreadPoolExecutor(4) as threads:  # the connection is in use, so others are opened
            found += threads.map(lambda _: store.turns(SPACE)[0].text, range(20))
    assert {*found} == {"of a"}


def test_a_store_can_be_opened_where_the_folder_of_the_process_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deleted() -> Path:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Path, "cwd", deleted)
    with Store(tmp_path / "memory.sqlite") as store:
        assert store.spaces() == []


@pytest.mark.parametrize(
    ("url", "file"),
    [
        ("data/graph.sqlite", "data/graph.sqlite"),
        ("sqlite:///data/graph.sqlite", "data/graph.sqlite"),
        ("sqlite:////data/graph.sqlite", "/data/graph.sqlite"),
        ("sqlite+pysqlite:///graph.sqlite?timeout=3", "graph.sqlite"),
        (":memory:", None),
        ("sqlite://", None),
        ("postgresql://ana@server/graph", None),
        ("no scheme://graph", None),
    ],
)
def test_the_file_of_a_store_is_known_by_its_path_or_url(url: str, file: str | None) -> None:
    assert file_of(url) == (None if file is None else Path(file))


@pytest.mark.parametrize("access", ["create", "write", "read"])
def test_an_error_that_quotes_bytes_which_are_no_text_is_one_of_the_store(access: Access, tmp_path: Path) -> None:
    path = filled(tmp_path / "graph.sqlite")
    damaged = path.read_bytes()
    assert damaged.count(b"CREATE TABLE nodes") == 1
    path.write_bytes(damaged.replace(b"CREATE TABLE nodes", b"CR\xc5ATE TABLE nodes"))
    with pytest.raises(StoreError, match=r"malformed database schema.*; if this is not a database of locigraph"):
        Store(path, access=access)


def test_an_interrupt_while_a_connection_is_given_back_is_raised_and_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(error: type[BaseException]) -> None:
        engine = make_engine(str(tmp_path / f"{error.__name__}.sqlite"), "create")
        sa.event.listen(engine, "reset", lambda *_: interrupt(error))
        engine.connect().close()

    def interrupt(error: type[BaseException]) -> None:
        raise error

    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt)
    assert caplog.records == []
    fail(RuntimeError)
    assert len(caplog.records) == 1

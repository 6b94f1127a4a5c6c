"""What is particular to a store on a PostgreSQL server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from locigraph.kg.errors import MissingStoreError, StoreError, StoreUnavailableError
from locigraph.kg.store import Store
from locigraph.kg.store.postgresql import cure_of
from locigraph.kg.types import SpaceId
from tests.databases import places
from tests.fakes import SPACE, make_turns
from tests.servers import postgresql
from tests.servers.processes import open_folder


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    for place in places("postgresql", tmp_path):
        yield place()


@pytest.mark.servers
@pytest.mark.parametrize("access", ["read", "write"])
def test_an_empty_database_is_set_up_by_who_may_create_and_said_to_be_empty_by_others(access: str, url: str) -> None:
    with pytest.raises(MissingStoreError, match="is an empty database; run locigraph build"):
        Store(url, access=access)  # type: ignore[arg-type]
    Store(url).close()
    with Store(url, access=access) as store:  # type: ignore[arg-type]
        assert store.spaces() == []


@pytest.mark.servers
def test_a_reader_cannot_write(url: str) -> None:
    Store(url).close()
    with Store(url, access="read") as store, pytest.raises(StoreError, match="read-only"):
        store.append_turns(make_turns(["hello"]))


@pytest.mark.servers
def test_names_are_sorted_by_code_points_as_with_sqlite(url: str) -> None:
    names = ["Zoe", "ann", "Ann", "äpfel", "_x", "9", "a b", "a-b"]
    with Store(url) as store:
        for name in names:
            store.append_turns(make_turns(["hello"], space=SpaceId(name)))
        assert store.spaces() == sorted(names)


@pytest.mark.servers
def test_a_row_that_is_committed_late_is_not_acknowledged_with_a_later_one(url: str) -> None:
    with Store(url) as store:
        insert = sa.text("INSERT INTO outbox (space, node_key, action) VALUES ('s', :key, 'upsert')")
        with store._write("one") as early:
            early.execute(insert, {"key": 1})  # has the lower number
            with store._write("two") as late:
                late.execute(insert, {"key": 2})
            read = store.read_outbox(limit=10)
            assert [row.node_key for row in read] == [2]
            store.acknowledge_outbox(read)
        assert [row.node_key for row in store.read_outbox(limit=10)] == [1]


@pytest.mark.servers
def test_two_writers_of_one_space_take_turns(url: str) -> None:
    order: list[str] = []
    with Store(url) as store, Store(url) as other:

        def second() -> None:
            begun.set()
            with other._write(SPACE):
                order.append("second")

        begun, thread = threading.Event(), threading.Thread(target=second)
        with store._write(SPACE):
            thread.start()
            assert begun.wait(30)
            thread.join(0.3)  # it waits
            order.append("first")
        thread.join(30)
    assert order == ["first", "second"]


@pytest.mark.servers
def test_more_locks_may_be_held_at_once_than_a_pool_has_connections(url: str) -> None:
    with Store(url) as store, ExitStack() as held:
        for number in range(40):
            held.enter_context(store.held(f"consolidate/{number}"))
        assert store.spaces() == []
        assert store.is_held("consolidate/39")
        assert not store.is_held("consolidate/40")


@pytest.mark.servers
def test_a_change_of_more_spaces_than_a_server_has_locks_for_takes_turns_with_those_of_one(url: str) -> None:
    many = [f"space {number}" for number in range(30_000)]
    with Store(url) as store, Store(url) as other:
        order: list[str] = []

        def second() -> None:
            with other._write(many[7]):
                order.append("second")

        thread = threading.Thread(target=second)
        with store._write(*many):
            thread.start()
            thread.join(0.3)  # it waits
            order.append("first")
        thread.join(30)
    assert order == ["first", "second"]


@pytest.mark.servers
def test_a_server_that_is_killed_and_started_again_has_all_that_was_written_and_costs_one_error_at_most() -> None:
    folder = open_folder()
    server = postgresql.start(folder / "server")
    try:
        with Store(server.create("kept")) as store:
            store.append_turns(make_turns(["hello"]))
            server.kill()
            with pytest.raises(StoreUnavailableError, match="check that the server is running") as raised:
                store.spaces()
            assert "\n" not in str(raised.value)
            server = postgresql.start(folder / "server", port=server.port)
            assert store.spaces() == [SPACE]
            store.append_turns(make_turns(["hello", "again"]))
            assert [turn.text for turn in store.turns(SPACE)] == ["hello", "again"]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("said", "cure"),
    [
        ('FATAL:  password authentication failed for user "u"', "check user and password"),
        ('FATAL:  role "u" does not exist', "check user and password"),
        ('FATAL:  database "d" does not exist', "createdb"),
        ("permission denied for table turns", "grant the user"),
        ("FATAL:  sorry, too many clients already", "max_connections"),
        ("canceling statement due to lock timeout", "another process has been working"),
        ("connection refused", "is running and can be reached"),
        ("failed to resolve host 'h'", "is running and can be reached"),
        ("terminating connection due to administrator command", "is running and can be reached"),
    ],
)
def test_an_error_of_the_server_says_what_to_do(said: str, cure: str) -> None:
    assert cure in (cure_of(said) or "")
    assert cure_of("some other error") is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://u@h/d", "names 'mysql'; a store is an SQLite file, or a PostgreSQL database"),
        ("postgresql+nodriver://u@h/d", "cannot be used"),
        ("postgresql+psycopg://u:secret@127.0.0.1:1/d", "check that the server is running"),
        ("postgresql+psycopg://u:secret@127.0.0.1:PORT/d", "its port is no number"),
    ],
)
def test_a_url_that_leads_nowhere_is_one_line_without_the_password(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as raised:
        Store(url)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)

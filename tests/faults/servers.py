"""A memory on a PostgreSQL and a Milvus server: clients and servers are stopped at any moment, and nothing is lost.

One memory lives through all tries. In each, a client adds or forgets turns, refreshes or asks, until a fault comes: the
client is killed at one of its writing calls, its connections are cut, the disk is full, or a server crashes. Another
client then must find all that was acknowledged and nothing that was forgotten, repeat what was not acknowledged, and
find the indexes equal to the store.
"""

from __future__ import annotations

import random
import secrets
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import sqlalchemy as sa

from locigraph.assembly.search_parts import indexer_of
from locigraph.kg.errors import LocigraphError, UnknownSpaceError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.memory import Memory
from locigraph.retrieval.errors import IndexUnavailableError
from tests.faults import workbench
from tests.faults.children import ChildError, in_child
from tests.faults.cuts import Counter, synced
from tests.scripts.shared_writer import opened
from tests.servers import milvus, postgresql
from tests.servers.milvus import MilvusServer
from tests.servers.postgresql import PostgresServer
from tests.servers.processes import open_folder

_LATER_S = 5
_SPACES = ("harbor", "meadow", "cove")
_MOST = 12  # turns of a space, before it is forgotten
_CALLS = 60  # most actions make fewer writing calls than this
#: Ways in which a try is disturbed, and their weights.
_WAYS = {
    "exit": 4, "kill": 4, "interrupt": 3, "full disk": 3, "cut from the store": 4, "cut from the index": 3,
    "the store crashes": 3, "the index crashes": 0.15,
}  # fmt: skip
_ACTIONS = {"add": 5, "add several": 3, "forget": 4, "forget a space": 1, "refresh": 1, "ask": 2}


class Action(NamedTuple):
    """What the client of a try does."""

    name: str
    space: str
    turns: tuple[str, ...]


@dataclass
class _Truth:
    """What must hold: the turns that are there for certain, and those of which it is unknown, by space."""

    there: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    gone: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


class _Place:
    """The servers, and the memory on them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._of_postgres = open_folder()
        self.postgres: PostgresServer = postgresql.start(self._of_postgres / "server")
        self.milvus: MilvusServer = milvus.start(folder / "milvus")
        self.database = f"faults_{secrets.token_hex(4)}"
        self.store = self.postgres.create(self.database)
        workbench.prepare(folder / "memory")

    def open(self) -> Memory:
        return opened(self._folder / "memory", self.store, self.milvus.uri)

    def crash(self, what: str) -> None:
        """Kill a server, and start it again on the same port."""
        if what == "the store crashes":
            self.postgres.kill()
            self.postgres = postgresql.start(self._of_postgres / "server", port=self.postgres.port)
        else:
            self.milvus.kill()
            self.milvus = milvus.start(self._folder / "milvus", port=self.milvus.port)

    def stop(self) -> None:
        """Stop the servers, and remove their files."""
        self.postgres.stop()
        self.milvus.stop()
        shutil.rmtree(self._of_postgres, ignore_errors=True)


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with an action, a way to disturb it and a moment."""
    randomness, truth, place, number = random.Random(seed), _Truth(), _Place(folder), 0
    try:
        while True:
            number += 1
            action = _drawn(randomness, truth, number)
            way = randomness.choices([*_WAYS], [*_WAYS.values()])[0]
            yield lambda: _check(place, truth, action, way, randomness.randrange(_CALLS) + 1, randomness.random())  # noqa: B023
    finally:
        place.stop()


def _drawn(randomness: random.Random, truth: _Truth, number: int) -> Action:
    space = randomness.choice(_SPACES)
    held = sorted(truth.there[space])
    name = randomness.choices([*_ACTIONS], [*_ACTIONS.values()])[0]
    if len(held) >= _MOST:
        name = "forget a space"
    if name in ("forget", "forget a space", "ask") and len(held) < 3:
        name = "add"
    if name == "forget":
        return Action(name, space, tuple(randomness.sample(held, randomness.randint(1, 2))))
    count = {"add": 1, "add several": randomness.randint(2, 5)}.get(name, 0)
    return Action(name, space, tuple(held if name == "forget a space" else (f"t{number}-{i}" for i in range(count))))


def _check(place: _Place, truth: _Truth, action: Action, way: str, at: int, delay: float) -> None:
    what = f"{action}, {way} at {at}"

    def crash() -> None:
        time.sleep(delay)
        place.crash(way)

    crashing = Thread(target=crash)
    try:
        if way.endswith("crashes"):
            crashing.start()
        ended = in_child(lambda: _disturbed(place, action, way, at))
        if way.endswith("crashes"):
            crashing.join()
        in_child(lambda: _completed(place, truth, action, is_acknowledged=ended is True))
    except ChildError as error:
        later = _repaired(place)
        raise AssertionError(f"{what}: {error}; {later}") from error
    finally:  # also after a failure, which would make all later tries fail
        if action.name.startswith("add"):
            truth.there[action.space] |= {*action.turns}
        elif action.name.startswith("forget"):
            truth.there[action.space] -= {*action.turns}
            truth.gone[action.space] |= {*action.turns}


def _repaired(place: _Place) -> str:
    """What is still wrong with the index some seconds after a failure; it is repaired for the next try."""
    time.sleep(_LATER_S)

    def look() -> str:
        with place.open() as memory:
            found = indexer_of(memory._graph, memory._parts.index(), memory._encoder)
            wrong = [each for each in found.verify() if not each.is_clean]
            memory._parts.require_live().refresh()
            found.rebuild()
            return f"{_LATER_S} s later the index of descriptions has {wrong or 'no differences'}"

    try:
        return str(in_child(look))
    except ChildError as error:
        return f"and later: {error}"


def _disturbed(place: _Place, action: Action, way: str, at: int) -> bool:
    """Do the action, disturbed; returns whether it was acknowledged. The process may be stopped instead."""
    try:
        with place.open() as memory:
            if not way.endswith("crashes"):
                _Disturber(at, way, place).watch(synced(place._folder / "memory"))
            _act(memory, action)
            return True
    except KeyboardInterrupt:
        return False
    except LocigraphError as error:
        if "\n" in str(error):
            raise AssertionError(f"an error of several lines: {error}") from error
        return False


class _Disturber(Counter):
    """Counts writing calls, and at one of them stops the process or cuts its connections."""

    def __init__(self, at: int, way: str, place: _Place) -> None:
        super().__init__(at, way)
        self._place = place

    def __call__(self, no_space: Exception) -> None:
        super().__call__(no_space)
        if self.calls != self._at:
            return
        if self._way == "cut from the store":
            engine = sa.create_engine(self._place.postgres.url("postgres"), isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.exec_driver_sql(
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self._place.database}'"
                )
            engine.dispose()
        if self._way == "cut from the index":
            raise IndexUnavailableError("the connection was reset")


def _act(memory: Memory, action: Action) -> None:
    space, turns = action.space, action.turns
    if action.name.startswith("add"):
        memory.add_many([_said(space, turn) for turn in turns])
        memory.recall("What did I see?", space=space, top_k=5)
    elif action.name == "forget":
        memory.forget(space=space, turn_ids=list(turns))
    elif action.name == "forget a space":
        memory.forget(space=space, whole_space=True)
    elif action.name == "refresh":
        if memory.spaces():
            memory._parts.require_live().refresh()
    else:
        memory.recall("What did I see?", space=space, top_k=5)


def _said(space: str, turn: str) -> dict[str, str]:
    return {
        "space": space, "session": f"s{turn[1]}", "speaker": "Ann", "turn_id": turn,
        "text": f"I saw whale {turn} near the lighthouse of {space}.",
    }  # fmt: skip


def _completed(place: _Place, truth: _Truth, action: Action, *, is_acknowledged: bool) -> None:
    """Repeat an action that was not acknowledged, and compare the memory with what must hold."""
    with place.open() as memory:
        graph, space = memory._graph, SpaceId(action.space)
        _compare(graph, truth, action, is_acknowledged=is_acknowledged)
        if not is_acknowledged:
            with suppress(UnknownSpaceError):  # a space that was forgotten before the disturbance
                _act(memory, action)
        _compare(graph, truth, action, is_acknowledged=True)
        memory.flush()
        if space in graph.spaces():
            held = {str(turn.turn_id) for turn in graph.turns(space)}
            found = memory.recall("What did I see?", space=space, top_k=200, fold=None)
            assert found.strategy == "v2", found.notes
            assert {str(turn) for hit in found for turn in hit.turn_ids} == held
        for each in graph.spaces():  # v1 writes again what the index has lost in a crash
            assert not memory.recall("whale", space=each, strategy="v1", top_k=1).notes
        differences = indexer_of(graph, memory._parts.index(), memory._encoder).verify()
        live = memory._parts.live()
        differences += [] if live is None else live.verify()
        assert all(each.is_clean for each in differences), differences
        assert graph.faults() == []
        assert graph.misplaced() == {}


def _compare(graph: Store, truth: _Truth, action: Action, *, is_acknowledged: bool) -> None:
    known = {*graph.spaces()}
    for space in _SPACES:
        held = {str(turn.turn_id) for turn in graph.turns(SpaceId(space))} if space in known else set()
        certain, open_ = {*truth.there[space]}, set[str]()
        if space == action.space and action.turns:
            changed = {*action.turns}
            certain, open_ = certain - changed, set() if is_acknowledged else changed
            if is_acknowledged and action.name.startswith("add"):
                certain |= changed
        assert certain <= held <= certain | open_, f"{space}: {sorted(held ^ certain)}, unknown {sorted(open_)}"
        assert not held & truth.gone[space]

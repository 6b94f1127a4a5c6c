"""Reads: tenants with hostile names and similar texts search one memory, and none may get a row of another tenant.

They search in every available way: the public API, HTTP and MCP with keys of their own, and the command line. They use
every strategy of ``recall``, with and without filters, and ask for so many memories that all of a space are returned.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from locigraph.assembly import opening
from locigraph.assembly.settings import EncoderSettings
from locigraph.assembly.strategies import recalled
from locigraph.kg.types import SpaceId
from locigraph.memory import Memory
from locigraph.scripts import cli
from locigraph.serving.application import application
from locigraph.serving.keys import Caller, Keyring
from tests.fakes_graph import small_checkpoint
from tests.faults.children import in_child
from tests.faults.tenants import hostile_name
from tests.faults.workbench import ADAPTED, AdaptedEncoder

_TURNS = 100
#: A letter for each tenant, which occurs in the IDs of its turns and in words of some turns.
_LETTERS = "kqz"
#: The agent to which all spaces belong, although a key can use only the spaces of its own tenant.
_AGENT = "helper"
_QUESTIONS = ("Who repaired the red boat?", "What did Ann paint in May 2024?", "bike", "Why did Ben sell his house?")
_THINGS = ("boat", "bike", "house", "garden", "canoe", "piano", "kite", "clock")
_DEEDS = ("painted", "repaired", "sold", "bought", "lost", "found", "cleaned")
_RECALLED = [*recalled()]
_AT_ONCE, _BY_WORDS, _USES = 12, 1, 400
_ALL = 1_000
#: Filters, and which turns satisfy them, by number.
_FILTERS: Mapping[str, tuple[Mapping[str, Any] | None, Callable[[int], bool]]] = {
    "none": (None, lambda number: True),
    "exclusion": ({"thing": {"$ne": "boat"}}, lambda number: number % len(_THINGS) != 0),
    "range": ({"number": {"$gte": 10, "$lt": 90}}, lambda number: 10 <= number < 90),
    "speaker": ({"$speaker": "Ann"}, lambda number: number % 2 == 0),
    "either": (
        {"$or": [{"is_own": True}, {"$not": {"number": {"$in": [1, 2, 4]}}}]},
        lambda number: number not in (1, 2, 4),
    ),
    "session": ({"$session": {"$nin": ["s0", "s4"]}, "colour": {"$exists": False}}, lambda number: 20 <= number < 80),
}


@dataclass(frozen=True)
class _Asked:
    """A question of a tenant."""

    tenant: int
    question: str
    strategy: str
    how: str
    fold: float | None
    filter: str


@dataclass(frozen=True)
class _Place:
    """A memory, with the names and keys of its tenants."""

    folder: Path
    names: tuple[SpaceId, ...]

    @property
    def store(self) -> str:
        return str(self.folder / "memory.sqlite")

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def key(self, tenant: int) -> str:
        return f"key-of-tenant-{_LETTERS[tenant]}"

    def opened(self) -> Memory:
        opening.text_encoder = lambda settings: AdaptedEncoder(self.folder / "cache.sqlite")
        return Memory.open(self.store, encoder=EncoderSettings(adapter="fake"), checkpoint=self.checkpoint)

    def own(self, tenant: int, how: str) -> dict[str, Any]:
        """The spaces to search: the tenant's space, as a name or as a list, or all spaces of its user."""
        name = self.names[tenant]
        asked: dict[str, dict[str, Any]] = {"space": {"space": name}, "list": {"space": [name]}, "user": {"user": name}}
        return asked[how]

    def foreign(self, tenant: int, said: str) -> list[str]:
        """Turns and words of other tenants in a text."""
        others = "".join(_LETTERS[each] for each in range(len(self.names)) if each != tenant)
        return re.findall(rf"\b[{others}]n\d+\b|\bonly[{others}]\b", said)


def tries(seed: int, folder: Path) -> Iterator[Callable[[], int]]:
    """Endless tries, each of which returns the number of rows that it has read."""
    randomness = random.Random(seed)
    number = 0
    while True:
        names: list[SpaceId] = []
        while len(names) < len(_LETTERS):
            name = hostile_name(randomness)
            # In a list of keys, a trailing asterisk stands for all names with that prefix, and on a command line null
            # leaves an option open.
            names += [name] if name not in (*names, "null") and not name.endswith("*") else []
        number += 1
        place = _Place(folder / str(number), tuple(names))
        in_child(partial(_made, place))
        for _ in range(_USES // _AT_ONCE):
            asked = [_drawn(randomness) for _ in range(_AT_ONCE)]
            for found in in_child(partial(_reads, place, asked)):
                yield partial(_told, found)


def _drawn(randomness: random.Random) -> _Asked:
    return _Asked(
        randomness.randrange(len(_LETTERS)),
        randomness.choice(_QUESTIONS),
        randomness.choice(_RECALLED),
        randomness.choice(("space", "list", "user")),
        randomness.choice((None, None, 0.9)),
        randomness.choice([*_FILTERS]),
    )


def _told(found: int | str) -> int:
    assert isinstance(found, int), found
    return found


def _made(place: _Place) -> None:
    place.folder.mkdir()
    small_checkpoint(text_encoder=ADAPTED).save(Path(place.checkpoint))
    with place.opened() as memory:
        for tenant, name in enumerate(place.names):
            memory.add_many(_turn(tenant, name, number) for number in range(_TURNS))


def _turn(tenant: int, name: str, number: int) -> dict[str, Any]:
    """A turn; those of all tenants say the same, except that every third contains a word of its own tenant."""
    thing, deed = _THINGS[number % len(_THINGS)], _DEEDS[number % len(_DEEDS)]
    own = f" only{_LETTERS[tenant]}" if number % 3 == 0 else ""
    return {
        "space": name, "user": name, "agent": _AGENT, "session": f"s{number // 20}",
        "speaker": ("Ann", "Ben")[number % 2], "turn_id": f"{_LETTERS[tenant]}n{number}",
        "text": f"I {deed} the red {thing} number {number} in Porto{own}.",
        "spoken_at": f"2024-{1 + number // 20:02}-{1 + number % 20:02}T10:00",
        "metadata": {"number": number, "thing": thing, "is_own": number % 3 == 0},
    }  # fmt: skip


def _reads(place: _Place, asked: list[_Asked]) -> list[int | str]:
    """The number of rows that each question has read, or its error."""
    found: list[int | str] = []

    def attempt(way: Callable[[_Asked], int], each: _Asked) -> None:
        try:
            found.append(way(each))
        except Exception:
            found.append(f"{way.__name__} {each} of {place.names}: {traceback.format_exc()[-1_500:]}")

    ways = _Ways(place)
    place.opened().close()  # sets the text encoder
    for each in asked[:_BY_WORDS]:
        attempt(ways.by_words, each)
    ways.memory = place.opened()
    keys = Keyring({place.key(i): Caller(f"tenant {i}", (name,)) for i, name in enumerate(place.names)})
    app = application(ways.memory, keys=keys, hosts=(), requests_per_minute=10**9, max_request_bytes=10**6)
    with TestClient(app) as ways.http:
        for number, each in enumerate(asked[_BY_WORDS:]):
            way = (ways.in_process, ways.by_http, ways.by_mcp, ways.in_process, ways.by_explaining, ways.by_another)
            attempt(way[number % len(way)], each)
    return found


class _Ways:
    """The ways to search a memory; each checks that no row is of another tenant, and returns the number of rows."""

    memory: Memory
    http: TestClient

    def __init__(self, place: _Place) -> None:
        self._place = place

    def by_words(self, asked: _Asked) -> int:
        """On the command line: search a space or a user with ``recall``, then list the facts with ``show``."""
        place, name = self._place, self._place.names[asked.tenant]
        shared = [f"--store={place.store}", "--encoder.adapter=fake", f"--checkpoint={place.checkpoint}"]
        whose = "user" if asked.how == "user" else "space"
        told = ["--top_k=1000", f"--strategy={asked.strategy}", f"--fold={asked.fold or 'null'}"]
        told.append(f"--filter={json.dumps(_FILTERS[asked.filter][0])}")
        said = _said(["recall", asked.question, f"--{whose}={name}", *shared, *told])
        said += _said(["show", f"--space={name}", f"--store={place.store}", "--json=true"])
        assert not place.foreign(asked.tenant, said), place.foreign(asked.tenant, said)
        return len(re.findall(r"^ *\d+  \S+  \w+ .*turns |^\{", said, re.MULTILINE))

    def in_process(self, asked: _Asked) -> int:
        """With the public API."""
        found = self.memory.recall(
            asked.question, top_k=_ALL, strategy=asked.strategy, fold=asked.fold, filter=_FILTERS[asked.filter][0],
            **self._place.own(asked.tenant, asked.how),
        )  # fmt: skip
        return self._own(asked, [hit.as_json() for hit in found])

    def by_http(self, asked: _Asked) -> int:
        """Over HTTP with a key: search a space, or all spaces of the agent to which every tenant's space belongs."""
        answer = self.http.post("/v1/recall", json=self._question(asked), headers=self._bearer(asked))
        assert answer.status_code == 200, answer.text[:500]
        return self._own(asked, answer.json()["hits"])

    def by_mcp(self, asked: _Asked) -> int:
        """The same with the MCP tool."""
        answer = self._called(asked, "recall", self._question(asked))
        return self._own(asked, answer["hits"])

    def by_explaining(self, asked: _Asked) -> int:
        """With the MCP tools that explain hits, tell what is known about somebody, and list the times of turns."""
        name = self._place.names[asked.tenant]
        found = self._called(asked, "explain", {"space": name, "question": asked.question, "top_k": 4})["turns"]
        known = self._called(asked, "profile", {"space": name, "budget_tokens": 100_000})
        said = json.dumps([found, known], ensure_ascii=False)
        assert not self._place.foreign(asked.tenant, said), self._place.foreign(asked.tenant, said)
        return len(found) + len(known["statements"]) + len(self._called(asked, "times", {"space": name})["times"])

    def by_another(self, asked: _Asked) -> int:
        """With the key of another tenant, which is refused."""
        other = replace(asked, tenant=(asked.tenant + 1) % len(self._place.names))
        for strategy in (asked.strategy, None):
            question = {"space": self._place.names[asked.tenant], "question": asked.question, "strategy": strategy}
            answer = self.http.post("/v1/recall", json=question, headers=self._bearer(other))
            assert answer.status_code == 403, answer.text[:500]
            assert not self._place.foreign(other.tenant, answer.text), answer.text[:500]
        spaces = self.http.get("/v1/spaces", headers=self._bearer(other)).json()["spaces"]
        assert spaces == [self._place.names[other.tenant]], spaces
        return len(spaces)

    def _question(self, asked: _Asked) -> dict[str, Any]:
        whose = {"agent": _AGENT} if asked.how == "list" else self._place.own(asked.tenant, asked.how)
        return {
            "question": asked.question, "top_k": _ALL, "strategy": asked.strategy, "fold": asked.fold,
            "filter": _FILTERS[asked.filter][0], **whose,
        }  # fmt: skip

    def _bearer(self, asked: _Asked) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._place.key(asked.tenant)}"}

    def _called(self, asked: _Asked, tool: str, arguments: Mapping[str, Any]) -> Any:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        headers = self._bearer(asked) | {"Accept": "application/json, text/event-stream"}
        answer = self.http.post("/mcp", json=call, headers=headers)
        assert answer.status_code == 200, answer.text[:500]
        result = answer.json()["result"]
        assert not result["isError"], result
        return result["structuredContent"]

    def _own(self, asked: _Asked, hits: list[dict[str, Any]]) -> int:
        """The number of hits, after a check that all of them are of the tenant, and satisfy the filter."""
        name, letter = self._place.names[asked.tenant], _LETTERS[asked.tenant]
        # BM25 finds nothing where no turn that satisfies the filter has a word of the question.
        assert hits or (asked.strategy == "bm25" and asked.filter != "none")
        for hit in hits:
            assert hit["space"] == name, hit
            assert all(turn.startswith(f"{letter}n") for turn in (*hit["turn_ids"], *hit["same"])), hit
            assert not hit["elsewhere"], hit
            assert all(_FILTERS[asked.filter][1](int(turn.partition("n")[2])) for turn in hit["turn_ids"]), hit
            assert not self._place.foreign(asked.tenant, hit["text"]), hit
        return len(hits)


def _said(words: list[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        cli.main(words)
    return out.getvalue()

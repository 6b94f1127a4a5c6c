"""Several conversations at a time: the same graph, the same limits, and clean ends."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from locigraph.assembly.graphs import GraphWriter
from locigraph.consolidation.cassette import Cassette
from locigraph.consolidation.errors import LanguageModelError, LimitReachedError
from locigraph.consolidation.extractors.language_model import LLMExtractor
from locigraph.consolidation.ledger import Ledger
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.kg.corpora import load_corpus
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, Turn, TurnId, TurnState
from tests.consolidation.stub_server import Stub, extracted, stub_server
from tests.fakes import FakeEncoder
from tests.scripts.test_llm_build import graph_of

TURNS = [turn for conversation in load_corpus("jsonl", "sample").conversations[:6] for turn in conversation.turns[:8]]
SPACES = list(dict.fromkeys(turn.space for turn in TURNS))


def build(store: Store, url: str, folder: Path, *, concurrency: int = 6, ledger: Ledger | None = None) -> list[SpaceId]:
    endpoint = Endpoint(url, "m", timeout_s=60, deadline_s=0.01, concurrency=concurrency)
    cassette = Cassette(folder / "replies.sqlite")
    extractor = LLMExtractor(*(ChatClient(endpoint, cassette, ledger or Ledger()) for _ in range(2)))
    writer = GraphWriter(store, extractor, cast(Any, FakeEncoder(512)))
    return writer.add(TURNS)


def graphs(store: Store) -> list[Any]:
    return [graph_of(store, space) for space in SPACES]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The graphs that one conversation after another makes."""
    folder = tmp_path_factory.mktemp("one")
    with stub_server(Stub(extracted)) as stub, Store(folder / "graph.sqlite") as store:
        build(store, stub.url, folder, concurrency=1)
        return graphs(store)


class Watched:
    """Answers, and sees how many conversations ask at a time, and whether each one's turns come in order."""

    def __init__(self, *, wait_for: int = 1) -> None:
        self.orders: dict[str, list[str]] = {space: [] for space in SPACES}
        self._said = {(turn.speaker, turn.text): turn for turn in TURNS}
        self._together = threading.Barrier(wait_for)
        self._first = {turns_of(space)[0].turn_id for space in SPACES}

    def __call__(self, request: dict[str, Any]) -> Any:
        reply = extracted(request)
        if "words" not in reply:
            said = reply_turn(request)
            turn = self._said[said["speaker"], said["said"]]
            self.orders[turn.space].append(turn.turn_id)
            if turn.turn_id in self._first:
                self._together.wait(10)
        return reply


def reply_turn(request: dict[str, Any]) -> dict[str, str]:
    turn: dict[str, str] = json.loads(request["messages"][1]["content"])["turn"]
    return turn


def turns_of(space: SpaceId) -> Sequence[Turn]:
    return [turn for turn in TURNS if turn.space == space]


@pytest.mark.long
def test_conversations_go_side_by_side_their_turns_in_order_and_make_the_same_graphs(
    expected: list[Any], tmp_path: Path
) -> None:
    watched = Watched(wait_for=6)  # no first turn is answered before all six are asked about
    with stub_server(Stub(watched)) as stub, Store(tmp_path / "graph.sqlite") as store:
        assert build(store, stub.url, tmp_path) == SPACES
        assert graphs(store) == expected
    assert watched.orders == {space: [turn.turn_id for turn in turns_of(space)] for space in SPACES}


@pytest.mark.long
def test_a_limit_is_kept_to_the_last_reply_and_a_higher_one_ends_in_the_same_graphs(
    expected: list[Any], tmp_path: Path
) -> None:
    most = 9_000
    with stub_server(Stub(extracted)) as stub, Store(tmp_path / "graph.sqlite") as store:
        ledger = Ledger(max_tokens=most)
        with pytest.raises(LimitReachedError, match="stopped by max_tokens 9,000"):
            build(store, stub.url, tmp_path, ledger=ledger)
        assert most / 2 < ledger.total.tokens <= most + 20  # the length of a reply
        assert ledger.total.tokens == 120 * len(stub.requests)
        states = {turn.turn_id for space in SPACES for turn in store.turns(space, state=TurnState.FAILED)}
        assert states == set()
        build(store, stub.url, tmp_path)
        assert graphs(store) == expected


@pytest.mark.long
def test_ctrl_c_waits_for_replies_under_way_asks_nothing_more_and_the_build_goes_on(
    expected: list[Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    number = itertools.count()
    is_heard = threading.Event()

    def heard(*_: object) -> None:
        is_heard.set()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, heard)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    def interrupting(request: dict[str, Any]) -> Any:
        at = next(number)
        if at == 12:
            os.kill(os.getpid(), signal.SIGINT)
        if at >= 12:  # on a busy machine the main thread may hear of it late, and act on it later
            assert is_heard.wait(60)
            time.sleep(1.0)
        return extracted(request)

    with Store(tmp_path / "graph.sqlite") as store:
        with stub_server(Stub(interrupting)) as stub:
            with pytest.raises(KeyboardInterrupt):
                build(store, stub.url, tmp_path)
            assert len(stub.requests) < 12 + 2 * 6 < len(TURNS)
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("consolidate")]
        done = [len(store.turns(space, state=TurnState.DONE)) for space in SPACES]
        assert 0 < sum(done) < len(TURNS)
        with stub_server(Stub(extracted)) as again:
            build(store, again.url, tmp_path)
            kept = len(stub.requests)
            assert len(again.requests) + kept <= 2 * len(TURNS)  # what was paid for is not asked again
        assert graphs(store) == expected


@pytest.mark.long
def test_an_outage_in_one_conversation_stops_all_with_its_reason_and_loses_nothing(
    expected: list[Any], tmp_path: Path
) -> None:
    with Store(tmp_path / "graph.sqlite") as store:
        with (
            stub_server(Stub(extracted, rate=0.1, faults=["503"])) as stub,
            pytest.raises(LanguageModelError, match="fault 503"),
        ):
            build(store, stub.url, tmp_path)
        assert sum(len(store.turns(space, state=TurnState.FAILED)) for space in SPACES) == 0
        with stub_server(Stub(extracted)) as stub:
            build(store, stub.url, tmp_path)
        assert graphs(store) == expected


def test_for_a_late_turn_of_more_than_four_no_turn_is_asked_of_a_language_model_again(tmp_path: Path) -> None:
    late, *others = (turn for turn in TURNS if turn.space == SPACES[0])
    late = replace(late, session_id="earlier", spoken_at=datetime(2000, 1, 1, tzinfo=UTC), turn_id=TurnId("late"))
    asked: list[str] = []

    def answer(request: dict[str, Any]) -> Any:
        reply = extracted(request)
        if "words" not in reply:
            asked.append(reply_turn(request)["said"])
        return reply

    for count, expected in ((4, 5), (5, 1)):
        with stub_server(Stub(answer)) as stub, Store(tmp_path / f"{count}.sqlite") as store:
            endpoint = Endpoint(stub.url, "m", timeout_s=60, deadline_s=0.01)
            cassette = Cassette(tmp_path / f"replies-{count}.sqlite")
            extractor = LLMExtractor(*(ChatClient(endpoint, cassette, Ledger()) for _ in range(2)))
            writer = GraphWriter(store, extractor, cast(Any, FakeEncoder(512)), inserts_late=True)
            writer.add(others[:count])
            asked.clear()
            writer.add([late])
            assert len(asked) == expected
            assert store.turn_counts(SPACES[0]) == {TurnState.DONE: count + 1}
            assert store.faults() == []

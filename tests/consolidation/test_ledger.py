from __future__ import annotations

import threading

import pytest

from locigraph.consolidation.errors import LimitReachedError, StoppedError
from locigraph.consolidation.ledger import Ledger, Prices, Purpose, tokens_of
from locigraph.kg.counts import Spent
from locigraph.kg.types import SpaceId, TurnId
from tests.fakes import OTHER_SPACE, SPACE

CHEAP = Prices(read=1.0, written=10.0)


class Memory:
    """Accounts in memory."""

    def __init__(self) -> None:
        self.held: dict[SpaceId, dict[tuple[str, str], Spent]] = {}

    def spent_by_stage(self) -> dict[str, Spent]:
        sums: dict[str, Spent] = {}
        for page in self.held.values():
            for (_, stage), spent in page.items():
                sums[stage] = sums.get(stage, Spent()) + spent
        return sums

    def add_spent(self, space: SpaceId, turn_id: str, stage: str, spent: Spent) -> None:
        page = self.held.setdefault(space, {})
        page[turn_id, stage] = page.get((turn_id, stage), Spent()) + spent


def purpose(stage: str, turn: str) -> Purpose:
    return Purpose(stage, SPACE, TurnId(turn))


def test_tokens_and_cost_are_counted_by_stage_by_turn_and_in_all() -> None:
    ledger, memory = Ledger(), Memory()
    ledger.bind(memory)
    ledger.count(purpose("architect", "t0"), CHEAP.spent(1_000, 100))  # 0.001 + 0.001
    ledger.count(purpose("architect", "t1"), CHEAP.spent(2_000, 0))
    ledger.count(purpose("scribe", "t1"), Prices().spent(500, 50))
    assert ledger.by_stage() == {"architect": Spent(2, 3_000, 100, 0.004), "scribe": Spent(1, 500, 50, 0.0)}
    assert memory.held[SPACE] == {
        ("t0", "architect"): Spent(1, 1_000, 100, 0.002),
        ("t1", "architect"): Spent(1, 2_000, 0, 0.002),
        ("t1", "scribe"): Spent(1, 500, 50, 0.0),
    }
    assert ledger.total == Spent(3, 3_500, 150, 0.004)
    assert ledger.lines() == [
        "architect: 2 calls, 3,000 tokens read, 100 written, cost 0.0040",
        "scribe: 1 call, 500 tokens read, 50 written",
        "in all: 3 calls, 3,500 tokens read, 150 written, cost 0.0040",
    ]


def test_what_others_have_spent_meanwhile_counts_from_the_next_start_on() -> None:
    memory = Memory()
    ledgers = [Ledger(max_tokens=1_000), Ledger(max_tokens=1_000)]
    for ledger in ledgers:
        ledger.bind(memory)
        ledger.count(Purpose("judge"), Prices().spent(100, 0))  # of no space, so that only this ledger knows it
        ledger.count(purpose("architect", "t0"), Prices().spent(300, 0))
    for ledger in ledgers:
        ledger.bind(memory)
        assert ledger.total.tokens == 700
        with pytest.raises(LimitReachedError):
            ledger.check(301, Prices())


def test_what_came_of_replies_is_counted_like_what_they_cost() -> None:
    ledger, memory = Ledger(), Memory()
    ledger.bind(memory)
    for more in (Spent(invalid=1), Spent(repaired=1), Spent(invalid=2, failed_requests=1)):
        ledger.count(purpose("scribe", "t1"), more)
    assert ledger.by_stage() == memory.spent_by_stage() == {"scribe": Spent(invalid=3, repaired=1, failed_requests=1)}
    told = "0 calls, 0 tokens read, 0 written, 3 invalid, 1 repaired, 1 given up"
    assert str(memory.held[SPACE]["t1", "scribe"]) == told


def test_what_was_spent_is_remembered_with_the_space_and_counts_against_later_limits() -> None:
    memory = Memory()
    first = Ledger()
    first.bind(memory)
    first.count(purpose("architect", "t0"), CHEAP.spent(500, 100))
    first.count(Purpose("scribe", OTHER_SPACE), CHEAP.spent(400, 0))
    assert list(memory.held) == [SPACE, OTHER_SPACE]
    second = Ledger(max_tokens=1_200)
    second.bind(memory)
    second.bind(memory)
    assert second.total == first.total  # counted once
    second.check(200, CHEAP)
    with pytest.raises(LimitReachedError, match=r"stopped by max_tokens 1,200: so far 2 calls, .* a higher max_tokens"):
        second.check(201, CHEAP)
    assert LimitReachedError.exit_code == 3


def test_a_limit_of_cost_needs_no_limit_of_tokens() -> None:
    ledger = Ledger(max_cost=0.002)
    ledger.check(2_000, CHEAP)
    with pytest.raises(LimitReachedError, match="stopped by max_cost"):
        ledger.check(2_001, CHEAP)


def test_of_many_requests_at_a_time_a_limit_lets_through_what_it_would_one_after_another() -> None:
    ledger = Ledger(max_tokens=1_000)
    asked = threading.Barrier(8)
    refused: list[str] = []

    def ask(number: int) -> None:
        asked.wait()
        for _ in range(4):
            try:
                with ledger.request(90, 200, Prices()):  # 200 is the most; the reply has 10
                    ledger.count(purpose("architect", f"t{number}"), Prices().spent(90, 10))
            except LimitReachedError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.total == Spent(10, 900, 100)
    assert len(refused) == 32 - 10


def test_a_request_waits_for_others_that_may_use_up_the_limit_and_is_refused_when_they_did() -> None:
    ledger = Ledger(max_tokens=500)
    found: list[str] = []

    def ask() -> None:
        try:
            with ledger.request(100, 100, Prices()):
                found.append("asked")
        except LimitReachedError:
            found.append("refused")

    with ledger.request(100, 300, Prices()):
        waiting = threading.Thread(target=ask)
        waiting.start()
        waiting.join(0.05)
        assert found == []
        ledger.count(purpose("architect", "t0"), Prices().spent(100, 310))
    waiting.join()
    assert found == ["refused"]


def test_a_stopped_ledger_lets_no_request_begin_and_wakes_those_that_wait() -> None:
    ledger = Ledger()
    ended: list[str] = []

    def pause() -> None:
        try:
            ledger.pause(60)
        except StoppedError as error:
            ended.append(str(error))

    waiting = threading.Thread(target=pause)
    waiting.start()
    ledger.stop()
    waiting.join(10)
    assert ended == ["no more requests are sent, since the run was stopped; run again to continue"]
    with pytest.raises(StoppedError), ledger.request(1, 1, Prices()):
        pass
    ledger.bind(Memory())
    with ledger.request(1, 1, Prices()):
        pass


def test_a_text_has_about_a_token_for_four_characters_and_at_least_one() -> None:
    assert [tokens_of("x" * size) for size in (0, 3, 4, 8)] == [1, 1, 2, 3]

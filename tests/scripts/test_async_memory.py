"""The public API for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from inspect import signature
from pathlib import Path
from threading import Event
from threading import enumerate as threads
from time import monotonic
from typing import Any

import pytest

from locigraph import AsyncMemory, Memory
from locigraph.kg.errors import LocigraphError, UnknownSpaceError
from locigraph.memory import async_memory
from tests.scripts.test_memory import SALE


def opened(place: Path) -> AsyncMemory:
    return AsyncMemory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint"))


def test_what_is_awaited_is_what_memory_does(place: Path) -> None:
    async def work() -> None:
        async with opened(place) as memory:
            said = await memory.add(**SALE)
            assert [hit.turn_ids for hit in await memory.recall("bike", space="ana")] == [(said,)]
            assert await memory.spaces() == ["ana"]
            assert [found.turn_id for found in await memory.explain("bike", space="ana")] == [said]
            await memory.forget(space="ana", turn_ids=[said])
            with pytest.raises(UnknownSpaceError):  # nothing is left of it
                await memory.recall("bike", space="ana")

    asyncio.run(work())


def test_every_public_method_of_memory_can_be_awaited() -> None:
    others = {"open", "close", "waits_for_models", "redacts", "files", "adding"}  # the last two are for servers
    ours = {name for name in vars(Memory) if not name.startswith("_")} - others
    assert {name for name in ours if signature(getattr(AsyncMemory, name)) != signature(getattr(Memory, name))} == set()


def test_a_question_waits_for_no_two_additions(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end, add = Event(), Event(), Memory.add

    def slowly(memory: Memory, /, **turn: Any) -> Any:
        begun.set()
        assert may_end.wait(60)
        return add(memory, **turn)

    async def work() -> None:
        async with opened(place) as memory:
            await memory.add(**SALE)
            monkeypatch.setattr(AsyncMemory, "add", async_memory._awaited(slowly, changes=True))
            adding = [asyncio.create_task(memory.add(**SALE | {"space": name})) for name in ("bo", "cy", "di")]
            while not begun.is_set():
                await asyncio.sleep(0.01)
            assert await memory.recall("bike", space="ana")
            may_end.set()
            await asyncio.gather(*adding)
            assert await memory.spaces() == ["ana", "bo", "cy", "di"]

    asyncio.run(work())


def test_changes_that_wait_are_made_before_the_memory_is_closed(place: Path) -> None:
    async def work() -> None:
        async with opened(place) as memory:
            adding = [asyncio.create_task(memory.add(**SALE | {"turn_id": f"t{number}"})) for number in range(8)]
            await asyncio.sleep(0)
        assert await asyncio.gather(*adding) == [f"t{number}" for number in range(8)]

    asyncio.run(work())


def test_many_calls_at_once_are_all_answered(place: Path) -> None:
    async def work() -> None:
        async with opened(place) as memory:
            await asyncio.gather(*(memory.add(**SALE | {"turn_id": f"t{number}"}) for number in range(12)))
            found = await asyncio.gather(*(memory.recall("bike", space="ana", top_k=20, fold=None) for _ in range(12)))
            assert [len(hits) for hits in found] == [12] * 12

    asyncio.run(work())


def test_the_event_loop_goes_on_while_the_memory_works(place: Path) -> None:
    going, done = Event(), Event()

    def slow(memory: Memory) -> None:
        going.set()
        assert done.wait(10)

    async def work() -> None:
        async with opened(place) as memory:
            task = asyncio.create_task(memory.call(slow))
            while not going.is_set():
                await asyncio.sleep(0)
            done.set()  # never reached if the loop waited for the memory
            await task

    asyncio.run(work())


def test_a_memory_may_be_closed_within_its_block(place: Path) -> None:
    async def work() -> None:
        async with opened(place) as memory:
            await memory.add(**SALE)
            await memory.close()
        with pytest.raises(LocigraphError, match=r"async with AsyncMemory\.open"):
            await memory.spaces()

    asyncio.run(work())


def test_a_block_that_has_ended_can_be_entered_again(place: Path) -> None:
    async def work() -> None:
        memory = opened(place)
        async with memory:
            said = await memory.add(**SALE)
        async with memory:
            assert [hit.turn_ids for hit in await memory.recall("bike", space="ana")] == [(said,)]

    asyncio.run(work())


def is_closed(memory: Memory) -> bool:
    try:
        memory.spaces()
    except LocigraphError:
        return True
    return False


def test_a_memory_whose_opening_is_cancelled_does_not_stay_open(place: Path) -> None:
    going, told, held = Event(), Event(), list[Memory]()

    def slowly() -> Memory:
        going.set()
        assert told.wait(10)
        held.append(Memory.open(place / "memory.sqlite", checkpoint=str(place / "checkpoint")))
        return held[0]

    async def enter() -> None:
        async with AsyncMemory(slowly):
            raise AssertionError("its opening was cancelled")

    async def work() -> None:
        task = asyncio.create_task(enter())
        while not going.is_set():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        told.set()
        deadline = monotonic() + 10
        while not (held and is_closed(held[0])):
            assert monotonic() < deadline
            await asyncio.sleep(0.01)
        async with opened(place) as memory:
            assert await memory.spaces() == []

    asyncio.run(work())


def test_a_memory_is_closed_though_nobody_waits_for_it_any_longer(place: Path) -> None:
    async def work() -> None:
        memory = await opened(place).__aenter__()
        may_end = Event()
        working = asyncio.create_task(memory.call(lambda _: may_end.wait(10), changes=True))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(memory.close(), 0.05)
        closing, entering = asyncio.create_task(memory.close()), asyncio.create_task(memory.__aenter__())
        await asyncio.sleep(0.05)
        assert not closing.done()
        assert not entering.done()
        may_end.set()
        assert await working
        await closing
        again = await entering
        assert await again.spaces() == []
        await again.close()

    asyncio.run(work())


def test_a_memory_that_cannot_be_opened_leaves_no_threads() -> None:
    def fail() -> Memory:
        raise LocigraphError("no such store")

    async def enter() -> None:
        async with AsyncMemory(fail):
            raise AssertionError("it was not opened")

    before = set(threads())
    with pytest.raises(LocigraphError, match="no such store"):
        asyncio.run(enter())
    for thread in set(threads()) - before:
        thread.join(10)
    assert not set(threads()) - before


@pytest.mark.parametrize("ask", [lambda memory: memory.spaces(), lambda memory: memory.recall("bike", space="ana")])
def test_a_memory_that_is_not_open_says_how_to_open_it(
    place: Path, ask: Callable[[AsyncMemory], Coroutine[Any, Any, object]]
) -> None:
    with pytest.raises(LocigraphError, match=r"async with AsyncMemory\.open"):
        asyncio.run(ask(opened(place)))

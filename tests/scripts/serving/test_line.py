from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from locigraph.scripts.async_memory import AsyncMemory
from locigraph.scripts.memory import Memory
from locigraph.scripts.serving.line import Line


class Held:
    """In place of a memory: each call waits until the first one may go on."""

    def __init__(self) -> None:
        self.may_go = asyncio.Event()

    async def call(self, function: Callable[[Memory], Any]) -> Any:
        await self.may_go.wait()
        return function(cast(Memory, None))


def asked(*requests: str, cancelled: str = "") -> tuple[list[str], list[Any]]:
    """Order in which requests such as ``add one 2`` (space one, the second) are done, and what comes back."""
    done: list[str] = []

    def work(name: str) -> Callable[[Memory], str]:
        def finish(_: Memory) -> str:
            if name.startswith("fail"):
                raise ValueError(name)
            done.append(name)
            return name

        return finish

    async def run() -> list[Any]:
        memory = Held()
        line = Line(cast(AsyncMemory, memory), groups=1)
        calls = [
            asyncio.create_task(line.call(work(each), about=each.split()[1], changes=each.startswith("add")))
            for each in requests
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for each, call in zip(requests, calls, strict=True):
            if each == cancelled:
                call.cancel()
        memory.may_go.set()
        return await asyncio.gather(*calls, return_exceptions=True)

    return done, asyncio.run(run())


def test_what_waits_for_a_space_is_done_together_and_what_changes_it_first() -> None:
    requests = ["ask one 1", "ask two 1", "add one 2", "ask one 3", "add two 2", "add one 4"]
    done, answers = asked("ask none 0", *requests)
    assert done == ["ask none 0", "add one 2", "add one 4", "ask one 1", "ask one 3", "add two 2", "ask two 1"]
    assert answers == ["ask none 0", *requests]


def test_an_error_reaches_who_asked_and_the_others_go_on() -> None:
    done, answers = asked("fail one 1", "ask one 2", "ask two 1")
    assert done == ["ask one 2", "ask two 1"]
    assert (str(answers[0]), answers[1:]) == ("fail one 1", ["ask one 2", "ask two 1"])


@pytest.mark.parametrize("place", [0, 1])
def test_what_nobody_waits_for_any_longer_is_left_out_unless_it_has_begun(place: int) -> None:
    requests = ["add one 1", "add two 1", "ask one 2"]
    done, answers = asked(*requests, cancelled=requests[place])
    assert done == (["add one 1", "ask one 2", "add two 1"] if place == 0 else ["add one 1", "ask one 2"])
    assert isinstance(answers[place], asyncio.CancelledError)

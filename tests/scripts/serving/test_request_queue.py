from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from pydantic import BaseModel

from locigraph.scripts.memory import AsyncMemory, Memory
from locigraph.scripts.serving.keys import Caller
from locigraph.scripts.serving.operations import OfSpace, Operation
from locigraph.scripts.serving.problems import BusyError
from locigraph.scripts.serving.request_queue import RequestQueue

ANYBODY = Caller("anybody", ("*",))
FAULTS: dict[str, type[BaseException]] = {"panic": SystemExit, "stop": StopIteration}


class Held:
    """In place of a memory: the first call waits until it may go on."""

    def __init__(self) -> None:
        self.may_go = threading.Event()

    async def call(self, function: Callable[[Memory], Any]) -> Any:
        def work() -> Any:
            assert self.may_go.wait(10)
            return function(cast(Memory, None))

        return await asyncio.to_thread(work)


class Said(BaseModel):
    """An answer."""

    name: str


class Request(OfSpace):
    """A request with a name."""

    name: str


def asked(
    *requests: str, cancelled: str = "", waits_for_models: bool = False, callers: Sequence[Caller] = ()
) -> tuple[list[list[str]], list[str]]:
    """What is done at once when requests such as ``add one 2`` (space one, the second) wait, and what comes back.

    Each ``join`` is done with its neighbours; ``fail`` cannot be done.
    """
    done: list[list[str]] = []

    def run(memory: Memory, asked: Request, caller: Caller) -> Said:
        if asked.name.startswith("fail"):
            raise FAULTS.get(asked.name.split()[2], ValueError)(asked.name)
        done.append([asked.name])
        return Said(name=asked.name)

    def run_each(memory: Memory, asked: Sequence[Request]) -> list[Said]:
        done.append([each.name for each in asked])
        return [Said(name=each.name) for each in asked]

    operations = {
        "ask": Operation("ask", "", Request, Said, run),
        "fail": Operation("fail", "", Request, Said, run),
        "add": Operation("add", "", Request, Said, run, changes=True),
        "join": Operation("join", "", Request, Said, run, run_each, changes=True),
    }

    async def work() -> list[Any]:
        memory, observed = Held(), []
        queue = RequestQueue(
            cast(AsyncMemory, memory), lambda *told: observed.append(told), waits_for_models=waits_for_models
        )
        calls = []
        for place, each in enumerate(requests):
            kind, space, _ = each.split()
            caller = callers[place] if callers else ANYBODY
            calls.append(asyncio.create_task(queue.answer(operations[kind], Request(space=space, name=each), caller)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # the first one has the memory before the second one waits
        for each, call in zip(requests, calls, strict=True):
            if each == cancelled:
                call.cancel()
        await asyncio.sleep(0)
        memory.may_go.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert len(observed) == sum(not isinstance(each, asyncio.CancelledError) for each in answers)
        return answers

    answers = asyncio.run(work())
    return done, [each.name if isinstance(each, Said) else f"{type(each).__name__} {each}".strip() for each in answers]


def test_what_waits_for_a_space_is_done_together_and_what_changes_it_first() -> None:
    requests = ["ask one 1", "ask two 1", "add one 2", "ask one 3", "add two 2", "add one 4"]
    done, answers = asked("ask none 0", *requests)
    order = ["ask none 0", "add one 2", "add one 4", "ask one 1", "ask one 3", "add two 2", "ask two 1"]
    assert done == [[each] for each in order]
    assert answers == ["ask none 0", *requests]


def test_neighbours_that_can_be_are_done_at_once() -> None:
    requests = ["join one 1", "ask one 2", "join one 3", "add one 4", "join one 5", "join two 6"]
    done, answers = asked("ask none 0", *requests)
    assert done == [
        ["ask none 0"],
        ["join one 1", "join one 3"],
        ["add one 4"],
        ["join one 5"],
        ["ask one 2"],
        ["join two 6"],
    ]
    assert answers == ["ask none 0", *requests]


def test_at_once_nobody_gets_what_is_not_theirs() -> None:
    stranger = Caller("stranger", ("other",))
    callers = [ANYBODY, ANYBODY, stranger, ANYBODY]
    done, answers = asked("ask none 0", "join one 1", "join one 2", "join one 3", callers=callers)
    assert done == [["ask none 0"], ["join one 1", "join one 3"]]
    assert answers[2].startswith("ForbiddenSpaceError")
    assert answers[1::2] == ["join one 1", "join one 3"]


def test_an_error_reaches_who_asked_and_the_others_go_on() -> None:
    done, answers = asked("fail one 1", "ask one 2", "ask two 1")
    assert done == [["ask one 2"], ["ask two 1"]]
    assert answers == ["ValueError fail one 1", "ask one 2", "ask two 1"]


def test_questions_do_not_wait_for_additions_that_wait_for_language_models() -> None:
    requests = ["add one 1", "ask one 2", "add one 3", "ask one 4"]
    done, answers = asked(*requests, waits_for_models=True)
    changes, questions = ([each for (each,) in done if each.startswith(kind)] for kind in ("add", "ask"))
    assert (changes, questions) == (["add one 1", "add one 3"], ["ask one 2", "ask one 4"])
    assert answers == requests


@pytest.mark.parametrize("place", [0, 1])
def test_what_nobody_waits_for_any_longer_is_left_out(place: int) -> None:
    requests = ["add one 1", "add two 1", "ask one 2"]
    done, answers = asked("ask none 0", *requests, cancelled=requests[place])
    order = ["ask none 0", "add one 1", "ask one 2", "add two 1"]
    assert done == [[each] for each in order if each != requests[place]]
    assert answers[1 + place] == "CancelledError"


def test_whatever_an_operation_ends_with_nobody_waits_for_good() -> None:
    done, answers = asked("ask none 0", "fail one panic", "fail one stop", "ask one 3", "ask two 4")
    assert done == [["ask none 0"], ["ask one 3"], ["ask two 4"]]
    assert answers[1:3] == [
        "RuntimeError SystemExit in an operation",
        "RuntimeError an operation ended with StopIteration",
    ]


def test_a_long_line_of_additions_is_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locigraph.scripts.serving.request_queue._MOST_AT_ONCE", 2)
    done, _ = asked("ask none 0", *(f"join one {number}" for number in range(5)))
    assert [len(part) for part in done] == [1, 2, 2, 1]


def test_a_stopped_line_refuses_what_has_no_answer_yet_and_what_comes() -> None:
    done: list[str] = []

    def run(memory: Memory, asked: Request, caller: Caller) -> Said:
        done.append(asked.name)
        return Said(name=asked.name)

    async def work() -> list[Any]:
        memory, operation = Held(), Operation("add", "", Request, Said, run, changes=True)
        queue = RequestQueue(cast(AsyncMemory, memory), lambda *told: None)
        calls = []
        for name in ("begun", "waiting"):
            calls.append(asyncio.create_task(queue.answer(operation, Request(space=name, name=name), ANYBODY)))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        queue.stop()
        with pytest.raises(BusyError, match="the server is stopping"):
            await queue.answer(operation, Request(space="late", name="late"), ANYBODY)
        answers = await asyncio.gather(*calls, return_exceptions=True)
        memory.may_go.set()
        await asyncio.sleep(0.1)
        return answers

    assert [type(each) for each in asyncio.run(work())] == [BusyError, BusyError]
    assert done == []

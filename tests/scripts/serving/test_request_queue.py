from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

import pytest
from pydantic import BaseModel

from locigraph.memory import AsyncMemory, Memory
from locigraph.serving import request_queue
from locigraph.serving.keys import Caller
from locigraph.serving.operations import OfSpace, Operation
from locigraph.serving.problems import BusyError
from locigraph.serving.request_queue import RequestQueue

ANYBODY = Caller("anybody", ("*",))
FAULTS: dict[str, type[BaseException]] = {"panic": SystemExit, "stop": StopIteration}


class Settled:
    """In place of a memory: none of its spaces is consolidated again but those that are named."""

    def __init__(self, *rebuilt: str) -> None:
        self._rebuilt = {*rebuilt}
        self.added = set[str]()  # spaces to which turns are being added in steps

    def is_rebuilding(self, spaces: Sequence[str]) -> bool:
        return not self._rebuilt.isdisjoint(spaces)

    def is_being_added(self, spaces: Sequence[str]) -> bool:
        return not self.added.isdisjoint(spaces)


class Held:
    """In place of a memory: the first call waits until it may go on."""

    def __init__(self) -> None:
        self.may_go = threading.Event()
        self._settled = cast(Memory, Settled())

    async def call(self, function: Callable[[Memory], Any]) -> Any:
        def work() -> Any:
            assert self.may_go.wait(10)
            return function(self._settled)

        return await asyncio.to_thread(work)


class Said(BaseModel):
    """An answer."""

    name: str


class Request(OfSpace):
    """A request with a name."""

    name: str


def asked(*requests: str, cancelled: str = "", callers: Sequence[Caller] = ()) -> tuple[list[list[str]], list[str]]:
    """What is done at once when requests such as ``add one 2`` (space one, the second) wait, and what comes back.

    Each ``join`` is done with its neighbours; ``fail`` cannot be done.
    """
    done: list[list[str]] = []

    def run(memory: Memory, asked: Request, caller: Caller) -> Said:
        if asked.name.startswith("fail"):
            raise FAULTS.get(asked.name.split()[2], ValueError)(asked.name)
        done.append([asked.name])
        return Said(name=asked.name)

    def run_each(memory: Memory, asked: Sequence[tuple[Request, Caller]]) -> list[Said]:
        done.append([each.name for each, _ in asked])
        return [Said(name=each.name) for each, _ in asked]

    def run_at_once(memory: Memory, asked: Sequence[tuple[Request, Caller]]) -> list[Said | None]:
        ready = [each.name.endswith("!") for each, _ in asked]
        done.append([each.name for (each, _), is_ready in zip(asked, ready, strict=True) if is_ready])
        return [Said(name=each.name) if is_ready else None for (each, _), is_ready in zip(asked, ready, strict=True)]

    def steps(memory: Memory, asked: Request, caller: Caller) -> Generator[None, None, Said]:
        added = cast(Settled, memory).added
        added.add(asked.space)
        for number in range(3):
            done.append([f"{asked.name}.{number}"])
            if number < 2:
                yield
        added.remove(asked.space)
        return Said(name=asked.name)

    operations = {
        "ask": Operation("ask", "", Request, Said, run),
        "fail": Operation("fail", "", Request, Said, run),
        "add": Operation("add", "", Request, Said, run, changes=True),
        "join": Operation("join", "", Request, Said, run, run_each, changes=True),
        "seek": Operation("seek", "", Request, Said, run, run_each, run_at_once),
        "many": Operation("many", "", Request, Said, run, steps=steps, changes=True),
    }

    async def work() -> list[Any]:
        memory, observed = Held(), []
        queue = RequestQueue(cast(AsyncMemory, memory), lambda *told: observed.append(told))
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
        assert len(observed) == sum(not isinstance(each, asyncio.CancelledError | BusyError) for each in answers)
        return answers

    answers = asyncio.run(work())
    return done, [each.name if isinstance(each, Said) else f"{type(each).__name__} {each}".strip() for each in answers]


def of_kind(done: list[list[str]], *kinds: str) -> list[list[str]]:
    return [part for part in done if part and part[0].split()[0] in kinds]


def test_changes_and_questions_are_done_side_by_side_each_in_its_order() -> None:
    requests = ["ask one 1", "add two 1", "ask one 2", "add one 2"]
    done, answers = asked(*requests)
    assert of_kind(done, "ask") == [["ask one 1"], ["ask one 2"]]
    assert of_kind(done, "add") == [["add two 1"], ["add one 2"]]
    assert answers == requests


def test_what_can_be_is_done_at_once() -> None:
    requests = ["add none 0", "join one 1", "add one 2", "join two 3", "join one 4"]
    done, answers = asked(*requests)
    assert done == [["add none 0"], ["join one 1", "join two 3", "join one 4"], ["add one 2"]]
    assert answers == requests


def test_questions_that_wait_for_nothing_overtake_the_others() -> None:
    requests = ["seek one 1!", "seek two 2", "seek one 3!", "seek two 4"]
    done, answers = asked("seek none 0!", *requests)
    assert done == [["seek none 0!"], ["seek one 1!", "seek one 3!"], ["seek two 2", "seek two 4"]]
    assert answers == ["seek none 0!", *requests]


def test_keys_take_turns_however_much_one_of_them_asks() -> None:
    flood, other = Caller("flood", ("*",)), Caller("other", ("*",))
    requests = ["ask none 0", *(f"ask one {number}" for number in range(4)), "ask two 1", "ask two 2"]
    done, _ = asked(*requests, callers=[flood] * 5 + [other] * 2)
    order = ["ask none 0", "ask one 0", "ask two 1", "ask one 1", "ask two 2", "ask one 2", "ask one 3"]
    assert done == [[each] for each in order]


def test_a_change_in_steps_lets_others_in_between() -> None:
    flood, other = Caller("flood", ("*",)), Caller("other", ("*",))
    done, answers = asked("many one 1", "add two 2", "add two 3", callers=[flood, other, other])
    assert done == [["many one 1.0"], ["add two 2"], ["many one 1.1"], ["add two 3"], ["many one 1.2"]]
    assert answers == ["many one 1", "add two 2", "add two 3"]


def test_a_turn_of_a_space_to_which_many_are_added_in_steps_waits_for_these_and_keeps_its_place() -> None:
    flood, other = Caller("flood", ("*",)), Caller("other", ("*",))
    requests = ["many one 1", "add one 2", "add one 3", "add two 4"]
    done, answers = asked(*requests, callers=[flood, other, other, other])
    of_space = [each for (each,) in done if each.split()[1] == "one"]
    assert of_space == [*(f"many one 1.{step}" for step in range(3)), "add one 2", "add one 3"]
    assert done.index(["add two 4"]) < done.index(["add one 2"])
    assert answers == requests


def test_a_key_with_too_many_requests_is_told_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_queue, "_MOST_OF_KEY", 2)
    monkeypatch.setattr(request_queue, "_MOST_WAITING", 3)
    flood, other = Caller("flood", ("*",)), Caller("other", ("*",))
    _, answers = asked(*(f"ask one {each}" for each in range(5)), callers=[flood, flood, flood, other, other])
    assert answers[:2] == ["ask one 0", "ask one 1"]
    assert answers[2] == "BusyError 2 requests of key 'flood' are already waiting; try again later"
    assert answers[3] == "ask one 3"
    assert answers[4] == "BusyError 3 requests are already waiting; try again later"


def test_at_once_nobody_gets_what_is_not_theirs() -> None:
    stranger = Caller("stranger", ("other",))
    callers = [ANYBODY, ANYBODY, stranger, ANYBODY]
    done, answers = asked("add none 0", "join one 1", "join one 2", "join one 3", callers=callers)
    assert done == [["add none 0"], ["join one 1", "join one 3"]]
    assert answers[2].startswith("ForbiddenSpaceError")
    assert answers[1::2] == ["join one 1", "join one 3"]


def test_an_error_reaches_who_asked_and_the_others_go_on() -> None:
    done, answers = asked("fail one 1", "ask one 2", "ask two 1")
    assert done == [["ask one 2"], ["ask two 1"]]
    assert answers == ["ValueError fail one 1", "ask one 2", "ask two 1"]


@pytest.mark.parametrize("place", [0, 1])
def test_what_nobody_waits_for_any_longer_is_left_out(place: int) -> None:
    requests = ["add one 1", "add two 1", "add one 2"]
    done, answers = asked("add none 0", *requests, cancelled=requests[place])
    assert done == [[each] for each in ["add none 0", *requests] if each != requests[place]]
    assert answers[1 + place] == "CancelledError"


def test_whatever_an_operation_ends_with_nobody_waits_for_good() -> None:
    done, answers = asked("ask none 0", "fail one panic", "fail one stop", "ask one 3", "ask two 4")
    assert done == [["ask none 0"], ["ask one 3"], ["ask two 4"]]
    assert answers[1:3] == [
        "RuntimeError it ended with SystemExit",
        "RuntimeError it ended with StopIteration",
    ]


def test_a_long_line_of_additions_is_written_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("locigraph.serving.request_queue._MOST_TURNS", 2)
    done, _ = asked("add none 0", *(f"join one {number}" for number in range(5)))
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


def test_reads_of_a_space_that_is_consolidated_again_hold_up_no_others() -> None:
    go_on = threading.Event()

    class Rebuilding:
        async def call(self, function: Callable[[Memory], Any]) -> Any:
            return await asyncio.to_thread(function, cast(Memory, Settled("ana")))

    def run(memory: Memory, asked: Request, caller: Caller) -> Said:
        if asked.space == "ana":
            assert go_on.wait(60)
        return Said(name=asked.name)

    async def work() -> None:
        queue = RequestQueue(cast(AsyncMemory, Rebuilding()), lambda *_: None)
        read = Operation("read", "Reads.", Request, Said, run)
        held = [asyncio.create_task(queue.answer(read, Request(space="ana", name=str(n)), ANYBODY)) for n in range(3)]
        await asyncio.sleep(0.02)
        for n in range(3):
            assert await asyncio.wait_for(queue.answer(read, Request(space="bo", name=str(n)), ANYBODY), 60)
        assert not any(each.done() for each in held)
        go_on.set()
        assert [cast(Said, await each).name for each in held] == ["0", "1", "2"]

    asyncio.run(work())

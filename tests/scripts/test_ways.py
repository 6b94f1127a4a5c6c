"""How long the ways of a question and of an addition are: transactions of the store, functions and files."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from sqlalchemy import Engine, event

from tests.packages import PACKAGES, ROOT
from tests.scripts.test_memory import SALE, opened


@contextmanager
def _counted() -> Iterator[Callable[[], int]]:
    begun: list[object] = []

    def count(connection: object) -> None:
        begun.append(connection)

    event.listen(Engine, "begin", count)
    try:
        yield lambda: len(begun)
    finally:
        event.remove(Engine, "begin", count)


@contextmanager
def _called() -> Iterator[set[tuple[str, str]]]:
    """Files and names of the functions of this project that are called meanwhile."""
    found: set[tuple[str, str]] = set()
    folders = tuple(str(folder) for folder in PACKAGES.values()) + tuple(
        str(ROOT / "locigraph" / name) for name in PACKAGES
    )

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(folders) and not code.co_name.startswith("<"):
            found.add((Path(code.co_filename).resolve().name, code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_a_question_and_an_addition_go_through_few_functions_and_files(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold boat {n}.", "turn_id": f"t{n}"} for n in range(9)])
        for _ in range(2):
            memory.recall("Who sold a boat?", space="ana")
        with _called() as of_question:
            memory.recall("Who sold a boat?", space="ana")
        memory.add(**SALE | {"text": "I sold the lake house."})
        with _called() as of_addition:
            memory.add(**SALE | {"text": "I sold the garage."})
    assert 50 < len(of_question) <= 120
    assert len({file for file, _ in of_question}) <= 45
    assert 100 < len(of_addition) <= 245
    assert len({file for file, _ in of_addition}) <= 65


def test_a_question_to_a_space_that_has_not_changed_reads_the_store_once(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold boat {n}.", "turn_id": f"t{n}"} for n in range(9)])
        memory.recall("Who sold a boat?", space="ana")
        memory.recall("Who sold a boat?", space="ana")
        with _counted() as transactions:
            assert memory.recall("Who sold a boat?", space="ana").strategy == "v2"
        assert transactions() == 1


def test_an_addition_takes_as_many_transactions_however_large_its_space_is(place: Path) -> None:
    counts = []
    with opened(place) as memory:
        for number in range(40):
            with _counted() as transactions:
                memory.add(**SALE | {"text": f"I sold boat {number}.", "turn_id": f"t{number}"})
            counts.append(transactions())
    assert counts[1:] == counts[1:2] * 39
    assert counts[-1] <= 9


def test_the_first_question_after_an_addition_takes_as_many_transactions_however_large_its_space_is(
    place: Path,
) -> None:
    counts = []
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold boat {n}.", "turn_id": f"t{n}"} for n in range(40)])
        for number in range(40, 46):  # fewer than after which the words of the space are counted again
            memory.recall("Who sold a boat?", space="ana")
            memory.add(**SALE | {"text": f"I sold boat {number}.", "turn_id": f"t{number}"})
            with _counted() as transactions:
                memory.recall("Who sold a boat?", space="ana")
            counts.append(transactions())
    assert counts[2:] == counts[2:3] * 4
    assert counts[-1] <= 12

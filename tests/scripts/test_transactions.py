"""How many transactions of the store a question and an addition take: each costs time, and waits for writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, event

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

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from sqlalchemy import event

from locigraph.kg.errors import TurnConflictError
from locigraph.kg.store import Store
from locigraph.kg.types import Turn
from tests.databases import Place
from tests.fakes import OTHER_SPACE, SPACE, change_of, make_turns
from tests.kg.dumps import dump

TURNS = make_turns(["I sold the blue bike.", "To whom?", "To Tom."], ["The bike is gone."])
SOLD = TURNS[0].turn_id


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as made:
        made.append_turns(TURNS)
        for turn in TURNS:
            made.commit(change_of(turn))
        yield made


def test_a_forgotten_turn_is_passed_over_in_every_later_append(store: Store) -> None:
    store.forget(SPACE, [SOLD])
    assert store.forgotten(SPACE, [turn.turn_id for turn in TURNS]) == {SOLD}
    assert store.append_turns(TURNS) == 0
    assert store.append_turns(TURNS[:1]) == 0
    assert [turn.text for turn in store.turns(SPACE)] == [turn.text for turn in TURNS[1:]]


def test_a_forgotten_space_stays_forgotten_and_is_not_made_by_an_append(store: Store) -> None:
    store.forget_spaces([SPACE])
    assert store.append_turns(TURNS) == 0
    assert store.spaces() == []


def test_restoring_lets_a_turn_come_back_in_its_place(store: Store) -> None:
    store.forget(SPACE, [SOLD])
    assert store.restore(SPACE, [SOLD]) == 1
    assert store.restore(SPACE, [SOLD]) == 0
    assert store.append_turns(TURNS) == 1
    assert store.turns(SPACE) == list(TURNS)


def test_other_content_under_a_forgotten_id_is_a_conflict_and_not_lost(store: Store) -> None:
    store.forget(SPACE, [SOLD])
    with pytest.raises(TurnConflictError, match=r"id of a forgotten turn but different content.*--restore"):
        store.append_turns([replace(TURNS[0], text="I sold the red bike.")])


def test_no_word_of_a_forgotten_turn_is_kept(store: Store, store_at: Place) -> None:
    store.forget(SPACE, [SOLD])
    held = dump(store_at())
    assert "blue bike" not in repr(held)
    assert "'t0'" not in repr(held)
    assert len(held["tombstones"]) == 1


def test_a_file_without_the_forgotten_turn_is_appended_as_ever(store: Store) -> None:
    store.forget(SPACE, [SOLD])
    assert store.append_turns([replace(turn, position=i) for i, turn in enumerate(TURNS[1:])]) == 0
    assert store.misplaced().keys() == {SPACE}  # change_of makes no NEXT edges


def test_many_turns_are_appended_and_passed_over_in_as_many_statements_as_one(store: Store) -> None:
    more = make_turns([f"Boat {number} is red." for number in range(100)], space=OTHER_SPACE)
    ran = 0

    def count(*_: object) -> None:
        nonlocal ran
        ran += 1

    def statements(turns: Sequence[Turn]) -> int:
        nonlocal ran
        ran = 0
        store.append_turns(turns)
        return ran

    event.listen(store._engine, "before_cursor_execute", count)
    store.append_turns(more)
    assert statements(more[:1]) == statements(more)
    store.forget(OTHER_SPACE, [turn.turn_id for turn in more[:50]])
    assert statements(more[:1]) == statements(more[:50])
    assert store.append_turns(more) == 0

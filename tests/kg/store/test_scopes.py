from __future__ import annotations

from collections.abc import Iterator

import pytest

from locigraph.kg.errors import StoreError
from locigraph.kg.store import Store
from locigraph.kg.types import Scope, SpaceId
from tests.databases import Place
from tests.fakes import OTHER_SPACE, SPACE, make_turns

ANA, BO = Scope("ana"), Scope("bo", "helper")
TURNS = {space: make_turns(["Hello.", "Bye."], space=space) for space in (SPACE, OTHER_SPACE)}


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as made:
        yield made


def test_a_space_belongs_to_whom_its_first_turns_say_or_later_ones(store: Store) -> None:
    store.append_turns([*TURNS[SPACE], TURNS[OTHER_SPACE][0]], scoped=[(SPACE, ANA)])
    assert store.scopes() == {SPACE: ANA, OTHER_SPACE: Scope()}
    store.append_turns(TURNS[OTHER_SPACE], scoped=[(OTHER_SPACE, BO)])
    store.append_turns(TURNS[SPACE], scoped=[(SPACE, Scope(agent="helper")), (OTHER_SPACE, Scope())])
    assert store.scopes() == {SPACE: Scope("ana", "helper"), OTHER_SPACE: BO}


@pytest.mark.parametrize(
    ("scope", "said"),
    [
        (Scope("bo"), "space 'harbor' belongs to user 'ana', not 'bo'"),
        (Scope("ana", ""), "agent is ''; expected 1 to 240 bytes"),
        (Scope("a\nb"), "user is 'a\\\\nb'; expected"),
    ],
)
def test_a_space_of_another_and_a_name_that_is_none_are_refused_and_nothing_is_written(
    store: Store, scope: Scope, said: str
) -> None:
    store.append_turns(TURNS[SPACE][:1], scoped=[(SPACE, ANA)])
    with pytest.raises(StoreError, match=said):
        store.append_turns(TURNS[SPACE], scoped=[(OTHER_SPACE, ANA), (SPACE, scope)])
    assert (store.scopes(), len(store.turns(SPACE))) == ({SPACE: ANA}, 1)


def test_two_turns_of_one_call_cannot_give_a_space_to_two(store: Store) -> None:
    with pytest.raises(StoreError, match="belongs to user 'ana', not 'bo'"):
        store.append_turns(TURNS[SPACE], scoped=[(SPACE, ANA), (SPACE, BO)])
    assert store.spaces() == []


def test_a_space_that_was_forgotten_is_nobody_s_when_it_comes_again(store: Store) -> None:
    store.append_turns(TURNS[SPACE], scoped=[(SPACE, ANA)])
    store.forget_spaces([SPACE])
    store.append_turns(TURNS[SPACE], scoped=[(SPACE, BO)])
    assert store.scopes() == {}  # its turns stay forgotten
    store.restore(SPACE)
    store.append_turns(TURNS[SPACE])
    assert store.scopes() == {SPACE: Scope()}


def test_a_forgotten_turn_gives_its_space_to_nobody_and_its_owner_is_checked_all_the_same(store: Store) -> None:
    hello, bye = TURNS[SPACE]
    store.append_turns([hello, bye])
    store.forget(SPACE, [hello.turn_id])
    store.append_turns([hello], scoped=[(SPACE, BO)])
    assert store.scopes() == {SPACE: Scope()}
    store.append_turns([hello, bye], scoped=[(SPACE, ANA)])
    assert store.scopes() == {SPACE: ANA}
    with pytest.raises(StoreError, match="belongs to user 'ana', not 'bo'"):
        store.append_turns([hello], scoped=[(SPACE, BO)])


def test_several_spaces_are_forgotten_all_or_none(store: Store) -> None:
    store.append_turns([*TURNS[SPACE], *TURNS[OTHER_SPACE]])
    with pytest.raises(StoreError, match="space 'nowhere' is not in the store"):
        store.forget_spaces([SPACE, SpaceId("nowhere")])
    assert len(store.spaces()) == 2
    store.forget_spaces([SPACE, OTHER_SPACE])
    assert store.spaces() == []


@pytest.mark.parametrize(
    ("asked", "covered"),
    [(Scope("bo"), True), (Scope(agent="helper"), True), (BO, True), (ANA, False), (Scope("bo", "x"), False)],
)
def test_a_scope_covers_what_has_all_that_it_names(asked: Scope, covered: bool) -> None:
    assert asked.covers(BO) is covered
    assert Scope().covers(BO)

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from locigraph.kg.errors import UnknownTypeError
from locigraph.kg.store import Store
from locigraph.kg.store.labels import UNDESCRIBED
from locigraph.kg.types import GraphChange, NewRelation, SpaceId, TurnId
from tests.databases import Place
from tests.fakes import MONDAY, OTHER_SPACE, SPACE, change_of, fact, make_turn, make_turns
from tests.kg.dumps import shared_labels

SECRET = "From who adopted Vera at the clinic."
PLAIN = "From who adopts to who is adopted."


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def adopt(store: Store, number: int, said: str, space: SpaceId = SPACE) -> None:
    """A turn that coins a label, or has an edge of it at least."""
    turn = make_turn(number, f"I adopted number {number}.", space=space)
    store.append_turns([turn])
    edge = NewRelation("f", "ADOPTED", "episode")
    change = change_of(turn, nodes=[fact("f", f"Ann adopted number {number}", turn)], relations=[edge])
    store.commit(replace(change, coined={"ADOPTED": said}))


def described(store: Store, space: SpaceId = SPACE) -> str | None:
    label = store.relation_labels(space).get("ADOPTED")
    return None if label is None else label.description


def files_with(folder: Path, words: bytes) -> list[Path]:
    return [file for file in folder.iterdir() if words in file.read_bytes()]


def test_each_space_describes_a_label_in_its_own_words(store: Store, store_at: Place) -> None:
    adopt(store, 0, SECRET)
    adopt(store, 0, PLAIN, OTHER_SPACE)
    assert (described(store), described(store, OTHER_SPACE)) == (SECRET, PLAIN)
    assert shared_labels(store_at())["ADOPTED"] == UNDESCRIBED


def test_a_label_that_another_space_has_coined_must_be_coined_anew(store: Store) -> None:
    adopt(store, 0, SECRET)
    turns = make_turns(["one", "two"], space=OTHER_SPACE)
    store.append_turns(turns)
    assert described(store, OTHER_SPACE) is None
    change = change_of(turns[0], nodes=[fact("f", "a fact", turns[0])], relations=[NewRelation("f", "ADOPTED", "f")])
    with pytest.raises(UnknownTypeError, match="'ADOPTED' is not in the schema"):
        store.commit(change)


@pytest.mark.sqlite
def test_the_words_of_a_label_go_with_their_space_though_another_uses_the_label(store: Store, tmp_path: Path) -> None:
    adopt(store, 0, SECRET)
    adopt(store, 0, PLAIN, OTHER_SPACE)
    assert files_with(tmp_path, SECRET.encode())
    store.forget_spaces([SPACE])
    assert files_with(tmp_path, SECRET.encode()) == []
    assert described(store, OTHER_SPACE) == PLAIN


@pytest.mark.sqlite
def test_the_words_of_a_label_go_with_their_turn_though_another_turn_uses_the_label(
    store: Store, tmp_path: Path
) -> None:
    adopt(store, 0, SECRET)
    adopt(store, 1, PLAIN)
    assert described(store) == SECRET  # the first to coin it says what it means
    store.forget(SPACE, [TurnId("t0")])
    assert files_with(tmp_path, SECRET.encode()) == []
    assert described(store) == UNDESCRIBED
    store.forget(SPACE, [TurnId("t1")])
    assert described(store) is None


def test_what_no_turn_coined_is_in_no_turns_words(store: Store) -> None:
    store.append_turns([make_turn(0, "hello")])
    ids = store.commit(change_of(make_turn(0, "hello")))
    edge = NewRelation(ids["episode"], "ADOPTED", ids["episode"])
    store.commit(GraphChange(SPACE, MONDAY, relations=(edge,), coined={"ADOPTED": PLAIN, "NEXT": SECRET}))
    assert described(store) == PLAIN
    assert store.relation_labels(SPACE)["NEXT"].description != SECRET


def test_a_space_that_is_consolidated_anew_keeps_no_words_of_its_labels(store: Store) -> None:
    adopt(store, 1, SECRET)
    earlier = make_turn(0, "earlier", session=0, spoken_at=MONDAY - timedelta(days=7))
    store.append_turns([earlier])  # which makes all turns pending
    assert described(store) is None


@pytest.mark.sqlite
def test_the_name_of_a_coined_label_goes_with_the_last_turn_that_used_it(tmp_path: Path) -> None:
    with Store(tmp_path / "labels.sqlite") as store:
        adopt(store, 0, SECRET)
        store.append_turns([make_turn(1, "hello")])
        store.forget(SPACE, [TurnId("t0")])
    with closing(sqlite3.connect(tmp_path / "labels.sqlite")) as file:
        assert "ADOPTED" not in [name for (name,) in file.execute("SELECT name FROM relation_labels")]

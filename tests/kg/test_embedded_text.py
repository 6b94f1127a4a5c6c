from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from locigraph.kg.embedded_text import (
    TURN_BEFORE,
    WINDOWS,
    in_context,
    is_adapted,
    once_neighbours,
    turns_before,
    windows,
)
from locigraph.kg.store import Store
from locigraph.kg.types import TurnId
from locigraph.retrieval.text.node_vectors import embed_lacking
from tests.databases import Place
from tests.fakes import MONDAY, SPACE, FakeEncoder, change_of, fact, make_turns
from tests.fakes_graph import make_snapshot
from tests.kg.dumps import dump

MODEL = "m+123" + TURN_BEFORE


@pytest.fixture
def store(store_at: Place) -> Iterator[Store]:
    with Store(store_at()) as opened:
        yield opened


def filled(store: Store, *sessions: list[str]) -> None:
    """A space whose turns are consolidated, each with a fact of the same words."""
    turns = make_turns(*sessions)
    store.append_turns(turns)
    for turn in turns:
        made = [fact("f", f"It is said: {turn.text}", turn)]
        store.commit(change_of(turn, nodes=made, encoder=FakeEncoder()))


def texts_of(store: Store, model: str) -> set[str]:
    return {each.text for each in store.unembedded(SPACE, model)}


def test_a_turn_is_read_with_the_one_before_it_and_a_fact_alone(store: Store) -> None:
    filled(store, ["How often?", "Twice"])
    said = [turn.utterance for turn in store.turns(SPACE)]
    facts = {"It is said: How often?", "It is said: Twice"}
    assert texts_of(store, MODEL) == {said[0], f"{said[1]}\n(in reply to {said[0]})", *facts}
    assert texts_of(store, "m+123") == {*said, *facts}


def test_only_the_end_of_a_long_turn_is_context() -> None:
    before = "Ann: " + " ".join(f"w{i}" for i in range(1, 51))
    read = in_context("Ben: yes", before)
    assert read.startswith("Ben: yes\n(in reply to Ann: ... w11 w12 ")
    assert read.endswith(" w49 w50)")
    assert in_context("Ben: yes", "Ann: who?") == "Ben: yes\n(in reply to Ann: who?)"


def test_the_first_turn_of_a_session_is_read_alone(store: Store) -> None:
    filled(store, ["Hello", "Hi"], ["Back again"])
    said = [turn.utterance for turn in store.turns(SPACE)]
    assert said[2] in texts_of(store, MODEL)


@given(st.lists(st.integers(0, 5), max_size=9))
def test_turns_were_neighbours_if_only_later_ones_stand_between_them(ranks: list[int]) -> None:
    wanted = [
        (i, j)
        for j in range(len(ranks))
        for i in range(j)
        if all(r > max(ranks[i], ranks[j]) for r in ranks[i + 1 : j])
    ]
    assert sorted(once_neighbours(ranks)) == sorted(wanted)
    assert len(wanted) <= 2 * len(ranks)


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=8))
def test_the_turn_before_is_the_last_one_of_the_same_session(sessions: list[str]) -> None:
    said_in_one = make_turns([f"turn {i}" for i in range(len(sessions))])
    turns = [replace(turn, session_id=name) for turn, name in zip(said_in_one, sessions, strict=True)]
    snapshot = make_snapshot(turns)
    read = snapshot.embedded_texts(turn_before=True)
    for i, name in enumerate(sessions):
        earlier = [j for j in range(i) if sessions[j] == name]
        said = turns[i].utterance
        assert read[i] == (in_context(said, turns[earlier[-1]].utterance) if earlier else said)


def test_the_store_and_a_snapshot_of_it_say_the_same(store: Store) -> None:
    filled(store, ["One", "Two", "Three"], ["Four", "Five"])
    assert set(store.snapshot(SPACE).embedded_texts(turn_before=True)) == texts_of(store, MODEL)


def test_forgetting_a_turn_drops_the_vector_of_the_one_after_it_and_tells_caches_what_was_read(
    store: Store, store_at: Place
) -> None:
    filled(store, ["My secret is Porto", "I see", "Good"])
    for model in ("m", MODEL):
        read = store.unembedded(SPACE, model)
        store.put_embeddings(SPACE, model, read, np.ones((len(read), 4), dtype=np.float32))
    said = [turn.utterance for turn in store.turns(SPACE)]
    erased: list[str] = []
    store.forget(SPACE, [TurnId("t0")], before_erasing=erased.extend)
    assert {said[0], in_context(said[1], said[0])} <= {*erased}
    assert in_context(said[2], said[1]) not in erased
    assert [each.text for each in store.unembedded(SPACE, MODEL)] == [said[1]]  # now the first of its session
    assert store.unembedded(SPACE, "m") == []  # this one has not read the turn before
    assert "Porto" not in str(dump(store_at()))


def test_forgetting_a_turn_in_the_middle_gives_the_next_one_a_new_context(store: Store) -> None:
    filled(store, ["Who came?", "Really", "Ann"])
    read = store.unembedded(SPACE, MODEL)
    store.put_embeddings(SPACE, MODEL, read, np.ones((len(read), 4), dtype=np.float32))
    said = [turn.utterance for turn in store.turns(SPACE)]
    store.forget(SPACE, [TurnId("t1")])
    assert [each.text for each in store.unembedded(SPACE, MODEL)] == [in_context(said[2], said[0])]


def late_and_past(store: Store) -> list[str]:
    """Three turns, of which the second arrives last; it makes the space pending. Returns what is said in them."""
    turns = make_turns(["My secret is Porto", "Which city?", "It was lovely"])
    for some in (turns[::2], turns):
        store.append_turns(some)
    return [turn.utterance for turn in turns]


@pytest.mark.parametrize("forgotten", [0, 2])
def test_caches_hear_of_a_context_that_a_late_turn_has_changed_even_while_the_space_is_pending(
    forgotten: int, store: Store
) -> None:
    said = late_and_past(store)
    erased: list[str] = []
    store.forget(SPACE, [TurnId(f"t{forgotten}")], before_erasing=erased.extend)
    assert {in_context(said[2], said[0])} < {*erased}


def test_caches_hear_of_contexts_of_snapshots_that_lack_a_turn_spoken_later(store: Store) -> None:
    first, second, third = make_turns(["My secret is Porto", "Which city?", "It was lovely"])
    store.append_turns([first, replace(second, spoken_at=MONDAY + timedelta(days=1)), third])
    erased: list[str] = []
    store.forget_spaces([SPACE], before_erasing=erased.extend)
    assert in_context(third.utterance, first.utterance) in erased


def test_caches_hear_of_few_contexts_of_a_long_session(store: Store) -> None:
    said = make_turns([f"Word {i}" for i in range(300)])
    places: list[int] = []
    for start in (0, 2, 1, 3):  # turns of every fourth place arrive together
        places = sorted([*places, *range(start, 300, 4)])
        store.append_turns([said[place] for place in places])
    erased: list[str] = []
    store.forget_spaces([SPACE], before_erasing=erased.extend)
    assert len(said) < sum("in reply to" in text for text in erased) <= 2 * len(said)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=9))
def test_the_turn_before_was_not_spoken_later(turns: list[tuple[str, int]]) -> None:
    sessions, spoken_at = [session for session, _ in turns], [at for _, at in turns]
    for place, found in enumerate(turns_before(sessions, spoken_at)):
        known = [i for i in range(place) if sessions[i] == sessions[place] and spoken_at[i] <= spoken_at[place]]
        assert found == (known[-1] if known else None)


def test_the_vector_of_a_turn_without_a_time_holds_no_words_of_a_dated_turn_that_a_past_snapshot_lacks(
    store: Store,
) -> None:
    dated, undated = make_turns(["My secret is Porto", "I see"])
    undated = replace(undated, spoken_at=None)
    store.append_turns([dated, undated])
    for turn in (dated, undated):
        store.commit(change_of(turn, encoder=FakeEncoder()))
    assert undated.utterance in texts_of(store, MODEL)
    assert not any("Porto" in text and text.startswith(undated.utterance) for text in texts_of(store, MODEL))
    assert set(store.snapshot(SPACE).embedded_texts(turn_before=True)) == texts_of(store, MODEL)


def test_a_vector_made_of_a_turn_that_was_forgotten_meanwhile_is_not_written(store: Store) -> None:
    filled(store, ["My secret is Porto", "I see", "Good"])
    read = store.unembedded(SPACE, MODEL)
    store.forget(SPACE, [TurnId("t0")])
    store.put_embeddings(SPACE, MODEL, read, np.ones((len(read), 4), dtype=np.float32))
    said = [turn.utterance for turn in store.turns(SPACE)]
    assert [each.text for each in store.unembedded(SPACE, MODEL)] == [said[0]]  # it was read after the forgotten turn


def test_what_changes_while_texts_are_embedded_is_embedded_too(store: Store) -> None:
    filled(store, ["My secret is Porto", "I see", "Good"])
    calls: list[list[str]] = []

    class Forgetting(FakeEncoder):
        def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
            calls.append([*texts])
            if len(calls) == 1:
                store.forget(SPACE, [TurnId("t0")])
            return super().encode(texts)

    embed_lacking(store, [SPACE], Forgetting(4, MODEL), checks_vectors=False, to_indexes=False)
    assert store.unembedded(SPACE, MODEL) == []
    assert calls[1:] == [[store.turns(SPACE)[0].utterance]]


def test_a_short_text_is_its_own_window() -> None:
    for text in ("", "Ann: yes", "word " * 100, in_context("Ben: " + "word " * 99, "Ann: who?")):
        assert windows(text) == [text]


def test_a_long_turn_is_read_in_equal_windows_by_its_speaker_and_the_first_in_context() -> None:
    body = " ".join(f"w{chr(97 + i % 26)}" for i in range(200))  # 200 pieces: three windows of 67, 66 and 67
    first, second, third = windows(in_context(f"Ben: {body}", "Ann: who?"))
    words = body.split()
    assert first == in_context("Ben: " + " ".join(words[:67]), "Ann: who?")
    assert second == "Ben: " + " ".join(words[67:133])
    assert third == "Ben: " + " ".join(words[133:])


def test_words_that_look_like_a_turn_before_are_read_too() -> None:
    text = f"Ana: Look at this.\n(in reply to {' '.join(f'word{n}' for n in range(400))})"
    parts = windows(text)
    assert len(parts) > 5
    assert "word399" in parts[-1]


def test_windows_part_words_only_where_there_is_no_space() -> None:
    parted = windows("x" * 2_000)  # 250 pieces of eight letters
    assert [len(part) for part in parted] == [496, 504, 504, 496]
    assert "".join(parted) == "x" * 2_000


@given(st.text(max_size=3_000))
def test_windows_hold_every_character_but_spaces_in_order(text: str) -> None:
    parts = windows(text)
    assert all(parts) or parts == [text]
    if not re.match(r"[^\n:]{1,60}: ", text) and "(in reply to " not in text:
        assert re.sub(r"\s", "", "".join(parts)) == re.sub(r"\s", "", text)


def test_of_an_endless_text_only_the_beginning_is_read() -> None:
    parts = windows("word " * 100_000)
    assert len(parts) == 80
    assert max(len(part.split()) for part in parts) == 80


def test_an_id_tells_whether_the_text_encoder_has_an_adapter() -> None:
    assert [is_adapted(name) for name in ("m", f"m{WINDOWS}", f"m+123{WINDOWS}", f"{MODEL}{WINDOWS}")] == [
        False, False, True, True,
    ]  # fmt: skip

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph.assembly.graphs import GraphWriter, build_graph, require_same_turns, views_of
from locigraph.consolidation.blueprint import Blueprint
from locigraph.consolidation.errors import ConsolidationError
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.protocols import Context
from locigraph.kg.corpora import Conversation, Corpus
from locigraph.kg.errors import LocigraphError, StoreError, TurnConflictError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, Turn, TurnId, TurnState
from tests.fakes import (
    MONDAY,
    SPACE,
    FakeExtractor,
    PlainEncoder,
    make_conversation,
    make_turn,
    make_turns,
)
from tests.kg.dumps import QUEUE, dump

SPACES = [SpaceId(name) for name in ("first", "second", "third")]


def corpus(*conversations: Conversation) -> Corpus:
    return Corpus(conversations, format="jsonl", path="made.jsonl", sha256="0")


def three(*, last: str = "c") -> list[Conversation]:
    return [make_conversation([text, "yes"], space=s) for text, s in zip(("a", "b", last), SPACES, strict=True)]


def build(read: Corpus, store: Store, *, name: str = "fake") -> Any:
    return build_graph(read, FakeExtractor(name=name), store, cast(Any, PlainEncoder()))


@pytest.mark.parametrize("fault", ["conflict", "poison", "extractor"])
def test_a_fault_in_the_last_conversation_leaves_the_store_as_it_was(fault: str, tmp_path: Path) -> None:
    given, name = three(), "fake"
    with Store(tmp_path / "graph.sqlite") as store:
        build(corpus(given[2]), store)
        before = dump(tmp_path / "graph.sqlite")
        expected: type[LocigraphError] = TurnConflictError
        if fault == "conflict":
            given = three(last="other words")
        elif fault == "poison":
            turn = given[2].turns[1]
            added = replace(turn, turn_id=TurnId("t9"), position=2, speaker="A" * 200_000)
            given[2], expected = Conversation(SPACES[2], (*given[2].turns, added)), StoreError
        else:
            name, expected = "another", ConsolidationError
        with pytest.raises(expected):
            build(corpus(*given), store, name=name)
        assert dump(tmp_path / "graph.sqlite") == before


def test_a_failed_turn_in_one_conversation_leaves_no_other_pending(tmp_path: Path) -> None:
    def plan(turn: Any, context: Any) -> Any:
        if turn.space == "first":
            raise ConsolidationError("no plan")
        return FakeExtractor().plan(turn, context)

    with Store(tmp_path / "graph.sqlite") as store:
        failed = build_graph(corpus(*three()), FakeExtractor(plan), store, cast(Any, PlainEncoder()))
        assert {space: len(failures) for space, failures in failed.items()} == {"first": 2}
        assert all(store.turn_counts(space)[TurnState.PENDING] == 0 for space in SPACES)


SAID = ("I live in Boston.", "My favourite colour is green.", "I moved to Denver.", "I sold the bike.", "How nice!")
STEPS = ("add", "add earlier", "add beside it", "forget", "forget unsaid", "forget all", "other space")


@pytest.mark.long
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=14))
def test_what_a_writer_keeps_between_turns_never_changes_the_graph(tmp_path: Path, steps: list[str]) -> None:
    """One writer that stays open, with writes of others beside it, against a writer made for each turn alone."""

    def take(number: int, step: str, store: Store, writer: GraphWriter) -> None:
        turn = make_turn(number, SAID[number % len(SAID)], dated=False)
        if step == "add earlier":
            turn = make_turn(number, turn.text, session=number, spoken_at=MONDAY - timedelta(days=number))
        if step == "other space":
            turn = replace(turn, space=SPACES[0])
        if "forget" not in step:
            writer.add([turn])
            return
        held = store.turns(SPACE) if SPACE in store.spaces() else []
        if step == "forget all" and held:
            store.forget_spaces([SPACE])
            store.restore(SPACE)
        elif held:
            store.forget(SPACE, [held[number % len(held)].turn_id])
        if step != "forget unsaid":  # the revision tells it too
            writer.drop(SPACE)

    def writer_of(store: Store) -> GraphWriter:
        return GraphWriter(store, RuleExtractor(), cast(Any, PlainEncoder()), keep=9)

    folder = Path(mkdtemp(dir=tmp_path))
    paths = folder / "kept.sqlite", folder / "anew.sqlite"
    with Store(paths[0]) as kept, Store(paths[1]) as anew:
        writer = writer_of(kept)
        for number, step in enumerate(steps):
            take(number, step, kept, writer_of(kept) if step == "add beside it" else writer)
            take(number, step, anew, writer_of(anew))
    kept_rows, anew_rows = (dump(path, without=(*QUEUE, "tombstones", "tombstone_marks", "settings")) for path in paths)
    assert kept_rows == anew_rows


def test_after_an_outage_within_a_turn_the_space_is_read_anew(tmp_path: Path) -> None:
    class Failing(FakeExtractor):
        fails = False

        def plan(self, turn: Turn, context: Context) -> Blueprint:
            if self.fails:
                raise OSError("the endpoint is gone")
            return super().plan(turn, context)

    extractor = Failing()
    with Store(tmp_path / "graph.sqlite") as store:
        writer = GraphWriter(store, extractor, cast(Any, PlainEncoder()))
        writer.add([make_turn(0, "one")])
        extractor.fails = True
        with pytest.raises(OSError, match="gone"):
            writer.add([make_turn(1, "two")])
        extractor.fails = False
        writer.add([make_turn(2, "three")])
        assert [node.description for node in store.nodes(SPACE, types=["episode"])] == [
            "Ann: one",
            "Ben: two",
            "Ann: three",
        ]
        assert store.misplaced() == {}


@pytest.mark.parametrize("fault", [ZeroDivisionError, OSError, StoreError, KeyboardInterrupt])
def test_a_fault_of_the_program_in_one_space_is_raised_after_the_others_are_built_and_an_outage_at_once(
    fault: type[BaseException], tmp_path: Path
) -> None:
    class Failing(FakeExtractor):
        def plan(self, turn: Turn, context: Context) -> Blueprint:
            if turn.text == "b":
                raise fault("in the second")
            return super().plan(turn, context)

    with Store(tmp_path / "graph.sqlite") as store:
        with pytest.raises(fault, match="in the second"):
            build_graph(corpus(*three()), Failing(), store, cast(Any, PlainEncoder()))
        pending = [len(store.turns(space, state=TurnState.PENDING)) for space in SPACES]
    assert pending == ([0, 2, 0] if fault is ZeroDivisionError else [0, 2, 2])


def test_the_spaces_used_last_are_kept_as_long_as_they_have_few_turns_together(tmp_path: Path) -> None:
    one, two, three = (SpaceId(name) for name in ("one", "two", "three"))
    with Store(tmp_path / "graph.sqlite") as store:
        writer = GraphWriter(store, FakeExtractor(), cast(Any, PlainEncoder()), keep=3)
        for space, kept in ((one, [one]), (two, [one, two]), (one, [two, one]), (three, [one, three])):
            writer.add([make_turn(len(store.turns(space)) if space in store.spaces() else 0, "Hello", space=space)])
            assert [*writer._kept] == kept
        writer.add([make_turn(number, "Hello", space=three) for number in range(1, 5)])
        assert [*writer._kept] == [three]


def test_a_question_sees_nothing_said_after_it_though_its_own_file_ends_before(tmp_path: Path) -> None:
    turns = make_turns(["one", "two", "three"])
    with Store(tmp_path / "graph.sqlite") as store:
        build(corpus(Conversation(SPACE, turns[::-1])), store)
        build(corpus(Conversation(SPACE, turns[:2])), store)  # the file of the question
        views = views_of(store, cast(Any, PlainEncoder()))
        seen = {place: views.at(SPACE, turns[place].spoken_at).num_nodes for place in range(3)}
        assert seen == {place: views.at(SPACE, None).num_nodes * (place + 1) // 3 for place in range(3)}


def test_a_space_whose_turns_have_no_time_is_seen_as_it_is(tmp_path: Path) -> None:
    with Store(tmp_path / "graph.sqlite") as store:
        store.append_turns([make_turn(0, "one", dated=False), make_turn(1, "two", space=SPACES[0])])
        assert store.last_spoken() == {SPACE: None, SPACES[0]: MONDAY + timedelta(minutes=1)}


def test_a_graph_of_other_turns_or_words_than_its_corpus_is_refused(tmp_path: Path) -> None:
    def told(*texts: str) -> Corpus:
        return corpus(make_conversation(texts))

    with Store(tmp_path / "graph.sqlite") as store:
        store.append_turns(make_turns(["one", "two"]))
        require_same_turns(told("one", "two"), store)
        for texts, message in (
            (("one",), "has 1 turn beside those of the corpus, such as 't1', so results"),
            (("one", "two", "three"), "has 1 turn less than the corpus, such as 't2'"),
            (("one", "2"), "has 1 turn with other words than in the corpus, such as 't1'"),
        ):
            with pytest.raises(LocigraphError, match=message):
                require_same_turns(told(*texts), store)

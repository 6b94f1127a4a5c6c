from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from locigraph.consolidation.errors import ConsolidationError
from locigraph.kg.corpora import Conversation, Corpus
from locigraph.kg.errors import LocigraphError, StoreError, TurnConflictError
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, TurnId, TurnState
from locigraph.scripts.graphs import build_graph
from tests.fakes import FakeEncoder, FakeExtractor, make_conversation
from tests.kg.dumps import dump

SPACES = [SpaceId(name) for name in ("first", "second", "third")]


class PlainEncoder(FakeEncoder):
    """A fake with the little that ``build_graph`` asks beyond encoding."""

    adapter = None

    def without_adapter(self) -> PlainEncoder:
        return self


def corpus(*conversations: Conversation) -> Corpus:
    return Corpus("jsonl", "made.jsonl", "0", conversations, (), {})


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
    def plan(turn: Any, context: Any, complaint: Any) -> Any:
        if turn.space == "first":
            raise ConsolidationError("no plan")
        return FakeExtractor().plan(turn, context)

    with Store(tmp_path / "graph.sqlite") as store:
        failed = build_graph(corpus(*three()), FakeExtractor(plan), store, cast(Any, PlainEncoder()))
        assert {space: len(failures) for space, failures in failed.items()} == {"first": 2}
        assert all(store.turn_counts(space)[TurnState.PENDING] == 0 for space in SPACES)

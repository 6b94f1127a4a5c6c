"""Turns are consolidated while another process changes the same space."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from locigraph.assembly.build_context import HybridContext
from locigraph.consolidation.blueprint import AddNode, Blueprint, Mention, UpdateNode
from locigraph.consolidation.errors import ConsolidationError
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.merging import Merged, Merger
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.protocols import Context
from locigraph.kg.store import Store
from locigraph.kg.types import NodeId, SpaceId, Turn, TurnId, TurnState
from tests.consolidation import beside
from tests.fakes import MONDAY, SPACE, FakeContext, FakeEncoder, FakeExtractor, make_turn, make_turns
from tests.kg.dumps import QUEUE, dump

ROOT = Path(__file__).parents[2]
LATE = replace(make_turn(0, "old boat", session=0, spoken_at=MONDAY - timedelta(days=7)), turn_id=TurnId("late"))


def test_of_two_extractors_that_begin_at_the_same_time_only_one_builds_the_graph(tmp_path: Path) -> None:
    class Raced(Store):
        """A store of which another process builds a space just after it was found unbuilt."""

        def turns(self, space: SpaceId, *, state: TurnState | None = None) -> list[Turn]:
            found = super().turns(space, state=state)
            with Store(tmp_path / "graph.sqlite") as other:
                if not other.nodes(space):
                    Consolidator(other, FakeExtractor(name="first"), FakeEncoder(), FakeContext()).run(space)
            return found

    with Raced(tmp_path / "graph.sqlite") as raced:
        raced.append_turns([make_turn(0, "one")])
        with pytest.raises(ConsolidationError, match=r"space 'harbor' was built by 'first', not 'second'"):
            Consolidator(raced, FakeExtractor(name="second"), FakeEncoder(), FakeContext()).run(SPACE)
        assert raced.setting(f"extractor/{SPACE}") == "first"


def build_beside(path: Path, change: Callable[[], object]) -> int:
    """Build the space of ``beside`` by rules, with a change after some of its turns; returns how many were done."""
    done = 0

    def on_turn() -> None:
        nonlocal done
        done += 1
        if done == beside.AFTER:
            change()

    with Store(path) as store:
        store.append_turns(beside.TURNS)
        Consolidator(store, RuleExtractor(), beside.ENCODER, HybridContext(store, beside.ENCODER)).run(
            SPACE, on_turn=on_turn
        )
    return done


def build_around(path: Path, change: str) -> None:
    """The same by two builds, one that ends before the change, and one that begins after it."""

    def end() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_beside(path, end)
    with Store(path) as store:
        beside.CHANGES[change](store)
        Consolidator(store, RuleExtractor(), beside.ENCODER, HybridContext(store, beside.ENCODER)).run(SPACE)


@pytest.mark.long
@pytest.mark.parametrize("change", beside.CHANGES)
def test_what_changes_between_two_turns_is_seen_by_the_next_as_by_a_build_that_begins_then(
    change: str, tmp_path: Path
) -> None:
    build_around(tmp_path / "around.sqlite", change)
    with Store(tmp_path / "graph.sqlite") as other:
        build_beside(tmp_path / "graph.sqlite", lambda: beside.CHANGES[change](other))
        assert other.turn_counts(SPACE).keys() == {TurnState.DONE}
        assert other.misplaced() == {}
    without = (*QUEUE, "tombstones", "tombstone_marks", "settings")
    assert dump(tmp_path / "graph.sqlite", without=without) == dump(tmp_path / "around.sqlite", without=without)


def test_a_merge_by_another_process_is_seen_by_the_next_turn(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    command = [sys.executable, "-m", "tests.consolidation.beside", str(path), "resolve"]
    assert build_beside(path, lambda: subprocess.run(command, cwd=ROOT, check=True)) == len(beside.TURNS)
    with Store(path) as store:
        (merged,) = (n for n in store.nodes(SPACE, types=["entity"], include_archived=True) if n.status == "archived")
        kept = NodeId(str(merged.attributes["merged_into"]))
        assert (merged.label, merged.provenance) == ("Harbour Blue", ("t3", "t5"))
        assert store.node(SPACE, kept).provenance == ("t0", "t3", "t5", "t7", "t9")
        naming = {edge.source for edge in store.relations(SPACE, node=kept) if edge.label == "MENTIONS"}
        assert {turn for source in naming for turn in store.node(SPACE, source).provenance} == {
            "t0", "t3", "t5", "t7", "t9",
        }  # fmt: skip
        assert Merger(store, beside.ENCODER).run(SPACE) == Merged()


def test_a_reply_stands_if_what_was_shown_is_unchanged_and_is_asked_for_again_if_not(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    encoder = FakeEncoder(512)
    with Store(path) as store, Store(path) as other:
        store.append_turns(make_turns(["red boat", "boat red", "boat red", "boat red"]))

        def plan(turn: Turn, context: Context) -> Blueprint:
            if len(extractor.planned) == 3:  # the model takes its time over the third turn
                Merger(other, encoder).run(SPACE)
            if len(extractor.planned) == 4:  # and over the fourth
                other.forget(SPACE, [TurnId("t0")])
            repeated = (
                (UpdateNode(context.nodes[0].id),)
                if context.nodes
                else (AddNode("n", "knowledge_node", turn.text, (turn.turn_id,)),)
            )
            return Blueprint(repeated, (Mention(turn.text, "other"),))

        extractor = FakeExtractor(plan)
        Consolidator(store, extractor, encoder, HybridContext(store, encoder)).run(SPACE)
        assert extractor.planned == ["t0", "t1", "t2", "t3", "t3"]
        assert store.turn_counts(SPACE) == {TurnState.DONE: 3}
        described = {(n.type, n.description): n.provenance for n in store.nodes(SPACE) if n.type != "episode"}
        assert described == {("entity", "red boat"): ("t1", "t2", "t3"), ("knowledge_node", "boat red"): ("t3",)}


def test_a_reply_stands_if_a_late_turn_was_put_before_its_turn_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    with Store(path) as store, Store(path) as other:
        store.append_turns(make_turns(["red boat", "blue boat"]))

        def plan(turn: Turn, context: Context) -> Blueprint:
            if turn.turn_id == "t1" and not other.turn_counts(SPACE)[TurnState.PENDING] > 1:
                other.append_turns([LATE], most_redone=0)
            said = (AddNode("n", "knowledge_node", turn.text, (turn.turn_id,)),)
            return Blueprint(said if turn != LATE else ())  # of which the others are therefore shown nothing

        extractor = FakeExtractor(plan)
        Consolidator(store, extractor, FakeEncoder(), FakeContext()).run(SPACE)
        Consolidator(store, extractor, FakeEncoder(), FakeContext()).run(SPACE)
        assert sorted(extractor.planned) == ["late", "t0", "t1"]
        assert [turn.turn_id for turn in store.turns(SPACE, state=TurnState.DONE)] == ["late", "t0", "t1"]
        assert store.faults() == []


def test_a_late_turn_that_comes_between_the_reads_of_a_run_is_seen_by_it(tmp_path: Path) -> None:
    class Raced(Store):
        """A store to which another process adds a late turn, once the pending turns are read."""

        late: Turn | None = None

        def turns(self, space: SpaceId, *, state: TurnState | None = None) -> list[Turn]:
            found = super().turns(space, state=state)
            late, self.late = self.late, None
            if late is not None:
                with Store(tmp_path / "graph.sqlite") as other:
                    other.append_turns([late], most_redone=0)
            return found

        @contextmanager
        def reading(self) -> Iterator[None]:
            yield  # each read sees what there is by then, as on a server

    with Raced(tmp_path / "graph.sqlite") as raced:
        first, second = make_turns(["red boat", "blue boat"])
        consolidator = Consolidator(raced, RuleExtractor(), FakeEncoder(), FakeContext())
        raced.append_turns([first])
        consolidator.run(SPACE)
        raced.append_turns([second])
        raced.late = LATE
        consolidator.run(SPACE)
        consolidator.run(SPACE)
        assert [turn.turn_id for turn in raced.turns(SPACE, state=TurnState.DONE)] == ["late", "t0", "t1"]
        state = consolidator._cached_state
        assert state is not None
        assert [turn.turn_id for turn in state.turns] == ["late", "t0", "t1"]
        assert raced.faults() == []


def test_a_merger_and_a_build_may_run_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "graph.sqlite"
    names = [f"{word} boat" if turn % 2 else f"boat {word}" for turn in range(4) for word in ("red", "blue", "old")]
    encoder = FakeEncoder(512)
    with Store(path) as writer, Store(path) as other:
        writer.append_turns(make_turns([*names, *names]))
        extractor = FakeExtractor(lambda turn, context: Blueprint((), (Mention(turn.text, "other"),)))

        def consolidate(_: int) -> None:
            Consolidator(writer, extractor, encoder, HybridContext(writer, encoder)).run(SPACE)

        with ThreadPoolExecutor(1) as pool:
            building = pool.submit(consolidate, 0)
            while not building.done():
                Merger(other, encoder).run(SPACE)
            building.result()
        Merger(other, encoder).run(SPACE)
        assert Merger(other, encoder).run(SPACE) == Merged()
        entities = {n.label: n for n in other.nodes(SPACE, types=["entity"])}
        assert sorted(entities) == ["boat blue", "boat old", "boat red"]
        for entity in entities.values():
            edges = [edge for edge in other.relations(SPACE, node=entity.id) if edge.label == "MENTIONS"]
            assert len(edges) == len(entity.provenance) == 8

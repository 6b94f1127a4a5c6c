"""Questions that wait for nothing: what is kept in memory between them, and when it is not used any more."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph.assembly import search_parts
from locigraph.consolidation.pipeline import Consolidator
from locigraph.kg.errors import LocigraphError, UnknownSpaceError
from locigraph.kg.store import Store
from locigraph.kg.types import GraphChange, NodeId, NodeUpdate, Scope, SpaceId, TurnId
from locigraph.memory import Memory, Recalled
from locigraph.memory.known_nodes import KnownNodes
from locigraph.memory.parts import Parts
from locigraph.retrieval.index.hot_spaces import HotSpaces
from locigraph.retrieval.rerank import Reranker
from locigraph.training.live_embeddings import LiveEmbeddings
from tests.scripts.test_memory import SALE, opened

QUESTION: dict[str, Any] = {"question": "Who bought the bike?", "space": "ana"}


def settled(memory: Memory) -> None:
    """Ask until the space is kept in memory."""
    for _ in range(3):
        memory.recall(**QUESTION)


def at_once(memory: Memory, **changes: Any) -> Any:
    (found,) = memory.recall_at_once([QUESTION | changes])
    return found


def test_a_space_that_was_searched_is_answered_at_once_until_it_changes(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE, turn_id="t1")
        assert at_once(memory) is None
        settled(memory)
        assert at_once(memory).hits == memory.recall(**QUESTION).hits
        memory.add(**SALE | {"text": "Tom bought the red bike, too."}, turn_id="t2")
        assert at_once(memory) is None
        assert {hit.turn_ids for hit in memory.recall(**QUESTION)} >= {("t1",), ("t2",)}
        settled(memory)
        memory.forget(space="ana", turn_ids="t2")
        assert at_once(memory) is None
        assert ("t2",) not in {hit.turn_ids for hit in memory.recall(**QUESTION)}
        settled(memory)
        memory.forget(space="ana", whole_space=True)
        assert isinstance(at_once(memory), UnknownSpaceError)


@pytest.mark.parametrize("changes", [{"strategy": "v1"}, {"user": "ana", "space": None}])
def test_what_takes_more_than_a_search_is_not_answered_at_once(place: Path, changes: dict[str, Any]) -> None:
    with opened(place) as memory:
        memory.add(**SALE, user="ana")
        settled(memory)
        found = at_once(memory, **changes)
        assert found is None or "user" in changes
        assert memory.recall(**QUESTION | changes).hits


def test_a_context_is_packed_at_once_with_the_days_of_its_turns(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE | {"spoken_at": "2024-05-01T10:00"})
        settled(memory)
        with patch.object(Store, "snapshot", side_effect=AssertionError("the space is read")):
            found = at_once(memory, budget_tokens=100)
            assert str(found.context).startswith("[1 May 2024] Ana: I sold")


def test_a_change_by_another_connection_is_seen(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE, turn_id="t1")
        settled(memory)
        with Store(place / "memory.sqlite") as other:
            other.append_turns([_turn(memory, "t1", "t9")])
        found = memory.recall(**QUESTION)
        assert any("not consolidated yet" in note for note in found.notes)


def _turn(memory: Memory, like: str, name: str) -> Any:
    from dataclasses import replace

    (turn,) = [each for each in memory._graph.turns(SpaceId("ana")) if each.turn_id == like]
    return replace(turn, turn_id=TurnId(name), position=99)


def test_a_question_with_nothing_new_is_one_transaction(place: Path) -> None:
    begun: list[object] = []
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold bike number {number}."} for number in range(30)])
        settled(memory)
        sa.event.listen(memory._graph._engine, "begin", begun.append)
        assert memory.recall(**QUESTION).strategy == "v2"
        assert len(begun) == 1


def test_questions_are_answered_together_as_they_are_one_by_one(place: Path) -> None:
    asked = [
        QUESTION,
        QUESTION | {"space": "bo", "question": "What does Bo like?"},
        QUESTION | {"top_k": 1},
        QUESTION | {"space": "nobody"},
        QUESTION | {"question": " "},
        QUESTION | {"strategy": "bm25"},
        {"question": "Who sold a bike?", "user": "ana"},
    ]
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"Tom bought bike number {number}.", "user": "ana"} for number in range(5)])
        memory.add(**SALE | {"space": "bo", "speaker": "Bo", "text": "I like to sail to Corsica."})
        together = memory.recall_each(asked)
        again = memory.recall_each(asked)
        for question, *found in zip(asked, together, again, strict=True):
            try:
                alone: Any = memory.recall(**question).hits
            except LocigraphError as error:
                alone = str(error)
            assert [each.hits if isinstance(each, Recalled) else str(each) for each in found] == [alone, alone]


def test_several_spaces_that_are_due_are_made_durable_together(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from locigraph.retrieval.index.milvus_collection import Collection

    flushed: list[Collection] = []
    flush = Collection.flush

    def counted(self: Collection) -> None:
        flushed.append(self)
        flush(self)

    names = [f"user{number}" for number in range(4)]
    with opened(place) as memory:
        for _ in range(2):
            memory.add_many([SALE | {"space": name} for name in names])
            memory.recall_each([QUESTION | {"space": name} for name in names])
        monkeypatch.setattr(Collection, "flush", counted)
        memory.add_many([SALE | {"space": name, "text": "Tom bought a kite."} for name in names])
        monkeypatch.setattr(memory._parts, "drain", lambda: None)
        assert all(isinstance(each, Recalled) for each in memory.recall_each([QUESTION | {"space": n} for n in names]))
        assert len(flushed) == 1
        assert not memory._graph.changed_spaces()


@pytest.mark.parametrize("slow", ["load", "read"])
def test_no_question_waits_while_a_reranker_is_loaded_or_reads(
    place: Path, slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_end = threading.Event(), threading.Event()

    def wait(doing: str) -> None:
        if doing == slow:
            has_begun.set()
            assert may_end.wait(60)

    class Shortest(Reranker):
        depth = 10

        def read(self, query: str, texts: Sequence[str]) -> list[float]:
            wait("read")
            return [-float(len(text)) for text in texts]

    def load(model: str) -> Shortest:
        wait("load")
        return Shortest()

    monkeypatch.setattr(search_parts, "_reranker", load)
    with opened(place) as memory:
        memory.add_many([SALE, SALE | {"text": "Tom bought the red kite."}])
        found: list[Recalled] = []
        asking = threading.Thread(target=lambda: found.append(memory.recall(**QUESTION, reranker="default")))
        asking.start()
        assert has_begun.wait(60)
        plain = memory.recall(**QUESTION, strategy="bm25")  # which takes the same lock
        assert plain.hits
        assert not found
        memory.add(**SALE | {"text": "Ann bought a kite."})  # which is found, too
        may_end.set()
        asking.join(60)
    lengths = [len(hit.text) for hit in found[0].hits]
    assert lengths == sorted(lengths)
    assert len({*lengths}) > 1
    assert any("kite" in hit.text for hit in found[0].hits)
    assert found[0].timing.search_ms > 0


def test_a_question_about_another_space_waits_for_neither_an_addition_nor_an_update(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    consolidate, write = Consolidator._consolidate, LiveEmbeddings._write_due

    def held(method: Any) -> Any:
        def wait(*arguments: Any) -> Any:
            has_begun.set()
            assert may_end.wait(60)
            return method(*arguments)

        return wait

    with opened(place) as memory:
        memory.add(**SALE)
        settled(memory)
        for owner, name, method, work in (
            (Consolidator, "_consolidate", consolidate, lambda: memory.add(**SALE | {"space": "bo"})),
            (LiveEmbeddings, "_write_due", write, lambda: memory.recall("bike", space="bo")),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, held(method))
                thread = threading.Thread(target=work)
                thread.start()
                assert has_begun.wait(60)
                found = memory.recall(**QUESTION)
                assert found.hits
                assert not found.notes
                may_end.set()
                thread.join(60)
            has_begun.clear()
            may_end.clear()


@pytest.mark.long
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=st.lists(st.sampled_from(["add", "forget", "recall", "recall", "both"]), min_size=2, max_size=9))
def test_whatever_is_done_in_between_answers_are_those_of_a_memory_that_keeps_nothing(
    steps: list[str], place: Path
) -> None:
    name, number, held = f"{uuid.uuid4().hex}.sqlite", 0, ["first"]
    with opened(place, name) as memory:
        memory.add(**SALE, turn_id="first")
        for step in steps:
            if step in ("add", "both"):
                number += 1
                held.append(memory.add(**SALE | {"text": f"Tom bought bike number {number}."}))
            if step == "forget" and len(held) > 1:
                memory.forget(space="ana", turn_ids=held.pop())
            found = memory.recall(**QUESTION, fold=None)
            memory._parts._known.drop([SpaceId("ana")])
            memory._parts.require_live().drop([SpaceId("ana")])
            again = memory.recall(**QUESTION, fold=None)  # read from the index, which adds up in another order
            assert [hit.score for hit in found] == pytest.approx([hit.score for hit in again], abs=1e-5)
            assert [replace(hit, score=0, signals={}, confidence=0) for hit in found] == [
                replace(hit, score=0, signals={}, confidence=0) for hit in again
            ]
            assert {hit.turn_ids for hit in found} == {(turn,) for turn in held}


def test_known_nodes_are_read_once_as_long_as_their_space_stands_and_only_so_many_are_kept(place: Path) -> None:
    with opened(place) as memory:
        for space in ("ana", "bo"):
            memory.add_many([SALE | {"space": space, "text": f"Bike {each} is red."} for each in range(3)])
        graph = memory._graph
        known = KnownNodes(graph, most=2_000)
        nodes = {space: [node.id for node in graph.nodes(space, types=["episode"])] for space in graph.spaces()}
        stands = graph.standings()
        assert stands[SpaceId("ana")].scope == Scope()
        first = known.of(SpaceId("ana"), stands[SpaceId("ana")], nodes[SpaceId("ana")])
        assert {each.text for each in first.values()} == {f"Ana: Bike {each} is red." for each in range(3)}
        assert {each.speakers for each in first.values()} == {frozenset(["Ana"])}
        assert known.of(SpaceId("ana"), stands[SpaceId("ana")], nodes[SpaceId("ana")]) is first
        known.of(SpaceId("bo"), stands[SpaceId("bo")], nodes[SpaceId("bo")])  # takes the place of the others
        assert known.of(SpaceId("ana"), stands[SpaceId("ana")], nodes[SpaceId("ana")]) is not first
        gone = known.of(SpaceId("bo"), stands[SpaceId("bo")], [NodeId("nobody")])[NodeId("nobody")]
        assert (gone.text, gone.speakers) == (None, frozenset())


SAID = [
    "My favourite tea is Assam.", "Who knows?", "My favourite tea is Darjeeling.", "The rent is 900 now.",
    "Tom sold the boat.", "The rent is 950 now.", "My favourite tea is Ceylon.", "Tom bought another boat.",
]  # fmt: skip


@pytest.mark.long
@given(steps=st.lists(st.sampled_from([*SAID, "forget", "keep"]), min_size=2, max_size=9))
@settings(max_examples=25, deadline=None)
def test_what_is_kept_of_nodes_is_what_a_new_reader_reads_whatever_has_changed_in_between(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Memory.open(tmp_path_factory.mktemp("known") / "memory.sqlite", checkpoint=None) as memory:
        memory.add(**SALE, turn_id="first")
        kept = KnownNodes(memory._graph)
        for number, step in enumerate(steps):
            if step == "forget":
                turns = [turn.turn_id for turn in memory.turns("ana") if turn.turn_id != "first"]
                if turns:
                    memory.forget(space="ana", turn_ids=turns[:1])
            elif step == "keep":
                memory.set_retention("ana", days=3_000 + number)
            else:
                memory.add(space="ana", session="s1", speaker="Ana", text=step, turn_id=f"t{number}")
            graph, space = memory._graph, SpaceId("ana")
            standing = graph.standings([space])[space]
            nodes = [node.id for node in graph.nodes(space, include_archived=True)]
            known = kept.of(space, standing, nodes)
            assert {node: known[node] for node in nodes} == KnownNodes(graph).of(space, standing, nodes)


def test_what_is_kept_knows_that_what_replaced_a_node_was_worded_anew(place: Path) -> None:
    with opened(place) as memory:
        for number, text in enumerate(["My favourite tea is Assam.", "My favourite tea is Darjeeling.", "Who knows?"]):
            memory.add(space="ana", session="s1", speaker="Ana", text=text, turn_id=f"t{number}")
        graph, space = memory._graph, SpaceId("ana")
        facts = {node.description: node for node in graph.nodes(space, types=["knowledge_node"], include_archived=True)}
        (newer,) = (node for text, node in facts.items() if "Darjeeling" in text)
        nodes = [node.id for node in graph.nodes(space, include_archived=True)]
        kept = KnownNodes(graph)
        before = kept.of(space, graph.standings([space])[space], nodes)
        update = NodeUpdate(newer.id, description="Ana now prefers Darjeeling.", add_provenance=(TurnId("t2"),))
        graph.commit(GraphChange(space, datetime(2024, 1, 2, tzinfo=UTC), updates=(update,)))
        standing = graph.standings([space])[space]
        known = kept.of(space, standing, nodes)
        assert {node: known[node] for node in nodes} == KnownNodes(graph).of(space, standing, nodes)
        told = [{by.said.turn_id for each in of.values() for by in each.replaced} for of in (before, known)]
        assert told == [{"t1"}, {"t1", "t2"}]


def test_an_error_of_one_question_names_nothing_of_the_spaces_of_others_that_are_asked_with_it(place: Path) -> None:
    with opened(place) as memory:
        memory.add(**SALE, user="ana")
        memory.add(**SALE | {"space": "bo"}, user="secret")
        for ask in (memory.recall_at_once, memory.recall_each):
            refused, _ = ask([QUESTION | {"user": "sacret"}, QUESTION | {"space": "bo"}])
            assert isinstance(refused, LocigraphError)
            assert "secret" not in str(refused)


def test_a_space_that_is_dropped_while_it_is_searched_is_asked_in_the_index(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = HotSpaces.search

    def dropped(self: HotSpaces, *arguments: Any, **options: Any) -> Any:
        self.drop([SpaceId("ana")])
        return search(self, *arguments, **options)

    with opened(place) as memory:
        memory.add(**SALE)
        settled(memory)
        expected = memory.recall(**QUESTION)
        with monkeypatch.context() as patch:
            patch.setattr(HotSpaces, "search", dropped)
            assert memory.recall_at_once([QUESTION]) == [None]
            (found,) = memory.recall_each([QUESTION])
        assert isinstance(found, Recalled)
        assert [hit.turn_ids for hit in found] == [hit.turn_ids for hit in expected]


def test_spaces_that_were_brought_up_to_date_together_are_then_only_searched(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["ana", "bo"]
    questions = [QUESTION | {"space": name} for name in names]
    with opened(place) as memory:
        memory.add_many([SALE | {"space": name} for name in names])
        for _ in range(3):
            memory.recall_each(questions)
        memory.add_many([SALE | {"space": name, "text": "Tom bought a kite."} for name in names])
        monkeypatch.setattr(Parts, "retriever", lambda *_: pytest.fail("each of them is brought up to date again"))
        assert [len(found) for found in memory.recall_each(questions) if isinstance(found, Recalled)] == [2, 2]


def test_a_space_of_which_something_was_left_is_consolidated_before_anybody_sees_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place) as memory:
        memory.add(**SALE, turn_id="t1")
        settled(memory)
        memory._graph.append_turns([_turn(memory, "t1", "t2")])  # as by an addition that was cut
        assert any("not consolidated yet" in note for note in memory.recall(**QUESTION).notes)
        seen = []
        consolidate = Consolidator._consolidate

        def watched(self: Consolidator, *arguments: Any) -> None:
            seen.append(memory.is_rebuilding("ana"))
            seen.append(memory.recall_at_once([QUESTION]) == [None])
            consolidate(self, *arguments)

        with monkeypatch.context() as patch:
            patch.setattr(Consolidator, "_consolidate", watched)
            memory.add(**SALE | {"text": "Tom bought a kite."}, turn_id="t3")
        assert seen == [True] * 4
        assert not memory.recall(**QUESTION).notes
        assert len(memory.recall(**QUESTION, fold=None)) == 3


def test_additions_of_several_threads_leave_no_count_behind(place: Path) -> None:
    with opened(place) as memory:
        threads = [
            threading.Thread(
                target=lambda number=number: [
                    memory.add(**SALE | {"space": f"s{each % 3}", "text": f"{number} {each}"}) for each in range(4)
                ]
            )
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not memory._being_added
        assert sum(len(memory._graph.turns(space)) for space in memory.spaces()) == 16


def test_a_question_with_an_unknown_argument_is_refused_in_words(place: Path) -> None:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        said = [str(each) for each in memory.recall_each([{"question": "x", "topk": 3}, {"space": "a"}])]
    assert said == ["argument 'topk' is not known; nearest is 'top_k'", "argument question is missing"]

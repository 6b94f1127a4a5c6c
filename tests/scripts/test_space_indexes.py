from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph import Memory
from locigraph.assembly import graphs, opening
from locigraph.assembly.search_parts import SearchParts
from locigraph.assembly.settings import EncoderSettings, IndexSettings
from locigraph.assembly.space_indexes import KeptIndexes, SpaceIndexes
from locigraph.kg.schema import EPISODE
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import Said, SpaceId, TurnId
from locigraph.memory.known_turns import KnownTurns
from locigraph.research.contenders import CONTENDERS, made_of
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.milvus_collection import Collection
from locigraph.retrieval.index.scoped_vectors import ScopedVectors
from locigraph.retrieval.protocols import SearchFilter
from tests.fakes import MONDAY, SPACE, FakeEncoder, make_turns, side_by_side
from tests.kg.test_snapshot import planted
from tests.scripts.test_memory import SALE, Adapted, opened

STRATEGIES = ["v1", "bm25", "dense", "v1-adapted"]


class CountingStore(Store):
    """Counts the snapshots that are read."""

    reads = 0

    def snapshot(self, space: SpaceId, **options: Any) -> Snapshot:
        self.reads += 1
        return super().snapshot(space, **options)


def made(store: Store, *spaces: str) -> list[SpaceId]:
    turn = make_turns(["I sold the bike"])[0]
    store.append_turns([replace(turn, space=SpaceId(space)) for space in spaces])
    return [SpaceId(space) for space in spaces]


def opened_adapted(place: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setattr(opening, "text_encoder", lambda settings: Adapted("fake+1", cache=place / "cache.sqlite"))
    return Memory.open(place / "memory.sqlite", encoder=EncoderSettings(adapter="a"), checkpoint=None)


def test_without_an_index_a_strategy_finds_in_memory_what_it_finds_in_the_index(place: Path) -> None:
    path, encoder = str(place / "memory.sqlite"), opening.text_encoder(EncoderSettings())
    with opened(place) as memory:
        memory.add_many(
            [SALE | {"text": f"I sold the {thing}.", "turn_id": thing} for thing in ("boat", "sail", "oar")]
        )
    ana = SpaceId("ana")
    with (
        Store(path) as store,
        opening.vector_index(IndexSettings(), store) as index,
        SearchParts(store, encoder, spaces=[ana], index=index) as parts,
        SearchParts(store, encoder, spaces=[ana]) as in_memory,
    ):
        learnt = {name for name, row in CONTENDERS.items() if row.is_trained or row.needs_checkpoint}
        searching = [name for name, row in CONTENDERS.items() if row.needs_index and name not in learnt]
        assert {"v1", "dense"} <= {*searching}
        for name in searching:
            indexed, exact = (
                made_of(each, [name])[name].retrieve("a boat", ana, top_k=9) for each in (parts, in_memory)
            )
            assert [replace(hit, score=0.0, signals={}) for hit in indexed.hits] == [
                replace(hit, score=0.0, signals={}) for hit in exact.hits
            ]
            assert [hit.score for hit in indexed.hits] == pytest.approx([hit.score for hit in exact.hits])
            assert len(exact.hits) >= 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_added_or_forgotten_is_seen_by_the_very_next_recall(
    strategy: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened_adapted(place, monkeypatch) as memory:

        def found(**scope: object) -> set[str]:
            hits = memory.recall("Which boat?", top_k=99, fold=None, strategy=strategy, **scope)  # type: ignore[arg-type]
            return {turn for hit in hits for turn in hit.turn_ids}

        for number in range(4):
            memory.add(**SALE | {"text": f"The boat {number} is red.", "turn_id": f"t{number}", "user": "ana"})
            expected = {f"t{each}" for each in range(number + 1)}
            assert found(space="ana") == found(space="ana") == found(user="ana") == expected
        memory.forget(space="ana", turn_ids=["t1"])
        assert found(space="ana") == found(user="ana") == {"t0", "t2", "t3"}
        memory.forget(space="ana", whole_space=True)
        memory.add(**SALE | {"text": "Another boat is blue.", "turn_id": "t9", "user": "ana"})
        assert found(space="ana") == found(user="ana") == {"t9"}


def test_threads_see_what_they_have_added_whoever_else_asks(place: Path) -> None:
    def work(number: int) -> None:
        for turn in range(4):
            name = f"{number}:{turn}"
            memory.add(**SALE | {"session": f"s{number}", "turn_id": name, "text": f"Boat {number} {turn} is red."})
            for strategy in ("v1", "bm25"):
                hits = memory.recall("boat", space="ana", strategy=strategy, top_k=99, fold=None)
                assert name in {each for hit in hits for each in hit.turn_ids}

    with opened(place) as memory:
        side_by_side(work, 3)


def test_a_space_that_does_not_change_is_read_and_its_rows_are_counted_once(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, reads = [0], [0]
    count, snapshot = Collection.count, Store.snapshot

    def counting(held: list[int], method: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **options: object) -> object:
            held[0] += 1
            return method(*args, **options)

        return counted

    monkeypatch.setattr(Collection, "count", counting(counts, count))
    monkeypatch.setattr(Store, "snapshot", counting(reads, snapshot))
    with opened_adapted(place, monkeypatch) as memory:
        memory.add(**SALE)
        reads[0] = 0
        for strategy in ("v1", "v1-adapted"):
            for _ in range(3):
                memory.recall("Who bought the bike?", space="ana", strategy=strategy, budget_tokens=50)
        assert (reads, counts) == ([2], [1])  # without embeddings, and with those of the adapter
        memory._parts.index()._opened.clear()  # as where a collection was made anew
        memory.recall("Who bought the bike?", space="ana", strategy="v1")
        assert counts == [2]


def test_indexes_are_kept_until_a_space_changes_or_something_of_it_is_forgotten(tmp_path: Path) -> None:
    with CountingStore(tmp_path / "graph.sqlite") as store:
        ana, bo = made(store, "ana", "bo")
        kept = KeptIndexes(store)
        one, both = kept.of([ana], is_joint=False), kept.of([ana, bo], is_joint=True)
        assert kept.of([ana], is_joint=False) is one
        assert kept.of([ana, bo], is_joint=True) is both
        assert kept.of([ana], is_joint=True) is not one
        kept.drop([bo])
        assert kept.of([ana], is_joint=False) is one
        assert kept.of([ana, bo], is_joint=True) is not both
        store.forget(ana, [TurnId("t0")])
        assert kept.of([ana], is_joint=False) is not one


WORDS = ["I sold the boat.", "I live in Rome.", "I live in Oslo.", "Tom bought the oar.", "The boat is red.", "Really?"]
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "late", "forget"]), st.integers(0, len(WORDS) - 1)),
    min_size=2,
    max_size=7,
)


def turn_at(day: datetime, number: int = 0, text: str = WORDS[0]) -> dict[str, Any]:
    return {"turn_id": f"t{number}", "spoken_at": day, "session": f"s{number}", "text": text}


def _of_even_turns(said: Said, kind: str) -> bool:
    return int(said.turn_id[1:]) % 2 == 0


@pytest.mark.long
@pytest.mark.parametrize("redone", [0, 99])  # late turns are put between the others, or all consolidated again
@given(STEPS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_kept_of_a_space_and_took_over_changes_equals_what_is_read_anew(
    redone: int, place: Path, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[str, int]]
) -> None:
    monkeypatch.setattr(graphs, "_MOST_REDONE", redone)
    encoder, ana, day = opening.text_encoder(EncoderSettings()), SpaceId("ana"), datetime(2024, 5, 1, tzinfo=UTC)
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory.open(Path(folder) / "memory.sqlite", checkpoint=None) as memory,
        Store(Path(folder) / "memory.sqlite") as store,
    ):
        memory.add(**SALE | turn_at(day))
        kept, filtered, held = KeptIndexes(store), KnownTurns(store), ["t0"]
        for number, (step, word) in enumerate(steps, start=1):
            used = kept.of([ana], is_joint=False)
            used.words.load(ana)
            used.words_of_turns.load(ana)
            used.vectors(encoder)
            if step == "forget" and len(held) > 1:
                memory.forget(space="ana", turn_ids=[held.pop()])
            else:
                at = day + timedelta(days=number if step == "add" else -number)
                memory.add(**SALE | turn_at(at, number, WORDS[word]))
                held.append(f"t{number}")
            taken, anew = kept.of([ana], is_joint=False), SpaceIndexes(store, [ana])
            for asked in (*WORDS, "Where does Ana live?"):
                for words in ("words", "words_of_turns"):
                    ours, theirs = getattr(taken, words), getattr(anew, words)
                    assert ours.search(asked, ana, top_k=99) == theirs.search(asked, ana, top_k=99)
                    assert ours.last_day(ana) == theirs.last_day(ana)
                scope = SearchFilter(ana, None, None)
                near = [
                    each.vectors(encoder).search(encoder.encode([asked])[0], scope, top_k=99) for each in (taken, anew)
                ]
                assert near[0] == near[1]
            standing = store.standings([ana])[ana]
            for kind in (None, EPISODE):
                ours, theirs = (
                    each.satisfying(ana, standing, _of_even_turns, "even", kind)
                    for each in (filtered, KnownTurns(store))
                )
                assert ours == theirs


def test_after_an_addition_only_what_is_new_is_read_and_no_row_is_counted(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold boat {n}.", "turn_id": f"t{n}"} for n in range(20)])
        memory.recall("Who sold a boat?", space="ana", strategy="v1")
        read: list[int] = []
        snapshot = Store.snapshot

        def counted(self: Store, *arguments: Any, **options: Any) -> Snapshot:
            found = snapshot(self, *arguments, **options)
            read.append(found.num_nodes)
            return found

        memory.add(**SALE | {"text": "I sold boat 20.", "turn_id": "t20"})
        with monkeypatch.context() as patch:
            patch.setattr(Store, "snapshot", counted)
            patch.setattr(Collection, "count", lambda *_: pytest.fail("rows were counted"))
            found = memory.recall("Who sold boat 20?", space="ana", strategy="v1")
        assert "t20" in found.hits[0].turn_ids
        assert len(read) == 1
        assert read[0] < 10


def test_what_another_process_wrote_to_another_index_is_missed_aloud(place: Path) -> None:
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold boat {n}.", "turn_id": f"t{n}"} for n in range(20)])
        memory.recall("Who sold a boat?", space="ana", strategy="v1")
        other = IndexSettings(uri=str(place / "other.db"))
        with Memory.open(place / "memory.sqlite", index=other, checkpoint=None) as beside:
            beside.add(**SALE | {"text": "I sold boat 20.", "turn_id": "t20"})
            beside.recall("Who sold boat 20?", space="ana", strategy="v1")
        with pytest.raises(IndexMismatchError, match="verify --rebuild true"):
            memory.recall("Who sold boat 20?", space="ana", strategy="v1")


@pytest.mark.long
def test_threads_that_ask_with_filters_while_turns_are_added_see_them_all(place: Path) -> None:
    def work(number: int) -> None:
        for turn in range(12):
            if number == 0:
                added: dict[str, Any] = {"turn_id": f"x{turn}", "text": f"Boat {turn} is red.", "metadata": {"n": turn}}
                memory.add(**SALE | added)
            named = {"n": {"$gte": 100 * number + turn}}
            found = memory.recall("boat", space="ana", filter=named, strategy=(None, "v1")[number % 2])
            assert number == 0 or not found.hits

    with opened(place) as memory:
        memory.add(**SALE)
        side_by_side(work, 4)
        assert len(memory.recall("boat", space="ana", filter={"n": {"$gte": 0}}, top_k=99, fold=None).hits) >= 12


def test_a_space_that_is_gone_and_comes_back_is_read_anew(tmp_path: Path) -> None:
    with Store(tmp_path / "graph.sqlite") as store:
        (ana,) = made(store, "ana")
        kept = KeptIndexes(store)
        kept.of([ana], is_joint=False).words.load(ana)
        store.forget_spaces([ana])
        gone = kept.of([ana], is_joint=False)
        store.restore(ana)
        made(store, "ana")
        assert kept.of([ana], is_joint=False) is not gone


def test_a_search_as_of_a_time_compares_with_the_wordings_of_that_time(tmp_path: Path) -> None:
    encoder: Any = FakeEncoder()
    with Store(tmp_path / "graph.sqlite") as store:
        fact = planted(store, encoder)["f"]  # "Ann lives in Porto", and a week later "Ann lives in Lisbon"
        indexes = SpaceIndexes(store, [SPACE])
        search = ScopedVectors(
            indexes.vectors(encoder), lambda space, as_of: indexes.past_vectors(space, as_of, encoder)
        )

        def cosine(text: str, as_of: datetime | None) -> float:
            scope = SearchFilter(SPACE, None, as_of)
            return next(m.score for m in search.search(encoder.encode([text])[0], scope, top_k=9) if m.node_id == fact)

        old, new = "Ann lives in Porto", "Ann lives in Lisbon"
        assert cosine(old, MONDAY) == pytest.approx(1)
        assert cosine(new, MONDAY) < 0.99
        for as_of in (None, MONDAY + timedelta(days=9)):
            assert cosine(new, as_of) == pytest.approx(1)
        assert indexes.past_vectors(SPACE, MONDAY, encoder) is indexes.past_vectors(SPACE, MONDAY, encoder)
        assert indexes.past_vectors(SPACE, MONDAY + timedelta(days=9), encoder) is None


def test_a_pending_turn_moves_the_day_from_which_a_question_counts(tmp_path: Path) -> None:
    with Store(tmp_path / "graph.sqlite") as store:
        first, second = make_turns(["I sold the bike", "To whom?"])
        store.append_turns([first])
        kept = KeptIndexes(store)
        day = kept.of([first.space], is_joint=False).words.last_day(first.space)
        assert second.spoken_at is not None
        later = replace(second, spoken_at=second.spoken_at.replace(year=second.spoken_at.year + 1))
        store.append_turns([later])
        assert day is not None
        assert kept.of([first.space], is_joint=False).words.last_day(first.space) == later.spoken_at.date() != day  # type: ignore[union-attr]


def test_indexes_that_were_not_asked_for_longest_make_room(place: Path) -> None:
    with opened_store(place) as store:
        ana, bo, eve = store.spaces()
        kept = KeptIndexes(store, most=store.snapshot(ana).num_nodes * 2)
        held = {}
        for space in (ana, bo, eve):
            held[space] = kept.of([space], is_joint=False)
            held[space].snapshot(space, None)
        assert kept.of([eve], is_joint=False) is held[eve]
        assert kept.of([bo], is_joint=False) is held[bo]
        assert kept.of([ana], is_joint=False) is not held[ana]
        alone = KeptIndexes(store, most=0)
        last = alone.of([ana], is_joint=False)
        last.snapshot(ana, None)
        assert alone.of([ana], is_joint=False) is last


def opened_store(place: Path) -> Store:
    with Memory.open(place / "memory.sqlite", checkpoint=None) as memory:
        for space in ("ana", "bo", "eve"):
            memory.add(**SALE | {"space": space})
    return Store(place / "memory.sqlite")


def test_a_space_that_is_too_large_to_be_kept_puts_out_no_other(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(place) as memory:
        memory.add_many([SALE | {"text": f"I sold boat {n}.", "turn_id": f"t{n}"} for n in range(20)])
        ana, store, read = SpaceId("ana"), memory._graph, list[str | None]()
        said_in = Store.said_in

        def counted(self: Store, space: SpaceId, node_type: str | None = None, **options: Any) -> Any:
            read.append(node_type)
            return said_in(self, space, node_type, **options)

        monkeypatch.setattr(Store, "said_in", counted)
        known, standing = KnownTurns(store, most=25), store.standings([ana])[ana]
        for _ in range(2):
            for kind in (EPISODE, None):  # of all types there are more than are kept
                known.satisfying(ana, standing, _of_even_turns, "even", kind)
        assert read == [EPISODE, None, None]

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.pipeline import Consolidator
from locigraph.gnn.sketch import LexicalStatistics
from locigraph.kg.store import Store
from locigraph.kg.types import NodeId, SpaceId, Turn, TurnId
from locigraph.retrieval.errors import IndexMismatchError, IndexUnavailableError
from locigraph.retrieval.index.descriptions import DescriptionIndexer, Difference
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.hot_spaces import HotSpaces
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection, CollectionSpec, IndexRow
from locigraph.retrieval.protocols import SearchFilter
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.errors import StaleEmbeddingsError
from locigraph.training.inference import encode_graph
from locigraph.training.live_embeddings import Drift, LiveEmbeddings
from tests.fakes import OTHER_SPACE, SPACE, FakeContext, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, small_checkpoint

ENCODER = FakeEncoder(TEXT_DIM)
SAID = (
    ["I sold the blue bike to Tom.", "My favourite colour is green.", "I moved to Boston last week."],
    ["I work as a carpenter now.", "Tom repaired the bike on Monday."],
)
TURNS = {space: make_turns(*SAID, space=space) for space in (SPACE, OTHER_SPACE)}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusIndex]:
    with MilvusIndex(str(tmp_path_factory.mktemp("live") / "index.db")) as made:
        yield made


class Place:
    """A store, an index and what keeps the one equal to the other."""

    def __init__(self, path: Path, index: MilvusIndex, checkpoint: Checkpoint | None = None, **options: Any) -> None:
        self.store = Store(path)
        self.index = index
        self.checkpoint = checkpoint or small_checkpoint(text_encoder=ENCODER.model_id)
        self.live = LiveEmbeddings(self.store, index, self.checkpoint, ENCODER, **options)

    def say(self, *turns: Turn) -> None:
        self.store.append_turns(turns)
        for space in {turn.space for turn in turns} & {*self.store.spaces()}:
            Consolidator(self.store, RuleExtractor(), ENCODER, FakeContext()).run(space)

    def forget(self, space: SpaceId, *turn_ids: TurnId) -> None:
        self.store.forget(space, turn_ids)
        DescriptionIndexer(self.store, self.index, ENCODER.model_id).drain()

    def collection(self) -> Collection:
        return self.index.open(GRAPH_ALIAS)


def counts_of(place: Place, space: SpaceId) -> LexicalStatistics | None:
    content = place.store.word_statistics(space)
    return None if content is None else LexicalStatistics.from_bytes(content)


@pytest.fixture
def place(opened: MilvusIndex, tmp_path: Path) -> Iterator[Place]:
    opened.clear(".*", "")
    made = Place(tmp_path / "graph.sqlite", opened)
    with closing(made.store):
        yield made


def test_graph_embeddings_of_another_store_are_refused_and_stay_in_use(place: Place, tmp_path: Path) -> None:
    place.say(*TURNS[SPACE][:3])
    place.live.update()
    in_use = place.index.alias_target(GRAPH_ALIAS)
    other = Place(tmp_path / "other.sqlite", place.index)
    with closing(other.store):
        other.say(*TURNS[SPACE][:3])
        for action in (other.live.update, other.live.refresh, lambda: other.live.collection([SPACE])):
            with pytest.raises(IndexMismatchError, match="holds the graph embeddings of another store"):
                action()
    assert place.index.alias_target(GRAPH_ALIAS) == in_use
    assert place.live.collection([SPACE]).count() == 3


def test_what_another_process_has_refreshed_with_another_checkpoint_stays_in_use(place: Place) -> None:
    place.say(*TURNS[SPACE][:3])
    place.live.update()
    other = small_checkpoint(seed=1, text_encoder=ENCODER.model_id)
    LiveEmbeddings(place.store, place.index, other, ENCODER).refresh()
    in_use = place.index.alias_target(GRAPH_ALIAS)
    place.say(TURNS[SPACE][3])
    for action in (place.live.update, lambda: place.live.current(place.store.standings([SPACE]))):
        with pytest.raises(StaleEmbeddingsError, match=f"checkpoint '{other.version}' in use.*open the memory again"):
            action()
    assert place.index.alias_target(GRAPH_ALIAS) == in_use
    place.live.refresh()  # who asks for it gets it
    assert place.collection().version == place.checkpoint.version


def test_a_new_turn_is_encoded_with_its_space_and_no_other(place: Place) -> None:
    place.say(*TURNS[SPACE][:3], *TURNS[OTHER_SPACE][:3])
    assert place.live.update() == 2
    before = place.index.alias_target(GRAPH_ALIAS)
    encoded: list[int] = []
    place.checkpoint.network.nodes.register_forward_pre_hook(lambda _, args: encoded.append(args[0].num_turns))
    place.say(TURNS[SPACE][3])
    assert place.live.update() == 1
    assert encoded == [4]  # all of so small a space, since its words are counted again
    assert place.index.alias_target(GRAPH_ALIAS) == before
    assert place.live.collection([SPACE]).count(SPACE) == 4
    assert place.live.update() == 0


def test_a_space_that_has_changed_is_refused_until_it_is_written(place: Place) -> None:
    with pytest.raises(StaleEmbeddingsError, match="no graph embeddings of checkpoint"):
        place.live.collection([SPACE])
    place.say(*TURNS[SPACE][:3], *TURNS[OTHER_SPACE][:3])
    place.live.update()
    place.say(TURNS[SPACE][3])
    with pytest.raises(StaleEmbeddingsError, match=r"space 'harbor': 3 of 4 turns have graph embeddings"):
        place.live.collection([SPACE])
    assert place.live.collection([OTHER_SPACE]).count(OTHER_SPACE) == 3


def test_a_space_that_is_asked_is_brought_up_to_date_and_others_are_left(place: Place) -> None:
    place.say(*TURNS[SPACE][:3], *TURNS[OTHER_SPACE][:3])
    place.live.current(place.store.standings([SPACE]))
    assert place.collection().count(SPACE) == 3  # the first collection, which holds every space
    place.say(TURNS[SPACE][3], TURNS[OTHER_SPACE][3])
    place.live.current(place.store.standings([SPACE]))
    found = place.collection()
    assert (found.count(SPACE), found.count(OTHER_SPACE)) == (4, 3)
    assert [*place.store.changed_spaces()] == [OTHER_SPACE]


def test_a_write_that_is_cut_is_done_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.say(*TURNS[SPACE][:3])
    place.live.update()
    place.say(TURNS[SPACE][3])
    with monkeypatch.context() as patch:
        patch.setattr(Collection, "flush", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            place.live.update()
    assert SPACE in place.store.changed_spaces()
    assert place.live.update() == 1
    assert [found.is_clean for found in place.live.verify()] == [True]


def test_what_arrives_while_a_refresh_runs_is_in_it(place: Place) -> None:
    place.say(*TURNS[SPACE][:3], *TURNS[OTHER_SPACE][:3])
    late = [TURNS[OTHER_SPACE][3]]

    def arrive(*_: object) -> None:
        if late:
            place.say(late.pop())

    place.checkpoint.network.nodes.register_forward_pre_hook(arrive)
    place.live.refresh()
    assert place.collection().count(OTHER_SPACE) == 4
    assert place.store.changed_spaces() == {}
    assert all(found.is_clean for found in place.live.verify())


def test_verify_sees_a_vector_that_is_not_what_the_checkpoint_gives(place: Place) -> None:
    place.say(*TURNS[SPACE])
    place.live.update()
    collection = place.collection()
    rows, keys = collection.rows(SPACE), collection.node_keys(SPACE)
    vectors = collection.vectors(SPACE, keys)
    collection.upsert([rows[keys[0]]], vectors[keys[1]][None])
    assert [(found.missing, found.surplus, found.changed) for found in place.live.verify()] == [(0, 0, 1)]


ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "ask", "forget", "update", "refresh"]), st.sampled_from([SPACE, OTHER_SPACE])
    ),
    max_size=8,
)


@pytest.mark.long
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(actions=ACTIONS, tolerance=st.sampled_from([0.0, 5e-4]), data=st.data())
def test_after_any_appends_forgets_and_refreshes_the_collection_is_that_of_the_whole_graph_but_for_the_tolerance(
    opened: MilvusIndex, tmp_path: Path, actions: list[tuple[str, SpaceId]], tolerance: float, data: st.DataObject
) -> None:
    opened.clear(".*", "")
    place = Place(tmp_path / f"{data.draw(st.uuids())}.sqlite", opened, tolerance=tolerance)
    with closing(place.store):
        left = {space: list(turns) for space, turns in TURNS.items()}
        place.say(left[SPACE].pop(0), left[OTHER_SPACE].pop(0))
        for action, space in actions:
            if action == "say" and left[space]:
                place.say(left[space].pop(data.draw(st.integers(0, len(left[space]) - 1))))
            elif action == "forget" and len(held := place.store.turns(space)) > 1:
                place.forget(space, data.draw(st.sampled_from([turn.turn_id for turn in held])))
            elif action == "ask":
                place.live.current(place.store.standings([space]))
            elif action == "update":
                place.live.update()
            elif action == "refresh":
                place.live.refresh()
        place.live.update()
        assert all(found.is_clean for found in place.live.verify())
        assert place.store.misplaced() == {}
        spaces = [space for space in TURNS if space in place.store.spaces()]
        for is_counted_again in (False, True):  # a refresh counts the words of every space again
            if is_counted_again:
                place.live.refresh()
            live = place.collection()
            for space in spaces:
                counts = None if is_counted_again else counts_of(place, space)
                snapshot = place.store.snapshot(space, embedding_model=ENCODER.model_id)
                rows, vectors = encode_graph(place.checkpoint, snapshot, statistics=counts)
                kept = live.vectors(space, live.node_keys(space))
                assert [*kept] == snapshot.keys[rows].tolist()
                for key, vector in zip(kept, vectors, strict=True):
                    assert np.linalg.norm(kept[key] - vector) <= (tolerance + 1e-5) * np.linalg.norm(vector)
            assert sorted(live.counts()) == sorted(spaces)


WORDS = ("canoe", "kite", "drum", "violin", "otter", "pear", "rocket", "sofa", "tulip", "wagon")


def long_talk(count: int) -> tuple[Turn, ...]:
    """Turns in sessions of seven, with facts, events and topics that come back."""
    lines = [
        f"I bought a red {WORDS[i % 10]} in {('Porto', 'Oslo')[i % 2]} and love the {WORDS[i * 7 % 10]}."
        for i in range(count)
    ]
    return make_turns(*(lines[i : i + 7] for i in range(0, count, 7)))


@pytest.mark.long
def test_turn_by_turn_only_what_a_turn_reaches_is_encoded_and_the_words_are_counted_now_and_then(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []
    place.checkpoint.network.nodes.register_forward_pre_hook(lambda _, args: encoded.append(args[0].num_turns))
    turns = long_talk(40)
    whole = [1]
    while whole[-1] < 40:
        whole.append(math.ceil(1.25 * whole[-1]))
    for count in range(1, len(turns) + 1):
        place.say(*turns[:count])
        encoded.clear()
        place.live.current(place.store.standings([SPACE]))
        reached = sum(encoded)
        assert (reached == count) if count in whole else (reached <= 14), (count, reached)
        assert all(found.is_clean for found in place.live.verify([SPACE])), count
        counts = counts_of(place, SPACE)
        assert counts is not None
        assert counts.turns == max(each for each in whole if each <= count)


def test_turns_before_the_first_of_a_session_reach_what_the_next_one_reaches_that_does_not_open_it_any_more(
    place: Place,
) -> None:
    turns = make_turns([f"turn {number}" for number in range(20)])
    place.say(*turns)
    snapshot = place.store.snapshot(SPACE)
    keys = {snapshot.turns_of[row][0]: int(snapshot.keys[row]) for row in snapshot.active_rows(["episode"]).tolist()}
    early = [keys[turn.turn_id] for turn in turns[:3]]  # two that have come before the third
    part = place.store.neighbourhood(SPACE, early, families={"NEXT"}, hops=4, most=4_000)
    assert part is not None
    # The fourth turn was the second of its session, which its four neighbours read.
    assert {*part.episodes} == {keys[turn.turn_id] for turn in turns[:8]}


@pytest.mark.parametrize("count", [12, 40], ids=["neighbours of what has changed", "whole space"])
def test_turns_that_a_late_one_has_made_anew_keep_their_rows_in_the_index(count: int, place: Place) -> None:
    turns = long_talk(count)
    place.say(*turns[:5], *turns[6:-1])
    place.live.update()
    place.say(turns[-1])
    place.say(TURNS[OTHER_SPACE][0])  # else the new nodes could get the keys of the old ones
    for _ in range(3):  # a space that is asked again is kept in memory
        place.live.current(place.store.standings([SPACE]))
    before = {*place.store.snapshot(SPACE).keys.tolist()}
    place.say(turns[5])
    assert not before & {*place.store.snapshot(SPACE).keys.tolist()}  # all nodes, under the same IDs
    place.live.current(place.store.standings([SPACE]))
    place.live.update()
    assert all(found.is_clean for found in place.live.verify([SPACE]))
    fresh = LiveEmbeddings(place.store, place.index, place.checkpoint, ENCODER)
    assert found_of(place, SPACE, live=fresh) == {turn.turn_id for turn in turns}


def test_a_space_whose_words_were_counted_again_but_not_written_is_written_whole_by_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = long_talk(26)
    place.say(*turns[:20])
    place.live.update()
    place.say(*turns)  # more than a quarter more

    def cut(*_: Any, **__: Any) -> None:
        raise IndexUnavailableError("cut")

    with monkeypatch.context() as patched:
        patched.setattr(Collection, "upsert", cut)
        with pytest.raises(IndexUnavailableError):
            place.live.update()
    other = LiveEmbeddings(place.store, place.index, place.checkpoint, ENCODER)
    other.update()
    assert all(found.is_clean for found in other.verify())
    assert place.live.collection([SPACE]).count(SPACE) == 26


def test_every_write_of_vectors_shows_in_the_store_even_by_the_same_process(place: Place) -> None:
    seen = set()
    for count in (3, 4, 5):
        place.say(*TURNS[SPACE][:count])
        place.live.update()
        seen.add(place.store.embedded_by([SPACE])[SPACE])
    assert len(seen) == 3


def test_rows_that_are_lacking_beside_what_has_changed_are_written_in_the_same_update(place: Place) -> None:
    turns = long_talk(21)
    place.say(*turns[:20])
    place.live.update()
    held = place.collection()
    held.delete_nodes(SPACE, held.node_keys(SPACE)[:3])
    held.flush()
    other = LiveEmbeddings(place.store, place.index, place.checkpoint, ENCODER)  # has not counted the rows yet
    place.say(turns[20])
    other.current(place.store.standings([SPACE]))
    assert place.collection().count(SPACE) == 21
    assert all(found.is_clean for found in other.verify())


def test_a_forgotten_turn_leaves_the_copy_in_memory_at_once(place: Place) -> None:
    place.say(*TURNS[SPACE], *TURNS[OTHER_SPACE])
    for _ in range(2):
        place.live.current(place.store.standings([SPACE, OTHER_SPACE]))
    hot = place.live._last.hot
    assert SPACE in hot
    assert OTHER_SPACE in hot
    place.live.drop([SPACE])
    assert SPACE not in hot
    place.store.forget_spaces([OTHER_SPACE])
    place.live.update()
    assert OTHER_SPACE not in place.live._last.hot


def test_a_change_that_reaches_too_much_is_written_as_a_whole(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = long_talk(20)
    place.say(*turns[:17])
    place.live.update()
    monkeypatch.setattr("locigraph.training.live_embeddings._MOST_REACHED", 3)
    encoded: list[int] = []
    place.checkpoint.network.nodes.register_forward_pre_hook(lambda _, args: encoded.append(args[0].num_turns))
    place.say(turns[17])
    place.live.update()
    assert encoded == [18]
    assert all(found.is_clean for found in place.live.verify())


def test_searches_in_memory_find_what_searches_of_the_index_find(place: Place) -> None:
    turns = long_talk(30)
    place.say(*turns[:20])
    draw = np.random.default_rng(0)
    for count in range(20, 31):
        place.say(*turns[:count])
        if count == 25:
            place.forget(SPACE, turns[3].turn_id)
        searched = place.live.current(place.store.standings([SPACE]))
        place.live.update()
        for top_k in (1, 5, 100):
            query = draw.normal(size=place.checkpoint.vector_dim).astype(np.float32)
            scope = SearchFilter(SPACE, ("episode",), turns[10].spoken_at if top_k == 5 else None)
            found, wanted = (each.search(query, scope, top_k=top_k) for each in (searched, place.collection()))
            assert [match.node_id for match in found] == [match.node_id for match in wanted]
            np.testing.assert_allclose([m.score for m in found], [m.score for m in wanted], rtol=1e-4, atol=1e-5)
            assert [match.turn_ids for match in found] == [match.turn_ids for match in wanted]


def test_only_turns_whose_vector_moves_by_more_than_the_tolerance_are_written_again(
    opened: MilvusIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this space of two turns two more move the vectors of the others by .0004 to .0005 of their length."""
    written: list[int] = []
    upsert = Collection.upsert

    def counted(self: Collection, rows: Sequence[IndexRow], vectors: NDArray[np.float32], **options: bool) -> None:
        written.append(len(rows))
        upsert(self, rows, vectors, **options)

    monkeypatch.setattr(Collection, "upsert", counted)
    for name, tolerance, due in (("narrow", 1e-5, 4), ("wide", 1e-2, 1)):
        opened.clear(".*", "")
        place = Place(tmp_path / f"{name}.sqlite", opened, tolerance=tolerance)
        with closing(place.store):
            for count in (2, 2, 3, 4):
                place.say(*TURNS[SPACE][:count])
                place.live.current(
                    place.store.standings([SPACE])
                )  # from the second time on, the space is kept in memory
            assert written[-1] == due
            assert [found.is_clean for found in place.live.verify()] == [True]


def test_another_checkpoint_gets_a_collection_of_its_own(place: Place) -> None:
    place.say(*TURNS[SPACE])
    place.live.update()
    before = place.index.alias_target(GRAPH_ALIAS)
    other = small_checkpoint(seed=1, text_encoder=ENCODER.model_id)
    live = LiveEmbeddings(place.store, place.index, other, ENCODER)
    assert live.update() == 1
    assert place.index.alias_target(GRAPH_ALIAS) != before
    with pytest.raises(StaleEmbeddingsError, match="another process has put graph embeddings of checkpoint"):
        place.live.collection([SPACE])


def test_nothing_drifts_right_after_an_update_and_nothing_is_there_before_the_first(place: Place) -> None:
    place.say(*TURNS[SPACE][:3])
    before = place.live.drift(SPACE)
    assert (before.turns, before.missing, before.stale, before.share) == (3, 3, 0, 1.0)
    place.live.update()
    after = place.live.drift(SPACE)
    assert (after, after.share) == (Drift(3, 0, 0, ()), 0.0)
    assert after.distances == {"median": 0.0, "p95": 0.0, "max": 0.0}


@pytest.mark.parametrize(
    "change", [{"turn_ids": (TurnId("t9"),)}, {"type": "knowledge_node"}, {"recorded_at": 7}, {"node_id": NodeId("x")}]
)
def test_verify_compares_what_a_row_says_beside_its_vector(change: dict[str, Any], place: Place) -> None:
    place.say(*TURNS[SPACE][:3])
    place.live.update()
    held = place.collection()
    (key, row), *_ = held.rows(SPACE).items()
    held.upsert([replace(row, **change)], held.vectors(SPACE, [key])[key][None])
    assert place.live.verify() == [Difference(SPACE, 0, 0, 1)]


def test_drift_counts_what_was_appended_and_what_that_moved_and_writes_nothing(
    opened: MilvusIndex, tmp_path: Path
) -> None:
    opened.clear(".*", "")
    place = Place(tmp_path / "graph.sqlite", opened, tolerance=1e-5)
    place.say(*TURNS[SPACE][:3], *TURNS[OTHER_SPACE][:3])
    place.live.update()
    held = place.collection()
    before = held.vectors(SPACE, held.node_keys(SPACE))
    place.say(TURNS[SPACE][3])
    lacking = place.store.unembedded(SPACE, ENCODER.model_id)
    found = place.live.drift(SPACE)
    assert place.store.unembedded(SPACE, ENCODER.model_id) == lacking
    assert (place.collection().count(SPACE), [*place.store.changed_spaces()]) == (3, [SPACE])
    assert place.live.drift(OTHER_SPACE) == Drift(3, 0, 0, ())
    place.live.refresh()
    after = place.collection().vectors(SPACE, list(before))
    moved = [key for key in before if np.abs(before[key] - after[key]).max() > 1e-4]
    far = [1 - before[k] @ after[k] / np.linalg.norm(before[k]) / np.linalg.norm(after[k]) for k in moved]
    assert moved
    assert (found.turns, found.missing, found.stale, found.surplus) == (4, 1, len(moved), 0)
    assert found.share == (1 + len(moved)) / 4
    np.testing.assert_allclose(sorted(found.moves), sorted(far), atol=1e-5)
    assert found.distances["max"] == max(found.moves)
    assert (found + place.live.drift(OTHER_SPACE)).turns == 7


def test_a_damaged_vector_of_a_text_is_made_anew_before_its_space_is_embedded(place: Place, tmp_path: Path) -> None:
    place.say(*TURNS[SPACE])
    place.live.update()
    held = place.collection()
    before = held.vectors(SPACE, held.node_keys(SPACE))
    nan = np.full(ENCODER.dim, np.nan, dtype="<f4").tobytes()
    with closing(sqlite3.connect(tmp_path / "graph.sqlite")) as connection, connection:
        connection.execute("UPDATE embeddings SET vector = ?", (nan,))
    place.live.refresh()
    held = place.collection()
    after = held.vectors(SPACE, held.node_keys(SPACE))
    np.testing.assert_equal(after, before)


def test_drift_tells_how_far_another_checkpoint_would_move_all_vectors(place: Place) -> None:
    place.say(*TURNS[SPACE])
    place.live.update()
    other = small_checkpoint(seed=1, text_encoder=ENCODER.model_id)
    found = LiveEmbeddings(place.store, place.index, other, ENCODER).drift(SPACE)
    assert (found.share, found.stale, found.missing) == (1.0, len(TURNS[SPACE]), 0)
    assert 0 < found.distances["median"] <= found.distances["p95"] <= found.distances["max"] <= 2


def test_a_turn_that_is_forgotten_leaves_a_surplus_row_until_the_index_hears_of_it(place: Place) -> None:
    place.say(*TURNS[SPACE])
    place.live.update()
    place.store.forget(SPACE, [TURNS[SPACE][-1].turn_id])
    found = place.live.drift(SPACE)
    assert (found.turns, found.surplus, found.missing) == (len(TURNS[SPACE]) - 1, 1, 0)


@pytest.mark.parametrize("said", [TURNS[SPACE], long_talk(20)], ids=["few turns", "many turns"])
def test_an_update_deletes_the_rows_of_turns_of_which_only_the_store_knows_that_they_are_forgotten(
    said: Sequence[Turn], place: Place
) -> None:
    place.say(*said)
    place.live.update()
    assert place.collection().count(SPACE) == len(said)
    place.store.forget(SPACE, [said[-1].turn_id])
    place.live.update()
    place.collection().flush()
    assert place.collection().count(SPACE) == len(said) - 1
    assert all(found.is_clean for found in place.live.verify())


def test_vectors_of_another_width_have_no_distance(place: Place) -> None:
    place.say(*TURNS[SPACE])
    wide = place.index.create("emb_wide", CollectionSpec(4, "IP", "other", "schema"))
    place.index.point(GRAPH_ALIAS, wide.name)
    with pytest.raises(IndexMismatchError, match="in use have 4 dimensions but those of checkpoint"):
        place.live.drift(SPACE)


def test_what_another_process_wrote_since_is_not_taken_for_what_this_one_wrote(place: Place) -> None:
    other = LiveEmbeddings(place.store, place.index, small_checkpoint(text_encoder=ENCODER.model_id), ENCODER)
    place.say(*TURNS[SPACE][:3])
    place.live.update()
    place.say(TURNS[SPACE][3])
    place.live.update()  # remembers what it wrote
    collection, key = place.collection(), int(place.store.snapshot(SPACE).keys[0])
    place.store.list_changed([SPACE])
    other.update()  # another process writes the space, so the first one's memory of it is worth nothing
    wrong = collection.rows(SPACE)[key]
    collection.upsert([wrong], np.ones((1, collection.spec.dim), dtype=np.float32))
    collection.flush()
    place.store.list_changed([SPACE])
    place.live.update()
    assert all(each.is_clean for each in place.live.verify())


def test_a_space_that_is_forgotten_while_it_is_due_is_left_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.say(*TURNS[SPACE][:3], *TURNS[OTHER_SPACE][:3])
    place.live.update()
    place.say(TURNS[SPACE][3], TURNS[OTHER_SPACE][3])
    snapshot = LiveEmbeddings._snapshot

    def forgotten(live: LiveEmbeddings, space: SpaceId) -> Any:
        if space == SPACE and SPACE in place.store.spaces():
            place.store.forget_spaces([SPACE])
        return snapshot(live, space)

    monkeypatch.setattr(LiveEmbeddings, "_snapshot", forgotten)
    place.live.update()
    assert place.collection().count(OTHER_SPACE) == 4


def test_many_spaces_are_counted_in_one_pass(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        place.say(*make_turns(["I sold the blue bike to Tom."], space=SpaceId(f"s{number}")))
    place.live.update()
    fresh = LiveEmbeddings(place.store, place.index, place.checkpoint, ENCODER)
    calls: list[str] = []
    for name in ("count", "counts"):
        real = getattr(Collection, name)

        def noted(*arguments: Any, name: str = name, real: Any = real) -> Any:
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(Collection, name, noted)
    assert fresh.update() == 0
    assert calls == ["counts"]
    place.collection().delete_space("s3")
    place.collection().flush()
    assert LiveEmbeddings(place.store, place.index, place.checkpoint, ENCODER).update() == 1


def test_spaces_that_are_asked_together_again_are_read_in_one_pass(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    spaces = [SpaceId(f"s{number}") for number in range(6)]
    for space in spaces:
        place.say(*make_turns(["I sold the blue bike to Tom."], space=space))
    place.live.update()
    fresh = LiveEmbeddings(place.store, place.index, place.checkpoint, ENCODER)
    found = found_of(place, *spaces, live=fresh)
    passes: list[str] = []
    real = Collection._all

    def noted(self: Collection, fields: list[str], where: str) -> Any:
        passes.append(where)
        return real(self, fields, where)

    monkeypatch.setattr(Collection, "_all", noted)
    assert found_of(place, *spaces, live=fresh) == found
    assert len(passes) == 1
    assert fresh.held(place.store.standings(spaces)) is not None


def test_a_space_that_has_changed_is_stale_although_it_has_as_many_turns(place: Place) -> None:
    place.say(*TURNS[SPACE][:3])
    place.live.update()
    place.store.list_changed([SPACE])
    with pytest.raises(StaleEmbeddingsError, match="3 of 3 turns have graph embeddings, and some may be outdated"):
        place.live.collection([SPACE])


def found_of(place: Place, *spaces: SpaceId, live: LiveEmbeddings | None = None) -> set[TurnId]:
    """The turns that a search of spaces finds, brought up to date first."""
    searched = (live or place.live).current(place.store.standings(spaces))
    query = np.ones(place.checkpoint.vector_dim, dtype=np.float32)
    found = searched.search(query, SearchFilter(spaces if len(spaces) > 1 else spaces[0], ("episode",)), top_k=99)
    return {TurnId(turn.rpartition(":")[2]) for match in found for turn in match.turn_ids}


@pytest.fixture
def waiting(place: Place) -> tuple[Turn, ...]:
    """A space of 20 turns that is kept in memory, and the further ones, of which the first waits for the index."""
    turns = long_talk(30)
    place.say(*turns[:20])
    found_of(place, SPACE)
    place.say(turns[20])
    found_of(place, SPACE)
    place.live.update()
    place.say(turns[21])
    assert turns[21].turn_id in found_of(place, SPACE)
    assert place.collection().count(SPACE) == 21
    return turns[22:]


def test_a_turn_that_searches_in_memory_find_is_due_for_the_index_but_not_for_searches(
    place: Place, waiting: tuple[Turn, ...]
) -> None:
    changed = place.store.changed_spaces()
    assert [*changed] == [SPACE]
    assert place.live.due(changed) == []
    assert place.live.held(place.store.standings([SPACE])) is not None
    place.live.update()
    assert place.store.changed_spaces() == {}
    assert place.collection().count(SPACE) == 22
    assert [found.is_clean for found in place.live.verify()] == [True]


def test_an_embedded_index_gets_waiting_rows_when_there_are_many(
    place: Place, waiting: tuple[Turn, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.say(waiting[0])
    assert waiting[0].turn_id in found_of(place, SPACE)
    assert place.collection().count(SPACE) == 21
    monkeypatch.setattr("locigraph.training.live_embeddings.MOST_ROWS", 2)
    place.say(waiting[1])
    assert waiting[1].turn_id in found_of(place, SPACE)
    assert place.collection().count(SPACE) == 24
    assert place.store.changed_spaces() == {}


def test_what_waited_for_the_index_when_a_process_died_is_found_by_the_next(
    place: Place, waiting: tuple[Turn, ...]
) -> None:
    after = LiveEmbeddings(place.store, place.index, place.checkpoint, ENCODER)
    assert len(found_of(place, SPACE, live=after)) == 22
    assert place.collection().count(SPACE) == 22
    assert [found.is_clean for found in after.verify()] == [True]


def test_a_search_of_the_index_itself_finds_what_waited_for_it(
    place: Place, waiting: tuple[Turn, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.say(*TURNS[OTHER_SPACE])
    place.live.update()
    place.say(waiting[0])
    assert waiting[0].turn_id in found_of(place, SPACE)
    monkeypatch.setattr(HotSpaces, "has_room", lambda *args: False)
    place.live.drop([OTHER_SPACE])
    assert waiting[0].turn_id in found_of(place, SPACE, OTHER_SPACE)  # not all of them are kept in memory
    assert place.collection().count(SPACE) == 23


def test_rows_that_the_index_could_not_take_wait_for_the_next_time(
    place: Place, waiting: tuple[Turn, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            Collection, "upsert", lambda *args, **options: (_ for _ in ()).throw(IndexUnavailableError("full"))
        )
        with pytest.raises(IndexUnavailableError):
            place.live.update()
    assert len(found_of(place, SPACE)) == 22
    place.live.update()
    assert place.collection().count(SPACE) == 22
    assert place.store.changed_spaces() == {}


def test_a_turn_that_is_forgotten_while_it_waits_for_the_index_never_gets_there(
    place: Place, waiting: tuple[Turn, ...]
) -> None:
    forgotten = long_talk(30)[21].turn_id
    place.live.drop([SPACE])
    assert len(place.live._last.unwritten) == 0
    place.forget(SPACE, forgotten)
    assert forgotten not in found_of(place, SPACE)
    place.live.update()
    assert place.collection().count(SPACE) == 21
    assert [found.is_clean for found in place.live.verify()] == [True]


@pytest.mark.long
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    actions=st.lists(
        st.sampled_from(["say", "say", "ask", "ask", "other", "evict", "forget", "update", "refresh", "die"]),
        min_size=4,
        max_size=14,
    ),
    most=st.sampled_from([1, 100]),
)
def test_whatever_happens_while_rows_wait_searches_find_all_turns_and_the_index_ends_up_with_them(
    opened: MilvusIndex, tmp_path_factory: pytest.TempPathFactory, actions: list[str], most: int
) -> None:
    opened.clear(".*", "")
    place = Place(tmp_path_factory.mktemp("waiting") / "graph.sqlite", opened)
    left = [*long_talk(40)]
    with closing(place.store), pytest.MonkeyPatch.context() as patch:
        patch.setattr("locigraph.training.live_embeddings.MOST_ROWS", most)
        place.say(*left[:24], *TURNS[OTHER_SPACE][:2])
        del left[:24]
        for _ in range(2):
            found_of(place, SPACE)
        for action in actions:
            if action == "say":
                place.say(left.pop(0))
            elif action == "ask":
                assert found_of(place, SPACE) == {turn.turn_id for turn in place.store.turns(SPACE)}
            elif action == "other":
                place.say(TURNS[OTHER_SPACE][2])
                found_of(place, OTHER_SPACE)
            elif action == "evict":  # as if other spaces had taken the room
                place.live._last.hot.drop([SPACE])
            elif action == "forget":
                place.live.drop([SPACE])
                place.forget(SPACE, place.store.turns(SPACE)[-1].turn_id)
            elif action == "update":
                place.live.update()
            elif action == "refresh":
                place.live.refresh()
            else:
                place.live = LiveEmbeddings(place.store, place.index, place.checkpoint, ENCODER)
        assert found_of(place, SPACE) == {turn.turn_id for turn in place.store.turns(SPACE)}
        place.live.update()
        assert place.store.changed_spaces() == {}
        assert all(found.is_clean for found in place.live.verify())

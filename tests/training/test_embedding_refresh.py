from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from locigraph.gnn.relations import RELATIONS, network_relations
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import SpaceId
from locigraph.kg.views import View
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.descriptions import snapshot_rows
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection, CollectionSpec
from locigraph.retrieval.protocols import SearchFilter
from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
from locigraph.training import embedding_refresh
from locigraph.training.checkpoint import Checkpoint, load_checkpoint
from locigraph.training.embedding_refresh import ViewState, refresh
from locigraph.training.errors import TrainingError
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from tests.fakes import FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, make_snapshot, planted_space, small_checkpoint

SPACES = {View(SpaceId(f"planted{number}")): planted_space(number)[0] for number in (1, 2)}
VIEWS = list(SPACES)
NODES, TURNS = 12, 6  # of each space: six turns, six facts


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusIndex]:
    with MilvusIndex(str(tmp_path_factory.mktemp("refresh") / "index.db")) as made:
        yield made


@pytest.fixture
def index(opened: MilvusIndex) -> MilvusIndex:
    """Without collections; one that an alias points at goes with its alias."""
    for name in opened.collections():
        opened.drop(name)
    return opened


class PowerCut(BaseException):
    """What nothing in between may catch."""


def cut_before_encoding(number: int, checkpoint: Checkpoint) -> Checkpoint:
    """The same checkpoint, whose encoder loses its power when it is about to encode the given graph, from 1."""

    def count(*_: object) -> None:
        calls.append(None)
        if len(calls) == number:
            raise PowerCut

    calls: list[None] = []
    checkpoint.network.nodes.register_forward_pre_hook(count)
    return checkpoint


class Counts:
    """How often each view was loaded, and how many turns the graphs that were encoded had."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.loads: list[str] = []
        self.encoded: list[int] = []
        checkpoint.network.nodes.register_forward_pre_hook(lambda _, args: self.encoded.append(args[0].num_turns))

    def load(self, view: View) -> Snapshot:
        self.loads.append(view.name)
        return SPACES[view]


def test_a_refresh_writes_every_active_turn_and_nothing_else_and_flips_the_alias(index: MilvusIndex) -> None:
    checkpoint = small_checkpoint()
    done = refresh(index, checkpoint, VIEWS, SPACES.__getitem__, progress=None)
    assert (done.turns, done.written, done.sample_recall) == (2 * TURNS, 2 * TURNS, 1.0)
    assert index.alias_target(GRAPH_ALIAS) == done.collection
    collection = index.open(GRAPH_ALIAS)
    assert (collection.spec.version, collection.spec.metric) == (checkpoint.version, "IP")
    for view, snapshot in SPACES.items():
        held = collection.vectors(view.name, collection.node_keys(view.name))
        rows, expected = encode_graph(checkpoint, snapshot)
        keys = snapshot.keys[rows].tolist()
        assert sorted(held) == sorted(keys) == snapshot.keys[snapshot.types == "episode"].tolist()
        np.testing.assert_allclose(np.stack([held[key] for key in keys]), expected, atol=1e-6)


def test_each_graph_is_loaded_and_encoded_once(index: MilvusIndex) -> None:
    checkpoint = small_checkpoint()
    counts = Counts(checkpoint)
    refresh(index, checkpoint, VIEWS, counts.load, progress=None)
    assert sorted(counts.loads) == sorted(view.name for view in VIEWS)
    assert counts.encoded == [TURNS, TURNS]


def test_rows_are_counted_only_where_none_waits_to_be_flushed(
    index: MilvusIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def recorded(name: str) -> Callable[..., Any]:
        real = getattr(Collection, name)

        def call(*args: Any, **options: Any) -> Any:
            calls.append(name)
            return real(*args, **options)

        return call

    for name in ("count", "counts", "upsert", "flush"):
        monkeypatch.setattr(Collection, name, recorded(name))
    refresh(index, small_checkpoint(), VIEWS, SPACES.__getitem__, progress=None)
    first, last = calls.index("upsert"), len(calls) - 1 - calls[::-1].index("upsert")
    assert {*calls[first : last + 1]} == {"upsert"}
    assert calls[last + 1] == "flush"
    assert calls.count("counts") == 1  # at the end, of all views at once


def test_a_view_that_is_named_twice_is_written_once(index: MilvusIndex) -> None:
    done = refresh(index, small_checkpoint(), [*VIEWS, VIEWS[0]], SPACES.__getitem__, progress=None)
    assert (done.turns, done.written) == (2 * TURNS, 2 * TURNS)


def test_archived_nodes_are_not_written(index: MilvusIndex) -> None:
    view, snapshot = VIEWS[0], SPACES[VIEWS[0]]
    active = snapshot.active.copy()
    active[3] = False
    done = refresh(index, small_checkpoint(), [view], lambda v: replace(snapshot, active=active), progress=None)
    assert done.turns == TURNS - 1
    assert int(snapshot.keys[3]) not in index.open(done.collection).node_keys(view.name)


@pytest.mark.parametrize("at", [1, 2])
def test_an_interrupted_refresh_goes_on_where_it_was_cut_and_loads_each_graph_once(index: MilvusIndex, at: int) -> None:
    # The larger graph comes second: the sample of the verification is taken from it, written before or not.
    spaces = {View(SpaceId(f"planted{number}")): planted_space(number, things=5 + number)[0] for number in (1, 2)}
    with pytest.raises(PowerCut):
        refresh(index, cut_before_encoding(at, small_checkpoint()), list(spaces), spaces.__getitem__, progress=None)
    (half,) = index.collections()
    assert index.open(half).count() == (0, 6)[at - 1]
    assert index.alias_target(GRAPH_ALIAS) is None
    checkpoint, loads = small_checkpoint(), list[str]()
    counts = Counts(checkpoint)

    def load(view: View) -> Snapshot:
        loads.append(view.name)
        return spaces[view]

    done = refresh(index, checkpoint, list(spaces), load, progress=None)
    assert (done.collection, done.written, done.turns) == (half, (13, 7)[at - 1], 13)
    assert sorted(loads) == sorted(view.name for view in spaces)
    assert counts.encoded == [[6, 7], [7]][at - 1]
    assert index.open(GRAPH_ALIAS).count() == 13


def test_a_refresh_that_is_complete_encodes_the_sample_alone(index: MilvusIndex) -> None:
    refresh(index, small_checkpoint(), VIEWS, SPACES.__getitem__, progress=None)
    checkpoint = small_checkpoint()
    counts = Counts(checkpoint)
    assert refresh(index, checkpoint, VIEWS, counts.load, progress=None).written == 0
    assert sorted(counts.loads) == sorted(view.name for view in VIEWS)
    assert counts.encoded == [TURNS]


def test_a_graph_that_grows_while_its_finished_refresh_is_taken_up_again_is_no_failed_sample(
    index: MilvusIndex,
) -> None:
    few, more = (planted_space(1, things=things)[0] for things in (4, 9))
    states = {View(few.space): ViewState(4, "known")}
    first = refresh(index, small_checkpoint(), [View(few.space)], lambda _: few, states=states, progress=None)
    again = refresh(index, small_checkpoint(), [View(few.space)], lambda _: more, states=states, progress=None)
    assert (again.collection, again.written, again.sample_recall) == (first.collection, 0, 1.0)


def test_graphs_that_do_not_fit_in_memory_are_read_again_instead(
    index: MilvusIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_refresh, "_KEPT_BYTES", SPACES[VIEWS[0]].embeddings.nbytes + 1)
    checkpoint = small_checkpoint()
    counts = Counts(checkpoint)
    assert refresh(index, checkpoint, VIEWS, counts.load, progress=None).written == 2 * TURNS
    assert sorted(counts.loads) == [VIEWS[0].name, VIEWS[1].name, VIEWS[1].name]
    assert counts.encoded == [TURNS, TURNS]


def test_a_refresh_of_what_is_there_writes_nothing_and_keeps_the_version_before(index: MilvusIndex) -> None:
    before = refresh(index, small_checkpoint(seed=1), VIEWS, SPACES.__getitem__, progress=None)
    first = refresh(index, small_checkpoint(), VIEWS, SPACES.__getitem__, progress=None)
    again = refresh(index, small_checkpoint(), VIEWS, SPACES.__getitem__, progress=None)
    assert (again.collection, again.written) == (first.collection, 0)
    assert index.collections() == sorted([before.collection, first.collection])


def test_the_version_before_is_kept_and_older_ones_are_dropped(index: MilvusIndex) -> None:
    made = [
        refresh(index, small_checkpoint(seed=seed), VIEWS[:1], SPACES.__getitem__, progress=None).collection
        for seed in range(3)
    ]
    assert index.collections() == sorted(made[1:])
    assert index.alias_target(GRAPH_ALIAS) == made[2]


def test_a_refresh_drops_no_collection_of_another_store_or_of_other_software(index: MilvusIndex) -> None:
    spec = CollectionSpec(4, "IP", "other", "schema")
    index.create("emb_images", spec)
    theirs = [
        refresh(index, small_checkpoint(seed=seed), VIEWS[:1], SPACES.__getitem__, store="theirs", progress=None)
        for seed in range(2)
    ]
    for seed in range(3):
        refresh(index, small_checkpoint(seed=seed), VIEWS[:1], SPACES.__getitem__, store="ours", progress=None)
    assert {"emb_images", *(done.collection for done in theirs)} < {*index.collections()}
    assert len(index.collections()) == 5


def test_changed_data_of_the_same_checkpoint_go_into_a_new_collection(index: MilvusIndex) -> None:
    snapshot = SPACES[VIEWS[0]]
    changed = replace(snapshot, embeddings=snapshot.embeddings[:, ::-1].copy())
    names = [
        refresh(index, small_checkpoint(), VIEWS[:1], lambda view, s=s: s, progress=None).collection  # type: ignore[misc]
        for s in (snapshot, changed)
    ]  # the default binds s now
    assert names[0] != names[1]


# The third is of a relation that these graphs do not have, the fourth of the questions' encoder.
@pytest.mark.parametrize("weight", ["nodes.own", "nodes.matrix", "nodes.prior", "queries.lexical_weight"])
def test_a_checkpoint_with_a_nan_weight_is_refused_and_the_alias_stays_on_the_old_collection(
    index: MilvusIndex, weight: str, tmp_path: Path
) -> None:
    old = refresh(index, small_checkpoint(), VIEWS, SPACES.__getitem__, progress=None)
    broken = small_checkpoint(seed=1)
    values = broken.weights[weight].reshape(-1)
    values[network_relations().index(RELATIONS["topic"]) * 3 if "prior" in weight else 0] = float("nan")
    broken.save(tmp_path / "checkpoint")
    with pytest.raises(TrainingError, match=f"weight '{weight}' holds NaN or infinity; train again"):
        refresh(index, load_checkpoint(tmp_path / "checkpoint"), VIEWS, SPACES.__getitem__, progress=None)
    assert index.alias_target(GRAPH_ALIAS) == old.collection
    assert index.collections() == [old.collection]
    assert index.open(GRAPH_ALIAS).count() == 2 * TURNS


def test_a_collection_that_does_not_find_the_exact_neighbours_is_not_put_in_use(index: MilvusIndex) -> None:
    old = refresh(index, small_checkpoint(), VIEWS, SPACES.__getitem__, progress=None)
    many = make_snapshot(make_turns([f"turn number {word} of {word}{word}" for word in "abcdefghijklmnopqrstuvwxyz"]))
    options = {"views": [View(many.space)], "load": lambda view: many, "progress": None}
    other = refresh(index, small_checkpoint(), alias=None, **options)  # type: ignore[arg-type]  # of several types
    rows, vectors = encode_graph(small_checkpoint(), many)
    # As many rows as there should be, with the vectors of other turns.
    index.open(other.collection).upsert(snapshot_rows(many.space, many, rows), vectors[::-1])
    with pytest.raises(TrainingError, match="the alias was not changed"):
        refresh(index, small_checkpoint(), **options)  # type: ignore[arg-type]  # as above
    assert index.alias_target(GRAPH_ALIAS) == old.collection


def test_a_view_that_shows_nothing_yet_has_no_rows(index: MilvusIndex) -> None:
    early = View(VIEWS[0].space, datetime(2000, 1, 1, tzinfo=UTC))
    empty = make_snapshot(())
    done = refresh(
        index, small_checkpoint(), [VIEWS[0], early], lambda v: empty if v == early else SPACES[v], progress=None
    )
    assert (done.turns, index.open(done.collection).count(early.name)) == (TURNS, 0)


def test_nothing_to_refresh_is_said(index: MilvusIndex) -> None:
    with pytest.raises(TrainingError, match="there is no space to refresh; run locigraph build first"):
        refresh(index, small_checkpoint(), [], SPACES.__getitem__, progress=None)


def test_vectors_of_length_0_are_refused(index: MilvusIndex) -> None:
    empty = small_checkpoint()
    with torch.no_grad():
        for parameter in empty.network.nodes.parameters():
            parameter.zero_()
    bare = replace(SPACES[VIEWS[0]], valid_from=np.full(NODES, np.iinfo(np.int64).min), speakers=("",) * 6)
    with pytest.raises(TrainingError, match="encodes some turns as zero"):
        refresh(index, empty, VIEWS[:1], lambda view: bare, progress=None)
    assert index.alias_target(GRAPH_ALIAS) is None


def test_without_an_alias_nothing_is_put_in_use_and_nothing_dropped(index: MilvusIndex) -> None:
    names = {
        refresh(index, small_checkpoint(seed=s), VIEWS[:1], SPACES.__getitem__, alias=None, progress=None).collection
        for s in range(3)
    }
    assert set(index.collections()) == names
    assert index.alias_target(GRAPH_ALIAS) is None


def test_a_view_of_an_earlier_time_is_a_tenant_of_its_own(index: MilvusIndex) -> None:
    early = View(VIEWS[0].space, datetime(2024, 1, 1, tzinfo=UTC))
    assert early.name == "planted1@1704067200"
    done = refresh(index, small_checkpoint(), [VIEWS[0], early], lambda view: SPACES[VIEWS[0]], progress=None)
    assert sorted(index.open(done.collection).counts()) == ["planted1", "planted1@1704067200"]


def test_a_query_encoder_of_another_checkpoint_is_refused(index: MilvusIndex) -> None:
    refresh(index, small_checkpoint(), VIEWS, SPACES.__getitem__, progress=None)
    texts = FakeEncoder(TEXT_DIM)
    collection = index.open(GRAPH_ALIAS)
    with pytest.raises(IndexMismatchError, match="; run locigraph refresh with checkpoint '"):
        GraphEmbeddingRetriever(collection, CheckpointQueryEncoder(small_checkpoint(seed=1), texts), lambda *asked: {})
    encoder = CheckpointQueryEncoder(small_checkpoint(), texts)
    hits = GraphEmbeddingRetriever(collection, encoder, lambda space, ids, as_of: dict.fromkeys(ids, "text")).retrieve(
        "Who keeps the otter?", VIEWS[0].space
    )
    assert len(hits.hits) == 6
    found = collection.search(encoder.encode_query("otter"), SearchFilter(VIEWS[0].name), top_k=20)
    assert len(found) == TURNS


def test_a_space_named_like_another_as_of_a_time_is_refused_since_each_would_be_served_the_others_rows(
    index: MilvusIndex,
) -> None:
    past = View(SpaceId("planted1"), datetime(2024, 1, 1, tzinfo=UTC))
    named_alike = View(SpaceId(past.name))
    with pytest.raises(TrainingError, match="would have the same name in the collection"):
        refresh(index, small_checkpoint(), [past, named_alike], SPACES.__getitem__, progress=None)
    assert index.collections() == []

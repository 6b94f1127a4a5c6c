from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
import torch

from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import SpaceId
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.protocols import SearchScope
from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
from locigraph.training.errors import TrainingError
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from locigraph.training.refresh import GRAPH_ALIAS, forget_in_collections, refresh
from locigraph.training.views import View
from tests.fakes import FakeEncoder
from tests.fakes_graph import TEXT_DIM, planted_space, small_checkpoint

SPACES = {View(SpaceId(f"planted{number}")): planted_space(number)[0] for number in (1, 2)}
VIEWS = list(SPACES)
ALL = ("episode", "knowledge_node")
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


def cut_after(loads: int) -> Callable[[View], Snapshot]:
    """Reads snapshots until the power is cut."""
    left = [loads]

    def load(view: View) -> Snapshot:
        left[0] -= 1
        if left[0] < 0:
            raise PowerCut
        return SPACES[view]

    return load


def test_a_refresh_writes_every_active_node_of_the_types_asked_for_and_flips_the_alias(index: MilvusIndex) -> None:
    checkpoint = small_checkpoint()
    done = refresh(index, checkpoint, VIEWS, SPACES.__getitem__, types=ALL, progress=None)
    assert (done.nodes, done.written, done.sample_recall) == (2 * NODES, 2 * NODES, 1.0)
    assert index.alias_target(GRAPH_ALIAS) == done.collection
    collection = index.open(GRAPH_ALIAS)
    assert (collection.spec.version, collection.spec.metric) == (checkpoint.version, "IP")
    for view, snapshot in SPACES.items():
        held = collection.vectors(view.name, collection.node_keys(view.name))
        expected = encode_graph(checkpoint, snapshot)
        assert sorted(held) == snapshot.keys.tolist()
        np.testing.assert_allclose(np.stack([held[key] for key in snapshot.keys.tolist()]), expected, atol=1e-6)


def test_only_what_v2_searches_is_written_unless_more_is_asked_for(index: MilvusIndex) -> None:
    checkpoint = small_checkpoint()
    done = refresh(index, checkpoint, VIEWS, SPACES.__getitem__, progress=None)
    assert (done.nodes, done.written) == (2 * TURNS, 2 * TURNS)
    snapshot = SPACES[VIEWS[0]]
    held = index.open(done.collection).node_keys(VIEWS[0].name)
    assert sorted(held) == snapshot.keys[snapshot.types == "episode"].tolist()
    more = refresh(index, checkpoint, VIEWS, SPACES.__getitem__, types=ALL, progress=None)
    assert more.collection != done.collection


def test_archived_nodes_are_not_written(index: MilvusIndex) -> None:
    view, snapshot = VIEWS[0], SPACES[VIEWS[0]]
    active = snapshot.active.copy()
    active[3] = False
    done = refresh(index, small_checkpoint(), [view], lambda v: replace(snapshot, active=active), progress=None)
    assert done.nodes == TURNS - 1
    assert int(snapshot.keys[3]) not in index.open(done.collection).node_keys(view.name)


def test_an_interrupted_refresh_goes_on_where_it_was_cut(index: MilvusIndex) -> None:
    checkpoint = small_checkpoint()
    # The name reads both views; the third load is the first view's encoding, the fourth the second's.
    with pytest.raises(PowerCut):
        refresh(index, checkpoint, VIEWS, cut_after(3), progress=None)
    (half,) = index.collections()
    assert index.open(half).count() == TURNS
    assert index.alias_target(GRAPH_ALIAS) is None
    done = refresh(index, checkpoint, VIEWS, SPACES.__getitem__, progress=None)
    assert (done.collection, done.written, done.nodes) == (half, TURNS, 2 * TURNS)
    assert index.open(GRAPH_ALIAS).count() == 2 * TURNS


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


def test_changed_data_of_the_same_checkpoint_go_into_a_new_collection(index: MilvusIndex) -> None:
    snapshot = SPACES[VIEWS[0]]
    changed = replace(snapshot, embeddings=snapshot.embeddings[:, ::-1].copy())
    names = [
        refresh(index, small_checkpoint(), VIEWS[:1], lambda view, s=s: s, progress=None).collection  # type: ignore[misc]
        for s in (snapshot, changed)
    ]  # the default binds s now
    assert names[0] != names[1]


def test_a_refresh_that_does_not_verify_leaves_the_alias_on_the_old_collection(index: MilvusIndex) -> None:
    old = refresh(index, small_checkpoint(), VIEWS, SPACES.__getitem__, progress=None)
    broken = small_checkpoint(seed=1)
    with torch.no_grad():
        broken.network.nodes.own.fill_(float("nan"))
    with pytest.raises((TrainingError, InvalidVectorError), match="NaN"):
        refresh(index, broken, VIEWS, SPACES.__getitem__, progress=None)
    assert index.alias_target(GRAPH_ALIAS) == old.collection
    assert index.open(GRAPH_ALIAS).count() == 2 * TURNS


def test_vectors_of_length_0_are_refused(index: MilvusIndex) -> None:
    empty = small_checkpoint()
    with torch.no_grad():
        for parameter in empty.network.nodes.parameters():
            parameter.zero_()
    bare = replace(SPACES[VIEWS[0]], valid_from=np.full(NODES, np.iinfo(np.int64).min), speakers=("",) * 6)
    with pytest.raises(TrainingError, match="zero or NaN"):
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
    assert index.open(done.collection).spaces() == ["planted1", "planted1@1704067200"]


def test_forgotten_nodes_leave_every_collection_and_every_view(index: MilvusIndex) -> None:
    early = View(VIEWS[0].space, datetime(2024, 1, 1, tzinfo=UTC))
    for seed in (0, 1):
        refresh(
            index, small_checkpoint(seed=seed), [*VIEWS, early], lambda v: SPACES[View(v.space)], progress=None
        )  # fmt: skip
    doomed = SPACES[VIEWS[0]].keys[:2].tolist()
    forget_in_collections(index, VIEWS[0].name, doomed)
    assert len(index.collections()) == 2
    for name in index.collections():
        collection = index.open(name)
        counts = [collection.count(view.name) for view in (*VIEWS, early)]
        assert counts == [TURNS - 2, TURNS, TURNS - 2]


def test_a_query_encoder_of_another_checkpoint_is_refused(index: MilvusIndex) -> None:
    refresh(index, small_checkpoint(), VIEWS, SPACES.__getitem__, progress=None)
    embed = FakeEncoder(TEXT_DIM).encode
    collection = index.open(GRAPH_ALIAS)
    with pytest.raises(IndexMismatchError, match="run locigraph refresh with that checkpoint"):
        GraphEmbeddingRetriever(collection, CheckpointQueryEncoder(small_checkpoint(seed=1), embed), lambda *asked: {})
    encoder = CheckpointQueryEncoder(small_checkpoint(), embed)
    hits = GraphEmbeddingRetriever(collection, encoder, lambda space, ids, as_of: dict.fromkeys(ids, "text")).retrieve(
        "Who keeps the otter?", VIEWS[0].space
    )
    assert len(hits.hits) == 6
    found = collection.search(encoder.encode_query("otter"), SearchScope(VIEWS[0].name), top_k=20)
    assert len(found) == TURNS


def test_a_space_named_like_another_as_of_a_time_is_refused_since_each_would_be_served_the_others_rows(
    index: MilvusIndex,
) -> None:
    past = View(SpaceId("planted1"), datetime(2024, 1, 1, tzinfo=UTC))
    named_alike = View(SpaceId(past.name))
    with pytest.raises(TrainingError, match="have the same name in a collection"):
        refresh(index, small_checkpoint(), [past, named_alike], SPACES.__getitem__, progress=None)
    assert index.collections() == []

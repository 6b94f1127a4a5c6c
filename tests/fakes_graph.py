"""Tiny graphs, models and indexes for the tests of retrieval, graph network and training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from locigraph.gnn.features import GraphInputs, GraphReader
from locigraph.gnn.relations import network_relations
from locigraph.gnn.sketch import HashedFeatures
from locigraph.kg.errors import UnknownSpaceError
from locigraph.kg.schema import COINED_FAMILY, RELATION_LABELS
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.times import epoch
from locigraph.kg.types import NodeId, Question, SpaceId, Turn, TurnId
from locigraph.retrieval.errors import IndexUnavailableError
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.protocols import Hit, SearchFilter, VectorMatch
from locigraph.training.checkpoint import Checkpoint, new_network
from locigraph.training.config import ModelConfig, Settings, TrainerConfig, TrainingConfig
from tests.fakes import SPACE, FakeEncoder, make_turns

_FAMILIES = {label.name: label.family for label in RELATION_LABELS.values()}
TEXT_DIM = 32
HASHED = HashedFeatures(64, 8, 16)


@dataclass(frozen=True)
class Extra:
    """A node that is not an episode; ``turns`` are positions in the list of turns."""

    type: str
    description: str
    turns: tuple[int, ...] = ()


def make_snapshot(
    turns: Sequence[Turn],
    extras: Sequence[Extra] = (),
    edges: Sequence[tuple[int, str, int]] = (),
    *,
    encoder: FakeEncoder | None = None,
    key_offset: int = 1,
) -> Snapshot:
    """A snapshot whose first rows are the turns' episodes, in order, and whose next rows are the extras.

    ``NEXT`` edges between the episodes of a session are added automatically; ``edges`` are (row, label, row). Node IDs
    are ``n<row>``, and keys are rows plus ``key_offset``.
    """
    encoder = encoder or FakeEncoder(TEXT_DIM)
    count = len(turns)
    following = [
        (i, "NEXT", i + 1) for i in range(count - 1) if turns[i].session_id == turns[i + 1].session_id
    ]  # fmt: skip
    triples = [*following, *edges]
    times = [epoch(turn.recorded_at) for turn in turns]
    starts = [NO_TIME if turn.spoken_at is None else epoch(turn.spoken_at) for turn in turns]
    learnt = [*times, *(max([times[t] for t in extra.turns], default=0) for extra in extras)]
    pairs = [(i, i) for i in range(count)] + [(count + i, t) for i, extra in enumerate(extras) for t in extra.turns]
    descriptions = [*(turn.utterance for turn in turns), *(extra.description for extra in extras)]
    total = count + len(extras)
    return Snapshot(
        space=turns[0].space if turns else SPACE,
        keys=np.arange(total, dtype=np.int64) + key_offset,
        ids=tuple(NodeId(f"n{row}") for row in range(total)),
        types=np.asarray(["episode"] * count + [extra.type for extra in extras], dtype=np.str_),
        labels=tuple(text[:20] for text in descriptions),
        descriptions=tuple(descriptions),
        active=np.ones(total, dtype=bool),
        recorded_at=np.asarray(learnt, dtype=np.int64),
        valid_from=np.asarray([*starts, *[NO_TIME] * len(extras)], dtype=np.int64),
        valid_to=np.full(total, NO_TIME, dtype=np.int64),
        embeddings=encoder.encode(descriptions),
        source=np.asarray([s for s, _, _ in triples], dtype=np.int64),
        target=np.asarray([t for _, _, t in triples], dtype=np.int64),
        relations=np.asarray([r for _, r, _ in triples], dtype=np.str_),
        families=np.asarray([_FAMILIES.get(r, COINED_FAMILY) for _, r, _ in triples], dtype=np.str_),
        weights=np.ones(len(triples), dtype=np.float32),
        turn_ids=tuple(turn.turn_id for turn in turns),
        speakers=tuple(turn.speaker for turn in turns),
        session_ids=tuple(turn.session_id for turn in turns),
        spoken_at=np.asarray(starts, dtype=np.int64),
        provenance=np.asarray(pairs, dtype=np.int64).reshape(-1, 2),
    )


def with_cosines(snapshot: Snapshot, cosines: Sequence[float]) -> Snapshot:
    """The snapshot with embeddings that have given cosines with every question encoded by ``OneAxis``.

    The cosine of two nodes is the product of their cosines.

    Args:
        snapshot: The graph.
        cosines: Cosines of the first nodes; all others have 0.
    """
    count = snapshot.num_nodes
    own = np.zeros(count)
    own[: len(cosines)] = cosines
    vectors = np.hstack([own[:, None], np.diag(np.sqrt(1 - own**2))])
    return replace(snapshot, embeddings=vectors.astype(np.float32))


class OneAxis:
    """A text encoder that maps all texts to the first axis, in the dimension that ``with_cosines`` uses."""

    model_id = "one-axis"

    def __init__(self, snapshot: Snapshot) -> None:
        self._dim = snapshot.num_nodes + 1

    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        return np.eye(len(texts), self._dim, dtype=np.float32)[[0] * len(texts)]


def permuted(snapshot: Snapshot, order: Sequence[int]) -> Snapshot:
    """The same graph with its nodes stored in another order: new row i is old row ``order[i]``."""
    rows = np.asarray(order, dtype=np.int64)
    now = np.argsort(rows)
    pairs = np.stack([now[snapshot.provenance[:, 0]], snapshot.provenance[:, 1]], axis=1)
    arrays = ("keys", "active", "recorded_at", "valid_from", "valid_to", "embeddings", "types")
    changes: dict[str, Any] = {name: getattr(snapshot, name)[rows] for name in arrays}
    for name in ("ids", "labels", "descriptions"):
        changes[name] = tuple(getattr(snapshot, name)[row] for row in rows)
    return replace(
        snapshot,
        source=now[snapshot.source],
        target=now[snapshot.target],
        provenance=pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))],
        **changes,
    )


def make_inputs(snapshot: Snapshot) -> GraphInputs:
    """The snapshot as input of the network, with small features."""
    return GraphReader(snapshot, HASHED, network_relations()).inputs()


# --- a corpus with something to learn ------------------------------------------------------------------------

_ANIMALS = ("otter", "heron", "badger", "lizard", "falcon", "beetle", "marmot", "walrus", "gecko", "stoat")


def planted_space(number: int, *, things: int = 6) -> tuple[Snapshot, list[Question]]:
    """A space whose turns can be found only through their facts, and thus only with the graph.

    Thing i has a turn "That one again, number i", and a fact "Ann keeps a <animal> at home" that was extracted from it;
    the questions ask for the animal, which the turn does not name.
    """
    space = SpaceId(f"planted{number}")
    order = np.random.default_rng(number).permutation(len(_ANIMALS))[:things]
    animals = [_ANIMALS[i] for i in order]
    lines = [f"That one again, number {i}" for i in range(things)]
    turns = make_turns(lines, space=space)
    facts = [Extra("knowledge_node", f"Ann keeps a {animal} at home", (i,)) for i, animal in enumerate(animals)]
    edges = [(things + i, "DERIVED_FROM", i) for i in range(things)]
    questions = [
        Question(space, f"{space}-q{i}", f"Who keeps the {animal}?", "1", (turns[i].turn_id,))
        for i, animal in enumerate(animals)
    ]
    return make_snapshot(turns, facts, edges, key_offset=1 + 1000 * number), questions


SMALL_MODEL = ModelConfig(lexical_dim=64, speaker_dim=8, date_dim=16, attention_dim=4)
CPU = TrainerConfig(accelerator="cpu", devices=1, csv_log=False)


def small_settings(*, pretrain: int = 0, finetune: int = 3, patience: int = 50, encoder: str = "hgt") -> Settings:
    """Settings of a training that takes seconds; pre-training uses every self-supervised loss."""
    return Settings(
        replace(SMALL_MODEL, encoder=encoder),
        TrainingConfig(epochs=finetune, pretrain_epochs=pretrain, patience=patience, lr=3e-3, warmup_steps=2),
    )


def small_checkpoint(*, seed: int = 0, text_encoder: str = "fake-bow", text_dim: int = TEXT_DIM) -> Checkpoint:
    """A checkpoint whose weights are random and depend on the seed."""
    torch.manual_seed(seed)
    network = new_network(SMALL_MODEL, text_dim).eval()
    with torch.no_grad():
        for parameter in network.nodes.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    fusion = {"dense": 0.7, "bm25": 0.3}
    details = {"seed": seed, "identity": {"train": ["elsewhere"], "validation": []}, "fusion": fusion}
    return Checkpoint(network.weights(), SMALL_MODEL, text_encoder, text_dim, details)


# --- indexes ---------------------------------------------------------------------------------------------------


def lexical_of(*snapshots: Snapshot) -> LexicalIndex:
    """The lexical index over snapshots; spaces without a snapshot are unknown."""
    held = {snapshot.space: snapshot for snapshot in snapshots}

    def load(space: SpaceId, as_of: datetime | None) -> Snapshot:
        if space not in held:
            raise UnknownSpaceError(space, held)
        present = held[space]
        if as_of is None:
            return present
        return replace(present, active=present.active & (present.recorded_at <= epoch(as_of)))

    return LexicalIndex(load)


def vectors_of(*snapshots: Snapshot) -> MemoryVectors:
    """Exact search over all nodes of snapshots."""
    memory = MemoryVectors()
    for snapshot in snapshots:
        memory.add_snapshot(snapshot, types=snapshot.types.tolist())
    return memory


class BrokenVectors:
    """A vector search whose index cannot be reached."""

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        raise IndexUnavailableError("index 'nowhere': cannot search")


class FixedVectors:
    """A vector search that finds the same for every question, and records the scopes that it was given."""

    def __init__(self, matches: Sequence[VectorMatch]) -> None:
        self._matches = list(matches)
        self.scopes: list[SearchFilter] = []

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        self.scopes.append(scope)
        return self._matches[:top_k]


class TableQueryEncoder:
    """A query encoder that looks up the vectors of known questions."""

    def __init__(self, version: str, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        self.version = version
        self._vectors = vectors
        self.asked: list[tuple[str, datetime | None]] = []

    def encode_query(self, text: str, *, asked_at: datetime | None = None) -> NDArray[np.float32]:
        self.asked.append((text, asked_at))
        return self._vectors[text]


def hit(node: str, kind: str, *turns: str, score: float = 1.0) -> Hit:
    """A hit without text."""
    return Hit(NodeId(node), kind, node, tuple(TurnId(turn) for turn in turns), score)

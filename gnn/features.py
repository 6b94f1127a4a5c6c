"""Converts a snapshot into the tensors that the graph network reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from locigraph.gnn.errors import GraphError
from locigraph.gnn.relations import NetworkRelation
from locigraph.gnn.sketch import HashedFeatures
from locigraph.kg.language.tokens import terms
from locigraph.kg.schema import EPISODE, NODE_TYPES
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import Turn

#: Features of a node besides its content: the log of its length; whether it asks a question, shares an image, and is
#: one of the first two turns of its session.
TRAITS = ("log_length", "is_question", "has_image", "opens_session")
_DAY_S = 86_400.0


@dataclass(frozen=True, eq=False)
class Tensors:
    """Base of dataclasses that hold tensors."""

    def to(self, device: torch.device | str) -> Self:
        """A copy with its tensors, and all other fields that have a method ``to``, moved to a device."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: value.to(device) for name, value in values.items() if hasattr(value, "to")})


@dataclass(frozen=True, eq=False)
class GraphInputs(Tensors):
    """The turns of a space and their neighbours. Turns come first among the nodes, in conversation order.

    Attributes:
        text: Embeddings of the descriptions, [nodes, text_dim].
        lexical: Lexical sketches of the descriptions, [nodes, lexical_dim].
        context: Hashed speaker and dates, [nodes, context_dim].
        speakers: The speaker's columns of ``context``, [nodes, speaker_dim]; 0 for nodes without a speaker.
        traits: The features that ``TRAITS`` lists, [nodes, 4].
        days: When the node happened or was said, in days since 1970; NaN where undated, [nodes].
        node_type: Position of the node's type among ``node_types(relations)``, int64 [nodes].
        rows: Row of each node in the snapshot, int64 [nodes].
        source: Neighbour at the start of each edge, int64 [edges].
        target: Turn at the end of each edge, int64 [edges]; the edges are sorted by it.
        relation: Position of the edge's relation among the encoder's relations, int64 [edges].
        num_turns: Number of turns.
    """

    text: Tensor
    lexical: Tensor
    context: Tensor
    speakers: Tensor
    traits: Tensor
    days: Tensor
    node_type: Tensor
    rows: Tensor
    source: Tensor
    target: Tensor
    relation: Tensor
    num_turns: int

    def with_edges(self, keep: Tensor) -> GraphInputs:
        """A copy with all nodes but only the edges where ``keep``, bool [edges], is true."""
        return replace(self, source=self.source[keep], target=self.target[keep], relation=self.relation[keep])


def node_types(relations: Sequence[NetworkRelation]) -> tuple[str, ...]:
    """The node types at the ends of some relations, turns first."""
    return tuple(dict.fromkeys([EPISODE, *(relation.source for relation in relations)]))


def graph_inputs(
    snapshot: Snapshot,
    hashed: HashedFeatures,
    relations: Sequence[NetworkRelation],
) -> GraphInputs:
    """Build the inputs from the active turns of a snapshot and the active nodes that a relation joins to one of them.

    Raises:
        GraphError: If the snapshot has no turn or no embeddings.
        UnknownNameError: If the snapshot has a type that the schema does not know.
    """
    if snapshot.num_nodes and snapshot.embeddings.shape[1] == 0:
        raise GraphError(f"snapshot of space {snapshot.space!r} has no embeddings; load it with an embedding model")
    turns = snapshot.active_rows((EPISODE,))
    if not len(turns):
        raise GraphError(f"snapshot of space {snapshot.space!r} holds no turns: none had been said by its time")
    # The graph network's type of every node (``network`` in ``kg.schema``), [nodes].
    kinds = np.asarray([NODE_TYPES[name].network for name in snapshot.types.tolist()], dtype=np.str_)
    edges = [_edges(snapshot, kinds, relation) for relation in relations]
    ends = np.concatenate([np.zeros((2, 0), dtype=np.int64), *edges], axis=1)
    rows = np.concatenate([turns, np.setdiff1d(ends[0], turns)])
    place = np.full(snapshot.num_nodes, -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    source, target = place[ends]
    relation = np.repeat(np.arange(len(edges)), [each.shape[1] for each in edges])
    order = np.lexsort((source, relation, target))
    types = node_types(relations)
    features = _node_features(snapshot, rows, kinds[rows], hashed)
    return GraphInputs(
        **{name: torch.from_numpy(values) for name, values in features.items()},
        node_type=torch.tensor([types.index(kind) for kind in kinds[rows].tolist()], dtype=torch.int64),
        rows=torch.from_numpy(rows),
        source=torch.from_numpy(source[order]),
        target=torch.from_numpy(target[order]),
        relation=torch.from_numpy(relation[order].astype(np.int64)),
        num_turns=len(turns),
    )


def _edges(snapshot: Snapshot, kinds: NDArray[np.str_], relation: NetworkRelation) -> NDArray[np.int64]:
    """(Neighbour, turn) of each edge of a relation between active nodes, as rows of the snapshot, [2, edges]."""
    of_family = snapshot.families == relation.family
    source, target = snapshot.source[of_family], snapshot.target[of_family]
    if relation.is_reversed:
        source, target = target, source
    follower = np.full(snapshot.num_nodes, -1, dtype=np.int64)
    follower[source] = target
    for _ in range(relation.hops - 1):
        target = follower[target]
        source, target = source[target >= 0], target[target >= 0]
    fits = (kinds[source] == relation.source) & (kinds[target] == EPISODE)
    fits &= snapshot.active[source] & snapshot.active[target]
    return np.stack([source[fits], target[fits]])


def _node_features(
    snapshot: Snapshot,
    rows: NDArray[np.int64],
    kinds: NDArray[np.str_],
    hashed: HashedFeatures,
) -> dict[str, NDArray[np.float32]]:
    speaker: dict[int, str] = {}
    opens: dict[int, bool] = {}
    turns_before: Counter[str] = Counter()  # by session, since turns of several sessions may alternate
    for turn, row in enumerate(snapshot.episode_rows.tolist()):
        session = snapshot.session_ids[turn]
        speaker[row], opens[row] = snapshot.speakers[turn], turns_before[session] < 2
        turns_before[session] += 1
    names = [speaker.get(row) for row in rows.tolist()]
    texts = [snapshot.descriptions[row] for row in rows.tolist()]
    # Descriptions of turns begin with the speaker's name; left in, it would be a term of all the speaker's turns.
    words = [terms(Turn.without_speaker(text, who) if who else text) for text, who in zip(texts, names, strict=True)]
    # The valid time of a fact is open-ended and starts when the fact was stated, so only turns and events are dated.
    is_dated = np.asarray([NODE_TYPES[str(kind)].dated for kind in snapshot.types[rows]], dtype=bool)
    first = np.where(is_dated, snapshot.valid_from[rows], NO_TIME)
    last = np.where(is_dated, snapshot.valid_to[rows], NO_TIME)
    contexts = np.stack(
        [hashed.node(who, a, b) for who, a, b in zip(names, first.tolist(), last.tolist(), strict=True)]
    )
    traits = np.zeros((len(rows), len(TRAITS)), dtype=np.float32)
    traits[:, 0] = np.log1p([len(each) for each in words]) - 2.0  # about 0 for a turn of seven terms
    traits[:, 1] = ["?" in text for text in texts]
    traits[:, 2] = [Turn.shares_image(text) for text in texts]
    traits[:, 3] = [opens.get(row, False) for row in rows.tolist()]
    return {
        "text": snapshot.embeddings[rows],
        "lexical": hashed.documents(words, kinds=kinds.tolist()),
        "context": contexts,
        "speakers": contexts[:, : hashed.speaker_dim],
        "traits": traits,
        "days": np.where(first == NO_TIME, np.nan, first / _DAY_S).astype(np.float32),
    }

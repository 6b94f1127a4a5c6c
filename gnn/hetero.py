"""From a snapshot to ``HeteroData``: the graph network's view of a space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import HeteroData

from locigraph.gnn.errors import GraphError, UnknownNodeTypeError
from locigraph.gnn.lexical import ContextHash, LexicalSketch
from locigraph.gnn.packed import EdgeType, GraphMetadata, PackedGraph, pack
from locigraph.kg.language.tokens import terms
from locigraph.kg.schema import COINED_FAMILY
from locigraph.kg.snapshot import NO_TIME, Snapshot

#: The network's node types. Rare store types share the weights of the type they are closest to.
NODE_TYPES = ("episode", "event_node", "knowledge_node", "concept", "entity")
_SHARED: Mapping[str, str] = {
    "sub_event": "event_node",
    "reflection": "knowledge_node",
    "event_category": "concept",
    "knowledge_category": "concept",
}

#: Episodes up to this many turns apart in a session are joined directly.
NEXT_HOPS = 4
# Labels that an LLM coins may join anything to anything.
_RELATED = NODE_TYPES

FORWARD_EDGE_TYPES: tuple[EdgeType, ...] = (
    ("episode", "NEXT", "episode"),
    *(("episode", f"NEXT_{hop}", "episode") for hop in range(2, NEXT_HOPS + 1)),
    ("knowledge_node", "DERIVED_FROM", "episode"),
    ("event_node", "DERIVED_FROM", "episode"),
    ("episode", "HAS_CONCEPT", "concept"),
    ("knowledge_node", "ABOUT_CONCEPT", "concept"),
    ("event_node", "ABOUT_CONCEPT", "concept"),
    ("episode", "MENTIONS", "entity"),
    ("knowledge_node", "MENTIONS", "entity"),
    ("event_node", "MENTIONS", "entity"),
    ("event_node", "PRECEDES", "event_node"),
    *((source, COINED_FAMILY, target) for source in _RELATED for target in _RELATED),
)


def reverse_of(edge_type: EdgeType) -> EdgeType:
    """(target, "rev_" + relation, source)."""
    source, relation, target = edge_type
    return target, f"rev_{relation}", source


#: Every relation has its reverse, so that every node type receives messages.
METADATA = GraphMetadata(
    NODE_TYPES, FORWARD_EDGE_TYPES + tuple(reverse_of(edge_type) for edge_type in FORWARD_EDGE_TYPES)
)

#: Per node: log length, asks, shares an image, opens a session.
TRAITS = ("log_length", "is_question", "has_image", "opens_session")


def to_hetero(
    snapshot: Snapshot, sketch: LexicalSketch, context: ContextHash, *, metadata: GraphMetadata = METADATA
) -> HeteroData:
    """The graph of a snapshot with the network's input features.

    Each node store has ``text`` [n, text_dim], ``lexical`` [n, sketch.dim], ``context`` [n, context.dim],
    ``speaker`` [n, context.speaker_dim], ``traits`` [n, 4] and ``row`` [n], the snapshot's row of each node.

    Args:
        snapshot: With embeddings.
        sketch: Makes the lexical features.
        context: Makes the features of speaker and time.
        metadata: Types that the network knows.

    Raises:
        GraphError: If the snapshot has no embeddings, or a node type would receive no message.
        UnknownNodeTypeError: If the snapshot has a type that the network does not know.
    """
    check_receivers(metadata)
    if not snapshot.num_nodes:
        raise GraphError(f"snapshot of space {snapshot.space!r} holds no nodes: nothing had been said by its time")
    if snapshot.embeddings.shape[1] == 0:
        raise GraphError(f"snapshot of space {snapshot.space!r} has no embeddings; name an embedding model")
    kinds = np.asarray([_SHARED.get(str(kind), str(kind)) for kind in snapshot.types], dtype=np.str_)
    for kind in np.unique(kinds):
        if kind not in metadata.node_types:
            raise UnknownNodeTypeError(str(kind), metadata.node_types)
    speaker = _speakers(snapshot)
    texts = [
        terms(text.removeprefix(f"{who}: ") if who else text)
        for text, who in zip(snapshot.descriptions, speaker, strict=True)
    ]
    lexical = sketch.documents(texts, kinds=kinds.tolist())
    times = zip(speaker, snapshot.valid_from.tolist(), snapshot.valid_to.tolist(), kinds, strict=True)
    contexts = np.stack(
        # A fact's valid time is open-ended and begins when it was said: only turns and events are dated.
        [
            context.node(who, *((a, b) if kind in ("episode", "event_node") else (NO_TIME, NO_TIME)))
            for who, a, b, kind in times
        ]
    )
    traits = _traits(snapshot, texts)
    data = HeteroData()
    local = np.zeros(snapshot.num_nodes, dtype=np.int64)
    for kind in metadata.node_types:
        rows = np.flatnonzero(kinds == kind)
        local[rows] = np.arange(len(rows))
        store = data[kind]
        store.num_nodes = len(rows)
        store.row = torch.from_numpy(rows)
        store.text = torch.from_numpy(snapshot.embeddings[rows])
        store.lexical = torch.from_numpy(lexical[rows])
        store.context = torch.from_numpy(contexts[rows])
        store.speaker = store.context[:, : context.speaker_dim]
        store.traits = torch.from_numpy(traits[rows])
    for edge_type, (source, target) in _edges(snapshot, kinds, metadata).items():
        edge_index = torch.from_numpy(np.stack([local[source], local[target]]))
        data[edge_type].edge_index = edge_index
        data[reverse_of(edge_type)].edge_index = edge_index.flip(0)
    return data


def check_receivers(metadata: GraphMetadata) -> None:
    """Raise GraphError if a node type is no relation's target: it would receive nothing."""
    targets = {target for _, _, target in metadata.edge_types}
    for kind in metadata.node_types:
        if kind not in targets:
            raise GraphError(f"node type {kind!r} is the target of no edge type; add the reverse of one that it sends")


def _speakers(snapshot: Snapshot) -> list[str | None]:
    speaker: list[str | None] = [None] * snapshot.num_nodes
    for turn, row in enumerate(snapshot.episode_rows.tolist()):
        if row >= 0:
            speaker[row] = snapshot.speakers[turn]
    return speaker


def _traits(snapshot: Snapshot, texts: list[list[str]]) -> NDArray[np.float32]:
    traits = np.zeros((snapshot.num_nodes, len(TRAITS)), dtype=np.float32)
    traits[:, 0] = np.log1p([len(words) for words in texts]) - 2.0
    traits[:, 1] = ["?" in text for text in snapshot.descriptions]
    traits[:, 2] = ["[shares " in text for text in snapshot.descriptions]
    in_session = 0
    for turn, row in enumerate(snapshot.episode_rows.tolist()):
        same = turn > 0 and snapshot.session_ids[turn] == snapshot.session_ids[turn - 1]
        in_session = in_session + 1 if same else 0
        if row >= 0:
            traits[row, 3] = in_session < 2
    return traits


def _edges(
    snapshot: Snapshot, kinds: NDArray[np.str_], metadata: GraphMetadata
) -> dict[EdgeType, tuple[NDArray[np.int64], NDArray[np.int64]]]:
    grouped: dict[EdgeType, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
    if len(snapshot.source):
        triples = np.stack([kinds[snapshot.source], snapshot.families, kinds[snapshot.target]], axis=1)
        unique, inverse = np.unique(triples, axis=0, return_inverse=True)
        for number, (source, family, target) in enumerate(unique.tolist()):
            edge_type = (source, family, target)
            if edge_type not in metadata.edge_types:
                edge_type = (source, COINED_FAMILY, target)
                metadata.edge_index(edge_type)  # refuses what the network cannot see, by name
            chosen = np.flatnonzero(inverse.reshape(-1) == number)
            ends = snapshot.source[chosen], snapshot.target[chosen]
            if edge_type in grouped:
                held = grouped[edge_type]
                ends = np.concatenate([held[0], ends[0]]), np.concatenate([held[1], ends[1]])
            grouped[edge_type] = ends
    next_type: EdgeType = ("episode", "NEXT", "episode")
    if next_type in grouped:
        follower = dict(zip(*(end.tolist() for end in grouped[next_type]), strict=True))
        reached = dict(follower)
        for hop in range(2, NEXT_HOPS + 1):
            reached = {first: follower[last] for first, last in reached.items() if last in follower}
            pairs = np.asarray(list(reached.items()), dtype=np.int64).reshape(-1, 2)
            grouped["episode", f"NEXT_{hop}", "episode"] = pairs[:, 0], pairs[:, 1]
    return grouped


@dataclass(frozen=True, eq=False)
class GraphInputs:
    """A space's graph as tensors in the packed node order.

    Attributes:
        graph: Structure.
        text: Description embeddings, [nodes, text_dim].
        lexical: Sketches, [nodes, sketch.dim].
        context: Speaker and time, [nodes, context.dim].
        speakers: The speaker's part of the context, [nodes, context.speaker_dim]; 0 where nobody speaks.
        traits: [nodes, 4].
        rows: Snapshot row of each node, int64 [nodes].
    """

    graph: PackedGraph
    text: Tensor
    lexical: Tensor
    context: Tensor
    speakers: Tensor
    traits: Tensor
    rows: Tensor

    def to(self, device: torch.device | str) -> GraphInputs:
        """The same on a device."""
        return GraphInputs(
            self.graph.to(device),
            *(t.to(device) for t in (self.text, self.lexical, self.context, self.speakers, self.traits, self.rows)),
        )

    def with_graph(self, graph: PackedGraph) -> GraphInputs:
        """The same nodes with other edges."""
        return replace(self, graph=graph)

    def with_features_of(self, other: GraphInputs, chosen: Tensor) -> GraphInputs:
        """The same graph, but for chosen nodes, bool [nodes], with another's texts, words and traits of them."""
        mask = chosen[:, None]
        return replace(
            self,
            text=torch.where(mask, other.text, self.text),
            lexical=torch.where(mask, other.lexical, self.lexical),
            traits=torch.where(mask, other.traits, self.traits),
        )


def inputs_of(data: HeteroData, metadata: GraphMetadata = METADATA) -> GraphInputs:
    """Pack a graph made by ``to_hetero``."""

    def joined(name: str) -> Tensor:
        return torch.cat([data[kind][name] for kind in metadata.node_types])

    return GraphInputs(
        pack(data, metadata),
        joined("text"),
        joined("lexical"),
        joined("context"),
        joined("speaker"),
        joined("traits"),
        joined("row"),
    )

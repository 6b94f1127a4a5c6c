"""Nodes to vectors: learnt mixing over relations, gated and complemented by HGT layers.

A node's vector is a row of blocks: text | lexical | free | context | bias. Text and lexical blocks are the node's own
input plus a weighted mean of its neighbours', relation by relation, so that a turn carries the words of the facts
drawn from it and of the turns beside it. The weights start at values that work untrained and are learnt; HGT states
gate them edge by edge and add a residual to the text block and the free block. A question's vector has the same
blocks (``gnn.query``), so that one inner product compares them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor, nn

from locigraph.gnn.errors import GraphError
from locigraph.gnn.hetero import METADATA, TRAITS, GraphInputs, reverse_of
from locigraph.gnn.hgt import HGTLayer, typed_linear
from locigraph.gnn.layout import segment_ptr
from locigraph.gnn.packed import EdgeType, GraphMetadata, PackedGraph

FACT: EdgeType = ("knowledge_node", "DERIVED_FROM", "episode")
EVENT: EdgeType = ("event_node", "DERIVED_FROM", "episode")
_NEXT: EdgeType = ("episode", "NEXT", "episode")
_TOPIC: EdgeType = reverse_of(("episode", "HAS_CONCEPT", "concept"))

#: Weight of a relation's mean in the text and in the lexical block before training; 0 where nothing is said. Round
#: numbers in the proportions of hand-set smoothing that works untrained. ``NEXT`` brings what came before, its reverse
#: what came after.
START_TEXT: Mapping[EdgeType, float] = {FACT: 0.5, EVENT: 0.15, _TOPIC: 0.1, _NEXT: 0.15, reverse_of(_NEXT): 0.15}
START_LEXICAL: Mapping[EdgeType, float] = {
    FACT: 0.5, EVENT: 0.1, _TOPIC: 0.05, _NEXT: 0.1, reverse_of(_NEXT): 0.1,
}  # fmt: skip
#: Weight in the context block: an event's date is its turn's too.
START_CONTEXT: Mapping[EdgeType, float] = {EVENT: 0.5}
_OWN_TEXT, _OWN_LEXICAL = 0.5, 0.5
_TARGET_TRAITS = 2  # has a fact; log number of facts
_ALL_TRAITS = len(TRAITS) + _TARGET_TRAITS
# Cosine of the ends' texts (less about its mean), same speaker, traits of source and target.
_EDGE_FEATURES = 2 + 2 * _ALL_TRAITS
_MEAN_COSINE = 0.3
# How much of a state's residual enters the text block; small, so that training starts near the mixture.
_RESIDUAL_SCALE = 0.3
_HOPS: tuple[EdgeType, ...] = tuple(t for t in METADATA.edge_types if t[0] == t[2] == "episode")
#: Relations whose neighbours' words and meaning an episode takes in; the HGT layers see all relations.
MIXED: tuple[EdgeType, ...] = (FACT, EVENT, _TOPIC, *_HOPS)


@dataclass(frozen=True)
class EncoderConfig:
    """Sizes and switches of the encoder.

    Attributes:
        text_dim: Width of the description embeddings.
        lexical_dim: Width of the lexical sketch; 0 leaves the lexical part out.
        context_dim: Width of the hashed speakers and dates; 0 leaves them out.
        hidden_dim: Width of the HGT states.
        layers: HGT layers; 0 leaves state gates and free block to see the node itself only.
        heads: Attention heads; divides ``hidden_dim``.
        free_dim: Width of the free block; 0 leaves it out, with the residual.
        edge_gate: Whether an edge's own features (likeness, same speaker, traits of its ends) move its weight.
        state_gate: Whether HGT states move it.
        gate_limit: How far states may move a weight, up or down.
        dropout: In the HGT part.
        excluded: Relations (names such as ``MENTIONS``) whose edges are not used, in either direction.
    """

    text_dim: int = 384
    lexical_dim: int = 2048
    context_dim: int = 256
    hidden_dim: int = 128
    layers: int = 0
    heads: int = 4
    free_dim: int = 64
    edge_gate: bool = True
    state_gate: bool = True
    gate_limit: float = 0.5
    dropout: float = 0.3
    excluded: tuple[str, ...] = ()

    @property
    def uses_states(self) -> bool:
        """Whether there is anything for HGT states to do."""
        return self.state_gate or self.free_dim > 0

    @property
    def vector_dim(self) -> int:
        """Width of a stored vector."""
        return self.text_dim + self.lexical_dim + self.free_dim + self.context_dim + 1


@dataclass(frozen=True, eq=False)
class Mixing:
    """The learnt linear part: what nodes keep of themselves and what episodes take from neighbours.

    Attributes:
        own: Weight of the own text and the own lexical input, [nodes, 2].
        edge: Position in the graph's edge list of each mixed edge, by target, [mixed].
        weight: Of its source's text, lexical and context input, [mixed, 3].
        bounds: Where each episode's edges begin, [episodes + 1].
    """

    own: Tensor
    edge: Tensor
    weight: Tensor
    bounds: Tensor

    def applied(self, block: Tensor, table: Tensor, graph: PackedGraph, column: int) -> Tensor:
        """A block with the neighbours' rows of a table added to the episodes' rows.

        Args:
            block: [nodes, width].
            table: What neighbours contribute, [nodes, width].
            graph: Whose edges are meant.
            column: Of ``weight``.
        """
        if table.shape[1] == 0 or not len(self.edge):
            return block
        episodes = graph.slice_of("episode")
        # A bag of embeddings reads a row and adds it in one go: no [edges, dim] tensor is made.
        sums = F.embedding_bag(
            graph.source[self.edge],
            table,
            self.bounds,
            mode="sum",
            per_sample_weights=self.weight[:, column].contiguous(),
            include_last_offset=True,
        )
        return torch.cat([block[: episodes.start], block[episodes] + sums, block[episodes.stop :]])


@dataclass(frozen=True, eq=False)
class NodeVectors:
    """The blocks of all nodes' vectors, each [nodes, width of the block], and what they were made of.

    ``states`` are the HGT states, [nodes, hidden_dim]; None without HGT part.
    """

    text: Tensor
    lexical: Tensor
    free: Tensor
    context: Tensor
    bias: Tensor
    states: Tensor | None
    mixing: Mixing

    def joined(self) -> Tensor:
        """What is stored: [nodes, vector_dim]."""
        return torch.cat([self.text, self.lexical, self.free, self.context, self.bias], dim=1)


class NodeEncoder(nn.Module):
    """Graph to vectors.

    Args:
        config: Sizes and switches.
        metadata: Node and edge types.
    """

    def __init__(self, config: EncoderConfig, metadata: GraphMetadata = METADATA) -> None:
        super().__init__()
        self.config = config
        self.metadata = metadata
        relations = len(metadata.edge_types)
        self.own = nn.Parameter(torch.tensor([_OWN_TEXT, _OWN_LEXICAL]))
        self.text_weight = nn.Parameter(self._start(START_TEXT))
        self.lexical_weight = nn.Parameter(self._start(START_LEXICAL))
        self.context_weight = nn.Parameter(self._start(START_CONTEXT))
        self.trait_weight = nn.Parameter(torch.zeros(_ALL_TRAITS))
        if config.edge_gate:
            self.edge_weight = nn.Parameter(torch.zeros(relations, 2, _EDGE_FEATURES))
            self.own_weight = nn.Parameter(torch.zeros(2, _ALL_TRAITS))
        if not config.uses_states:
            return
        types, hidden = len(metadata.node_types), config.hidden_dim
        # Text embeddings have length 1, so their numbers are about 1/sqrt(dim): scaled up to unit variance.
        self.input_weight = nn.Parameter(torch.randn(types, hidden, config.text_dim) * 4 / config.text_dim**0.5)
        self.input_bias = nn.Parameter(torch.randn(types, hidden) * 0.1)
        self.input_traits = nn.Linear(_ALL_TRAITS, hidden)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(config.layers + 1))
        self.layers = nn.ModuleList(
            HGTLayer(hidden, hidden, metadata, heads=config.heads, dropout=config.dropout) for _ in range(config.layers)
        )
        if config.state_gate:
            self.gate = EdgeGate(hidden, relations)
            self.own_gate = nn.Linear(hidden, 2)
            nn.init.zeros_(self.own_gate.weight)
            nn.init.zeros_(self.own_gate.bias)
        if config.free_dim:
            self.free = nn.Linear(hidden, config.free_dim)
            self.residual = nn.Linear(hidden, config.text_dim)
            nn.init.zeros_(self.residual.weight)
            nn.init.zeros_(self.residual.bias)

    def _start(self, weights: Mapping[EdgeType, float]) -> Tensor:
        return torch.tensor([weights.get(edge_type, 0.0) for edge_type in self.metadata.edge_types])

    def forward(self, inputs: GraphInputs) -> NodeVectors:
        """Encode every node of a graph.

        Args:
            inputs: Of this encoder's metadata and sizes.

        Raises:
            GraphError: If sizes or metadata do not fit.
        """
        config = self.config
        self._check(inputs)
        graph = without_relations(inputs.graph, config.excluded)
        inputs = inputs.with_graph(graph)
        traits = torch.cat([inputs.traits, _fact_traits(graph)], dim=1)
        states = self.states(inputs, traits) if config.uses_states else None
        mixing = self._mixing(inputs, traits, states)
        text = mixing.applied(mixing.own[:, :1] * inputs.text, inputs.text, graph, 0)
        lexical = mixing.applied(mixing.own[:, 1:] * inputs.lexical, inputs.lexical, graph, 1)
        context = mixing.applied(inputs.context, inputs.context, graph, 2)
        free = inputs.text.new_zeros(graph.num_nodes, 0)
        if states is not None and config.free_dim:
            free = self.free(states)
            text = text + _RESIDUAL_SCALE * self.residual(states)
        bias = (traits @ self.trait_weight)[:, None]
        return NodeVectors(text, lexical, free, context, bias, states, mixing)

    def states(self, inputs: GraphInputs, traits: Tensor) -> Tensor:
        """HGT states of all nodes, [nodes, hidden_dim]."""
        states = typed_linear(inputs.text, self.input_weight, self.input_bias, inputs.graph.node_ptr)
        states = F.dropout(F.gelu(states + self.input_traits(traits)), self.config.dropout, self.training)
        for norm, layer in zip(self.norms, self.layers, strict=False):
            states = states + layer(norm(states), inputs.graph)
        result: Tensor = self.norms[-1](states)
        return result

    def _mixing(self, inputs: GraphInputs, traits: Tensor, states: Tensor | None) -> Mixing:
        """What each node keeps of itself and takes from its neighbours; only episodes take: only they are ranked."""
        graph, config = inputs.graph, self.config
        own = self.own.expand(graph.num_nodes, 2)
        if config.edge_gate:
            own = own + traits @ self.own_weight.T
        if states is not None and config.state_gate:
            own = own + config.gate_limit * torch.tanh(self.own_gate(states))
        episodes = graph.slice_of("episode")
        count = episodes.stop - episodes.start
        places = [torch.arange(e.start, e.stop, device=graph.device) for e in map(graph.edges_of, MIXED)]
        weights = [
            self._edge_weights(inputs, traits, states, relation, count)
            for relation, e in zip(MIXED, places, strict=True)
            if len(e)
        ]
        edge = torch.cat(places)
        target = graph.target[edge] - episodes.start
        order = torch.argsort(target, stable=True)
        weight = torch.cat(weights)[order] if weights else inputs.text.new_zeros(0, 3)
        return Mixing(own, edge[order], weight, segment_ptr(target, count))

    def _edge_weights(
        self, inputs: GraphInputs, traits: Tensor, states: Tensor | None, relation: EdgeType, count: int
    ) -> Tensor:
        """Weights of one relation's edges in the text, lexical and context block, [edges, 3]."""
        graph, config = inputs.graph, self.config
        edges, position = graph.edges_of(relation), self.metadata.edge_index(relation)
        source, target = graph.source[edges], graph.target[edges]
        local = target - graph.slice_of("episode").start
        weight = torch.stack([self.text_weight[position], self.lexical_weight[position]]).expand(len(source), 2)
        cosine = (inputs.text[source] * inputs.text[target]).sum(1)
        if config.edge_gate:
            same_speaker = (inputs.speakers[source] * inputs.speakers[target]).sum(1, keepdim=True)
            features = torch.cat([cosine[:, None] - _MEAN_COSINE, same_speaker, traits[source], traits[target]], dim=1)
            weight = weight + features @ self.edge_weight[position].T
        if states is not None and config.state_gate:
            logits = self.gate(states, source, target, position, cosine)
            weight = weight + config.gate_limit * torch.tanh(logits)
        weight = torch.cat([weight, self.context_weight[position].expand(len(source), 1)], dim=1)
        # The mean over a relation's neighbours: a turn with ten facts must not outweigh one with a single fact.
        return weight / torch.bincount(local, minlength=count)[local][:, None]

    def _check(self, inputs: GraphInputs) -> None:
        if inputs.graph.metadata != self.metadata:
            raise GraphError("the graph was packed with other metadata than the encoder's; pack it with METADATA")
        for name, width in (
            ("text", self.config.text_dim),
            ("lexical", self.config.lexical_dim),
            ("context", self.config.context_dim),
        ):
            held = getattr(inputs, name).shape[1]
            if held != width:
                raise GraphError(f"{name} features have width {held} but the encoder was made for {width}")


class EdgeGate(nn.Module):
    """How much an edge's neighbour should count, from the states of its ends and their likeness.

    Starts at zero, so that training begins at the ungated weights.

    Args:
        hidden_dim: Width of the states.
        relations: Number of edge types.
        rank: Width of the bilinear term.
    """

    def __init__(self, hidden_dim: int, relations: int, *, rank: int = 16) -> None:
        super().__init__()
        self.rank = rank
        self.source = nn.Linear(hidden_dim, 2 * rank)
        self.target = nn.Linear(hidden_dim, 2 * rank)
        self.bilinear = nn.Parameter(torch.ones(relations, 2, rank))
        self.scale = nn.Parameter(torch.zeros(relations, 2))
        self.of_source = nn.Parameter(torch.zeros(relations, 2, hidden_dim))
        self.of_target = nn.Parameter(torch.zeros(relations, 2, hidden_dim))
        self.of_cosine = nn.Parameter(torch.zeros(relations, 2))

    def forward(self, states: Tensor, source: Tensor, target: Tensor, relation: int, cosine: Tensor) -> Tensor:
        """Gate logits of one relation's edges for the text and the lexical block.

        Args:
            states: [nodes, hidden_dim].
            source: [edges].
            target: [edges].
            relation: Position of the edge type.
            cosine: Likeness of the ends' texts, [edges].

        Returns:
            [edges, 2].
        """
        a, b = states[source], states[target]
        left = self.source(a).view(-1, 2, self.rank)
        right = self.target(b).view(-1, 2, self.rank)
        product = (left * right * self.bilinear[relation]).sum(-1) / self.rank**0.5
        result: Tensor = (
            product * self.scale[relation]
            + a @ self.of_source[relation].T
            + b @ self.of_target[relation].T
            + cosine[:, None] * self.of_cosine[relation]
        )
        return result


def _fact_traits(graph: PackedGraph) -> Tensor:
    """Whether facts were drawn from a node, and log(1 + how many), [nodes, 2].

    Counted on the message edges, so that an edge hidden for supervision is hidden here too.
    """
    edges = graph.edges_of(FACT)
    target = graph.target[edges]
    count = torch.zeros(graph.num_nodes, device=target.device).index_add_(
        0, target, torch.ones_like(target, dtype=torch.float32)
    )
    return torch.stack([(count > 0).float(), torch.log1p(count)], dim=1)


def without_relations(graph: PackedGraph, excluded: tuple[str, ...]) -> PackedGraph:
    """The graph without the edges of some relations, in both directions.

    Args:
        graph: The graph.
        excluded: Relation names, ``NEXT`` standing for all its hops; or, with the type of the source before a colon,
            such as ``event_node:DERIVED_FROM``, for that type alone.

    Raises:
        GraphError: If a name is no relation of the metadata.
    """
    if not excluded:
        return graph
    names: list[set[str]] = []
    for source, relation, target in graph.metadata.edge_types:
        name = relation.removeprefix("rev_")
        first = source if name == relation else target
        names.append({name, f"{first}:{name}"} | ({"NEXT"} if name.startswith("NEXT_") else set()))
    known = set().union(*names)
    for name in excluded:
        if name not in known:
            raise GraphError(f"relation {name!r} is none of {sorted(known)}")
    drop = {position for position, each in enumerate(names) if each & {*excluded}}
    keep = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)
    for position in drop:
        keep[graph.edge_ptr[position] : graph.edge_ptr[position + 1]] = False
    return graph.without_edges(keep=keep)

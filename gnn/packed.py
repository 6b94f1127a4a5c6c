"""A heterogeneous graph as a few tensors in one index space.

A dictionary of tensors per type costs a kernel launch per type and operation, and in backward a zero-filled
copy. Packed, all nodes are rows of one matrix, grouped by node type, and all edges are in one list, grouped
by relation, so that per-type work is done on slices whose bounds are Python numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from locigraph.gnn.errors import GraphError, UnknownEdgeTypeError, UnknownNodeTypeError
from locigraph.gnn.layout import EdgeLayout, layout_of

EdgeType = tuple[str, str, str]


@dataclass(frozen=True)
class GraphMetadata:
    """The node types and edge types of a heterogeneous graph, in the order of all tensors made from them.

    Attributes:
        node_types: Names, each once.
        edge_types: Triples (source type, relation, target type), each once.

    Raises:
        UnknownNodeTypeError: If an edge type joins a node type that ``node_types`` lacks.
        GraphError: If a type is listed twice.
    """

    node_types: tuple[str, ...]
    edge_types: tuple[EdgeType, ...]

    def __post_init__(self) -> None:
        for what, types in (("node", self.node_types), ("edge", self.edge_types)):
            for position, name in enumerate(types):
                if name in types[:position]:
                    raise GraphError(f"{what} type {name!r} is listed twice in the metadata; remove one")
        for source, _, target in self.edge_types:
            self.node_index(source)
            self.node_index(target)

    def node_index(self, node_type: str) -> int:
        """Position of a node type; UnknownNodeTypeError if there is none."""
        if node_type not in self.node_types:
            raise UnknownNodeTypeError(node_type, self.node_types)
        return self.node_types.index(node_type)

    def edge_index(self, edge_type: EdgeType) -> int:
        """Position of an edge type; UnknownEdgeTypeError if there is none."""
        if edge_type not in self.edge_types:
            raise UnknownEdgeTypeError(edge_type, self.edge_types)
        return self.edge_types.index(edge_type)


@dataclass(frozen=True, eq=False)
class PackedGraph:
    """The structure of a heterogeneous graph; features are kept apart, as one [nodes, dim] tensor.

    Attributes:
        metadata: Node types and edge types.
        node_ptr: Where each node type begins, and the number of nodes; [types + 1].
        edge_ptr: Where each relation begins, and the number of edges; [relations + 1].
        source: Index of each edge's source among all nodes, shape [edges], int64.
        target: Index of each edge's target among all nodes, shape [edges], int64.
    """

    metadata: GraphMetadata
    node_ptr: tuple[int, ...]
    edge_ptr: tuple[int, ...]
    source: Tensor
    target: Tensor

    @property
    def num_nodes(self) -> int:
        """Nodes of all types."""
        return self.node_ptr[-1]

    @property
    def num_edges(self) -> int:
        """Edges of all relations."""
        return self.edge_ptr[-1]

    @property
    def device(self) -> torch.device:
        """Where the edges are."""
        return self.source.device

    def slice_of(self, node_type: str) -> slice:
        """Rows of a node type; UnknownNodeTypeError if the metadata lacks it."""
        position = self.metadata.node_index(node_type)
        return slice(self.node_ptr[position], self.node_ptr[position + 1])

    def edges_of(self, edge_type: EdgeType) -> slice:
        """Positions of a relation's edges; UnknownEdgeTypeError if the metadata lacks it."""
        position = self.metadata.edge_index(edge_type)
        return slice(self.edge_ptr[position], self.edge_ptr[position + 1])

    def relation_of_edge(self) -> Tensor:
        """Position in the metadata of each edge's type, shape [edges], int64."""
        relation = torch.empty_like(self.source)
        for position, (begin, end) in enumerate(pairwise(self.edge_ptr)):
            relation[begin:end] = position
        return relation

    @cached_property
    def layout(self) -> EdgeLayout:
        """The edges sorted for attention; made once, at the first use or at ``to``.

        Making it reads sizes from the device. A graph packed on the CPU and moved by ``to`` brings it along.
        """
        return layout_of(
            self.source,
            self.target,
            node_ptr=self.node_ptr,
            edge_ptr=self.edge_ptr,
            source_types=[self.metadata.node_index(source) for source, _, _ in self.metadata.edge_types],
        )

    def to(self, device: torch.device | str) -> PackedGraph:
        """The same graph on a device; the layout is made first, where the edges are."""
        if torch.device(device) == self.device:
            return self
        moved = replace(self, source=self.source.to(device), target=self.target.to(device))
        # Where cached_property looks; assigning to a frozen dataclass is refused.
        moved.__dict__["layout"] = self.layout.to(device)
        return moved

    def without_edges(self, *, keep: Tensor) -> PackedGraph:
        """The graph with all its nodes and only the edges of a mask, for example without supervision edges.

        Args:
            keep: True for the edges that stay, shape [edges], bool. By keyword, since a mask
                could mean either.

        Returns:
            A new graph; the order of the kept edges is unchanged.

        Raises:
            GraphError: If the mask is not a boolean per edge.
        """
        if keep.dtype != torch.bool or keep.shape != self.source.shape:
            raise GraphError(
                f"edge mask has type {keep.dtype} and shape {list(keep.shape)};"
                f" expected torch.bool and [{self.num_edges}]"
            )
        kept_until = torch.zeros(self.num_edges + 1, dtype=torch.int64, device=self.device)
        torch.cumsum(keep, 0, out=kept_until[1:])
        edge_ptr = tuple(kept_until[list(self.edge_ptr)].tolist())
        return replace(self, edge_ptr=edge_ptr, source=self.source[keep], target=self.target[keep])


def pack(data: HeteroData, metadata: GraphMetadata) -> PackedGraph:
    """The structure of a PyG graph in the order of the metadata; features are not read.

    A type of the metadata that the graph lacks has no nodes or no edges. An edge store without
    ``edge_index``, for example one that holds only supervision edges, has no edges.

    Args:
        data: The graph. Node stores must know their number of nodes.
        metadata: Every type that the graph may hold.

    Returns:
        The packed graph, on the device of the edges.

    Raises:
        UnknownNodeTypeError: If the graph has a node type that the metadata lacks.
        UnknownEdgeTypeError: If the graph has an edge type that the metadata lacks.
        GraphError: If a number of nodes is unknown, or edges are not [2, edges] integers within range.
    """
    for node_type in data.node_types:
        metadata.node_index(node_type)
    for edge_type in data.edge_types:
        metadata.edge_index(edge_type)
    counts = [_num_nodes(data, t) if t in data.node_types else 0 for t in metadata.node_types]
    node_ptr = tuple(accumulate(counts, initial=0))
    begins = dict(zip(metadata.node_types, node_ptr, strict=False))  # the last bound begins no type
    sizes = dict(zip(metadata.node_types, counts, strict=True))

    # One empty piece, so that a graph without edges needs no special case.
    sources, targets = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
    edge_counts = []
    for edge_type in metadata.edge_types:
        has_edges = edge_type in data.edge_types and "edge_index" in data[edge_type]
        edges = _checked_edges(data[edge_type].edge_index, edge_type, sizes) if has_edges else None
        edge_counts.append(0 if edges is None else edges.shape[1])
        if edges is not None:
            sources.append(edges[0] + begins[edge_type[0]])
            targets.append(edges[1] + begins[edge_type[2]])
    device = sources[-1].device
    return PackedGraph(
        metadata=metadata,
        node_ptr=node_ptr,
        edge_ptr=tuple(accumulate(edge_counts, initial=0)),
        source=torch.cat([piece.to(device) for piece in sources]),
        target=torch.cat([piece.to(device) for piece in targets]),
    )


def _num_nodes(data: HeteroData, node_type: str) -> int:
    store = data[node_type]
    # PyG guesses from the edges, with a warning, where neither is there: isolated nodes would vanish.
    if "num_nodes" not in store and not any(store.is_node_attr(key) for key in store):
        raise GraphError(
            f"node type {node_type!r} has no features and no 'num_nodes'; set data[{node_type!r}].num_nodes"
        )
    return int(store.num_nodes)


def _checked_edges(edges: Tensor, edge_type: EdgeType, sizes: dict[str, int]) -> Tensor:
    if edges.dim() != 2 or edges.shape[0] != 2 or edges.is_floating_point() or edges.dtype == torch.bool:
        raise GraphError(
            f"edge_index of {edge_type} has type {edges.dtype} and shape {list(edges.shape)};"
            " expected integers of shape [2, edges]"
        )
    edges = edges.to(torch.int64)
    for end, node_type in ((0, edge_type[0]), (1, edge_type[2])):
        if not edges.shape[1]:
            break
        low, high = (int(bound) for bound in torch.aminmax(edges[end]))
        if low < 0 or high >= sizes[node_type]:
            value = low if low < 0 else high
            raise GraphError(
                f"edge_index of {edge_type} holds {'source' if end == 0 else 'target'} {value},"
                f" but there are {sizes[node_type]} nodes of type {node_type!r}"
            )
    return edges

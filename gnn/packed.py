"""A heterogeneous graph as a few tensors in one index space.

A dictionary of tensors per type costs a kernel launch per type and operation, and in backward a zero-filled
copy. Packed, all nodes are rows of one matrix, grouped by node type, and all edges are in one list, grouped
by relation, so that per-type work is done on slices whose bounds are Python numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gnn.errors import GraphError, UnknownEdgeTypeError, UnknownNodeTypeError

EdgeType = tuple[str, str, str]

# A relation that uses at least this share of its source type's nodes is computed for all of them: a slice is
# free, while a gather and its scatter-add in backward cost about as much as the rows they would save.
DENSE_SHARE = 0.5


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
class RowBlock:
    """Some nodes of one type in the role of source: rows of a table with a row per (node, relation).

    Attributes:
        relations: Positions in the metadata of the relations whose sources these are.
        rows: Where the block lies in the table: node by node, and for each node relation by relation.
        nodes: A slice of the graph's nodes, or node indices, each once, shape [nodes of the block].
    """

    relations: tuple[int, ...]
    rows: slice
    nodes: slice | Tensor

    def to(self, device: torch.device | str) -> RowBlock:
        """The same block on a device."""
        return self if isinstance(self.nodes, slice) else replace(self, nodes=self.nodes.to(device))


@dataclass(frozen=True, eq=False)
class SortedEdges:
    """Edges from source rows to target nodes, sorted by target for sums and by source row for their gradients.

    In both orders the edges of one segment are consecutive, so that weighted sums run without a copy of a
    vector per edge and without atomic additions: their result is the same in every run.

    Attributes:
        target: Target of the i-th edge by target, shape [edges].
        row: Source row, by target, shape [edges].
        target_ptr: Where each target's edges begin, shape [targets + 1].
        by_row: Position by target of the i-th edge by source row, shape [edges].
        from_row: Position by source row of the i-th edge by target, shape [edges].
        row_sorted: Source row, by source row, shape [edges].
        row_target: Target, by source row, shape [edges].
        row_ptr: Where each source row's edges begin, shape [rows + 1].
    """

    target: Tensor
    row: Tensor
    target_ptr: Tensor
    by_row: Tensor
    from_row: Tensor
    row_sorted: Tensor
    row_target: Tensor
    row_ptr: Tensor

    def repeated(self, times: int) -> SortedEdges:
        """Disjoint copies of the edges, one after the other, whose targets and rows are numbered on.

        Several attention heads on one graph are one head on as many copies of it.
        """
        copies = torch.arange(times, device=self.target.device)[:, None]
        edges, targets, rows = len(self.target), len(self.target_ptr) - 1, len(self.row_ptr) - 1
        end = self.target_ptr.new_full((1,), times * edges)
        return SortedEdges(
            target=(self.target + copies * targets).flatten(),
            row=(self.row + copies * rows).flatten(),
            target_ptr=torch.cat([(self.target_ptr[:-1] + copies * edges).flatten(), end]),
            by_row=(self.by_row + copies * edges).flatten(),
            from_row=(self.from_row + copies * edges).flatten(),
            row_sorted=(self.row_sorted + copies * rows).flatten(),
            row_target=(self.row_target + copies * targets).flatten(),
            row_ptr=torch.cat([(self.row_ptr[:-1] + copies * edges).flatten(), end]),
        )

    def to(self, device: torch.device | str) -> SortedEdges:
        """The same edges on a device."""
        return SortedEdges(
            target=self.target.to(device),
            row=self.row.to(device),
            target_ptr=self.target_ptr.to(device),
            by_row=self.by_row.to(device),
            from_row=self.from_row.to(device),
            row_sorted=self.row_sorted.to(device),
            row_target=self.row_target.to(device),
            row_ptr=self.row_ptr.to(device),
        )


@dataclass(frozen=True, eq=False)
class EdgeLayout:
    """The edges of a graph as attention needs them.

    Attributes:
        blocks: The source rows that the graph's relations need. No node is in two blocks that are slices.
        is_covered: Whether each node is in a block that is a slice.
        num_rows: Rows of all blocks.
        order: Position in the graph's edge list of the i-th edge by target, shape [edges].
        edges: The sorted edges.
    """

    blocks: tuple[RowBlock, ...]
    is_covered: bool
    num_rows: int
    order: Tensor
    edges: SortedEdges
    _of_heads: dict[int, SortedEdges] = field(default_factory=dict)

    def edges_of_heads(self, heads: int) -> SortedEdges:
        """The sorted edges once per head; made at the first use, since all layers and steps ask for the same."""
        if heads not in self._of_heads:
            self._of_heads[heads] = self.edges.repeated(heads)
        return self._of_heads[heads]

    def to(self, device: torch.device | str) -> EdgeLayout:
        """The same layout on a device."""
        return EdgeLayout(
            blocks=tuple(block.to(device) for block in self.blocks),
            is_covered=self.is_covered,
            num_rows=self.num_rows,
            order=self.order.to(device),
            edges=self.edges.to(device),
        )


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
        return _layout(self)

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


def segment_ptr(segment: Tensor, count: int) -> Tensor:
    """Where each segment begins in a list sorted by segment.

    Args:
        segment: Segment of each item, in any order, shape [items], in [0, count).
        count: Number of segments, empty ones included.

    Returns:
        Bounds, shape [count + 1], int64; the last is the number of items.
    """
    sizes = torch.zeros(count + 1, dtype=torch.int64, device=segment.device)
    return sizes.index_add_(0, segment + 1, torch.ones_like(segment)).cumsum(0)


def _layout(graph: PackedGraph) -> EdgeLayout:
    row = torch.empty_like(graph.source)  # source row of each edge, in the graph's order
    blocks = []
    num_rows = 0
    is_covered = True
    for node_type in graph.metadata.node_types:
        nodes = graph.slice_of(node_type)
        size = nodes.stop - nodes.start
        dense, sparse = [], []  # relations; for a sparse one also which nodes it uses
        for relation, (begin, end) in enumerate(pairwise(graph.edge_ptr)):
            if graph.metadata.edge_types[relation][0] != node_type or begin == end:
                continue
            is_used = torch.zeros(size, dtype=torch.bool, device=graph.device)
            is_used[graph.source[begin:end] - nodes.start] = True
            if int(is_used.sum()) >= DENSE_SHARE * size:
                dense.append(relation)
            else:
                sparse.append((relation, is_used))
        is_covered = is_covered and (bool(dense) or not size)
        for position, relation in enumerate(dense):
            begin, end = graph.edge_ptr[relation : relation + 2]
            local = graph.source[begin:end] - nodes.start
            row[begin:end] = local * len(dense) + position + num_rows
        if dense:
            blocks.append(RowBlock(tuple(dense), slice(num_rows, num_rows + size * len(dense)), nodes))
            num_rows += size * len(dense)
        for relation, is_used in sparse:
            begin, end = graph.edge_ptr[relation : relation + 2]
            used = is_used.nonzero().squeeze(1)
            rank = is_used.cumsum(0) - 1
            row[begin:end] = rank[graph.source[begin:end] - nodes.start] + num_rows
            blocks.append(RowBlock((relation,), slice(num_rows, num_rows + len(used)), used + nodes.start))
            num_rows += len(used)
    order = torch.argsort(graph.target, stable=True)
    target, row = graph.target[order], row[order]
    by_row = torch.argsort(row, stable=True)
    edges = SortedEdges(
        target=target,
        row=row,
        target_ptr=segment_ptr(target, graph.num_nodes),
        by_row=by_row,
        from_row=torch.argsort(by_row),
        row_sorted=row[by_row],
        row_target=target[by_row],
        row_ptr=segment_ptr(row, num_rows),
    )
    return EdgeLayout(blocks=tuple(blocks), is_covered=is_covered, num_rows=num_rows, order=order, edges=edges)


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

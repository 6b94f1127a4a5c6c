"""The edges of a packed graph in the orders in which attention reads them.

Keys and values are transformed once for each source node and relation that uses it: these are the source *rows*. Edges
are sorted by target, for sums over a node's incoming edges, and by source row, for the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import torch
from torch import Tensor

# A relation that uses at least this share of its source type's nodes is computed for all of them: a slice is
# free, while a gather and its scatter-add in backward cost about as much as the rows they would save.
DENSE_SHARE = 0.5


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


def layout_of(
    source: Tensor,
    target: Tensor,
    *,
    node_ptr: tuple[int, ...],
    edge_ptr: tuple[int, ...],
    source_types: Sequence[int],
) -> EdgeLayout:
    """The edges of a packed graph, sorted for attention.

    Args:
        source: Index of each edge's source among all nodes, shape [edges], int64.
        target: The same of its target.
        node_ptr: Where each node type begins, and the number of nodes; [types + 1].
        edge_ptr: Where each relation begins, and the number of edges; [relations + 1].
        source_types: Position of each relation's source type, [relations].
    """
    row = torch.empty_like(source)  # source row of each edge, in the graph's order
    blocks = []
    num_rows = 0
    is_covered = True
    for node_type, (first, last) in enumerate(pairwise(node_ptr)):
        nodes = slice(first, last)
        size = nodes.stop - nodes.start
        dense, sparse = [], []  # relations; for a sparse one also which nodes it uses
        for relation, (begin, end) in enumerate(pairwise(edge_ptr)):
            if source_types[relation] != node_type or begin == end:
                continue
            is_used = torch.zeros(size, dtype=torch.bool, device=source.device)
            is_used[source[begin:end] - nodes.start] = True
            if int(is_used.sum()) >= DENSE_SHARE * size:
                dense.append(relation)
            else:
                sparse.append((relation, is_used))
        is_covered = is_covered and (bool(dense) or not size)
        for position, relation in enumerate(dense):
            begin, end = edge_ptr[relation : relation + 2]
            local = source[begin:end] - nodes.start
            row[begin:end] = local * len(dense) + position + num_rows
        if dense:
            blocks.append(RowBlock(tuple(dense), slice(num_rows, num_rows + size * len(dense)), nodes))
            num_rows += size * len(dense)
        for relation, is_used in sparse:
            begin, end = edge_ptr[relation : relation + 2]
            used = is_used.nonzero().squeeze(1)
            rank = is_used.cumsum(0) - 1
            row[begin:end] = rank[source[begin:end] - nodes.start] + num_rows
            blocks.append(RowBlock((relation,), slice(num_rows, num_rows + len(used)), used + nodes.start))
            num_rows += len(used)
    order = torch.argsort(target, stable=True)
    target, row = target[order], row[order]
    by_row = torch.argsort(row, stable=True)
    edges = SortedEdges(
        target=target,
        row=row,
        target_ptr=segment_ptr(target, node_ptr[-1]),
        by_row=by_row,
        from_row=torch.argsort(by_row),
        row_sorted=row[by_row],
        row_target=target[by_row],
        row_ptr=segment_ptr(row, num_rows),
    )
    return EdgeLayout(blocks=tuple(blocks), is_covered=is_covered, num_rows=num_rows, order=order, edges=edges)


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

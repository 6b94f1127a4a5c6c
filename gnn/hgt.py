"""Heterogeneous Graph Transformer layer on plain PyTorch.

Equal to PyG's ``HGTConv`` with the same weights, and several times faster on a CPU: benchmarks/hgt.py measures
by how much. Two things make the difference. Typed linear layers and relation matrices work on slices and write
into slices of one result. And no tensor of shape [edges, dim] is made: dot products along edges run in pieces
that fit the processor's cache, and weighted sums over edges are bags of embeddings, which read a row and add
it to its sum in one go.

Source:
    Hu et al. 2020, arXiv:2003.01332, eq. 3-5; details as in torch_geometric.nn.HGTConv 2.8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from locigraph.gnn.errors import GraphError
from locigraph.gnn.layout import EdgeLayout, RowBlock, SortedEdges
from locigraph.gnn.packed import GraphMetadata, PackedGraph

if TYPE_CHECKING:  # its import takes seconds, and only a referee brings one
    from torch_geometric.nn import HGTConv

# Bytes per gathered operand of a piece of dot products. On a CPU two such pieces stay in the level 2 cache (a
# fourth of the size is 20% slower by calls, four times 50% by cache misses); an accelerator wants few launches.
_PIECE_BYTES_CPU = 2**20
_PIECE_BYTES_DEVICE = 2**28


class HGTLayer(nn.Module):
    """One layer of typed attention over all incoming edges of a node, whatever their relation.

    With ``in_dim == out_dim`` the update is mixed with the input by a learnt share per node type,
    ``sigmoid(skip) * update + (1 - sigmoid(skip)) * x``; otherwise there is no skip connection, as in PyG.
    A node without incoming edges gets the zero message, so its update is the bias of its output layer. That
    holds also for a node type that is no relation's target, which PyG drops from its result.

    Sums are made in the same order in every run, so that on one machine equal input gives equal output.

    Args:
        in_dim: Length of the input vectors, the same for all node types.
        out_dim: Length of the output vectors; a multiple of ``heads``.
        metadata: Node and edge types. The order is that of the parameters' first dimension.
        heads: Attention heads.
        dropout: Share of the update's numbers that are set to 0 in training, before the skip connection.

    Raises:
        ValueError: If ``out_dim`` is not a multiple of ``heads``, or dropout is outside [0, 1).
    """

    def __init__(self, in_dim: int, out_dim: int, metadata: GraphMetadata, *, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        if heads < 1 or out_dim % heads:
            raise ValueError(f"out_dim {out_dim} is not a multiple of heads {heads}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; expected a share in [0, 1)")
        self.in_dim, self.out_dim, self.heads, self.dropout = in_dim, out_dim, heads, dropout
        self.metadata = metadata
        types, relations, head_dim = len(metadata.node_types), len(metadata.edge_types), out_dim // heads
        # Key, query and value of a node type, stacked in this order.
        self.kqv_weight = nn.Parameter(torch.empty(types, 3 * out_dim, in_dim))
        self.kqv_bias = nn.Parameter(torch.empty(types, 3 * out_dim))
        # Applied from the right: row vector times matrix.
        self.key_relation = nn.Parameter(torch.empty(relations, heads, head_dim, head_dim))
        self.value_relation = nn.Parameter(torch.empty(relations, heads, head_dim, head_dim))
        self.prior = nn.Parameter(torch.empty(relations, heads))
        self.out_weight = nn.Parameter(torch.empty(types, out_dim, out_dim))
        self.out_bias = nn.Parameter(torch.empty(types, out_dim))
        self.skip = nn.Parameter(torch.empty(types))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new parameters as PyG does: U(+-1 / sqrt(inputs)), and 1 for priors and skips."""
        for bound, parameters in (
            (self.in_dim**-0.5, (self.kqv_weight, self.kqv_bias)),
            ((self.out_dim // self.heads) ** -0.5, (self.key_relation, self.value_relation)),
            (self.out_dim**-0.5, (self.out_weight, self.out_bias)),
        ):
            for parameter in parameters:
                nn.init.uniform_(parameter, -bound, bound)
        nn.init.ones_(self.prior)
        nn.init.ones_(self.skip)

    @overload
    def forward(self, x: Tensor, graph: PackedGraph, *, return_attention: Literal[False] = False) -> Tensor: ...

    @overload
    def forward(self, x: Tensor, graph: PackedGraph, *, return_attention: Literal[True]) -> tuple[Tensor, Tensor]: ...

    def forward(
        self, x: Tensor, graph: PackedGraph, *, return_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Update all nodes.

        Under autocast, matrix products and stored tables have the lower precision; scores, softmax and the
        sums over edges are made in float32. The device is not waited for, provided that ``graph.layout`` is
        there, as it is after ``graph.to``.

        Args:
            x: Node features in the graph's node order, shape [nodes, in_dim].
            graph: A graph of this layer's metadata, on the device of ``x``.
            return_attention: Also return the attention weights.

        Returns:
            Updated nodes, shape [nodes, out_dim]. With ``return_attention`` also the weights in the graph's
            edge order, shape [edges, heads], at least float32, in [0, 1], with sum 1 over the incoming edges
            of each node and head; for reading only, no gradient flows through them.

        Raises:
            GraphError: If the shape of ``x`` or the metadata of the graph does not fit.
        """
        if x.shape != (graph.num_nodes, self.in_dim):
            raise GraphError(f"features have shape {list(x.shape)}; expected [{graph.num_nodes}, {self.in_dim}]")
        if graph.metadata != self.metadata:
            raise GraphError("the graph was packed with other metadata than the layer's; pack it with layer.metadata")

        head_dim = self.out_dim // self.heads
        # Prior and scale belong to an edge's score; multiplied into the matrix they cost nothing per edge.
        key_relation = self.key_relation * (self.prior / math.sqrt(head_dim))[:, :, None, None]
        kqv = typed_linear(x, self.kqv_weight, self.kqv_bias, graph.node_ptr)
        message, attention = relational_attention(kqv, key_relation, self.value_relation, graph)

        has_skip = self.in_dim == self.out_dim
        # As above: the share of the update goes into the small matrix instead of the large result.
        share = self.skip.sigmoid() if has_skip else torch.ones_like(self.skip)
        update = typed_linear(
            F.gelu(message),
            self.out_weight * share[:, None, None],
            self.out_bias * share[:, None],
            graph.node_ptr,
        )
        update = F.dropout(update, self.dropout, self.training)
        out = typed_residual(update, x, 1 - share, graph.node_ptr) if has_skip else update
        if not return_attention:
            return out
        return out, attention.new_empty(graph.num_edges, self.heads).index_copy_(0, graph.layout.order, attention.t())

    def load_pyg_weights(self, conv: HGTConv) -> None:
        """Copy the weights of a PyG layer with the same types, in any order, and the same sizes.

        Args:
            conv: Holds every node and edge type of this layer's metadata, and ``in_dim`` for all node types.
        """
        dim, heads = self.out_dim // self.heads, self.heads
        node_types, edge_types = self.metadata.node_types, self.metadata.edge_types
        # PyG numbers the relation matrices head by head, and within a head by its own order of edge types.
        of_relation = [conv.edge_types_map[edge_type] for edge_type in edge_types]

        def relation_matrices(weight: Tensor) -> Tensor:
            return weight.view(heads, -1, dim, dim).transpose(0, 1)[of_relation]

        with torch.no_grad():
            for mine, lins in ((self.kqv_weight, conv.kqv_lin.lins), (self.out_weight, conv.out_lin.lins)):
                mine.copy_(torch.stack([lins[t].weight for t in node_types]))
            for mine, lins in ((self.kqv_bias, conv.kqv_lin.lins), (self.out_bias, conv.out_lin.lins)):
                mine.copy_(torch.stack([lins[t].bias for t in node_types]))
            self.key_relation.copy_(relation_matrices(conv.k_rel.weight))
            self.value_relation.copy_(relation_matrices(conv.v_rel.weight))
            for position, edge_type in enumerate(edge_types):
                self.prior[position] = conv.p_rel["__".join(edge_type)].squeeze(0)
            for position, node_type in enumerate(node_types):
                self.skip[position] = conv.skip[node_type].squeeze(0)

    def extra_repr(self) -> str:
        """Sizes, for ``print``."""
        return (
            f"{self.in_dim}, {self.out_dim}, heads={self.heads}, node_types={len(self.metadata.node_types)},"
            f" edge_types={len(self.metadata.edge_types)}, dropout={self.dropout}"
        )


def typed_linear(x: Tensor, weight: Tensor, bias: Tensor, ptr: tuple[int, ...]) -> Tensor:
    """A linear layer with its own weights for each of several groups of consecutive rows.

    Args:
        x: Shape [rows, in_dim].
        weight: Shape [groups, out_dim, in_dim].
        bias: Shape [groups, out_dim].
        ptr: Where each group begins, and the number of rows; [groups + 1].

    Returns:
        Shape [rows, out_dim], in autocast's type where autocast is on.
    """
    dtype = _compute_dtype(x)
    return cast(Tensor, _apply(_TypedLinear, x.to(dtype), weight.to(dtype), bias.to(dtype), ptr))


def typed_residual(update: Tensor, x: Tensor, share: Tensor, ptr: tuple[int, ...]) -> Tensor:
    """``update`` plus a share of ``x``, with its own share for each of several groups of consecutive rows.

    Args:
        update: Shape [rows, dim].
        x: Shape [rows, dim].
        share: Shape [groups].
        ptr: Where each group begins, and the number of rows; [groups + 1].

    Returns:
        Shape [rows, dim], in the longer of the two types.
    """
    return cast(Tensor, _apply(_TypedResidual, update, x, share, ptr))


# Its loops over pieces would be unrolled into a large program for no gain: there is nothing left to fuse.
@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch does not annotate it
def relational_attention(
    kqv: Tensor, key_relation: Tensor, value_relation: Tensor, graph: PackedGraph
) -> tuple[Tensor, Tensor]:
    """Attention of each node over its incoming edges, with keys and values transformed by relation.

    The score of an edge of relation r and head h is ``(key[source] @ key_relation[r, h]) . query[target]``; a
    scale is the caller's, in ``key_relation``. The softmax is over all incoming edges of the target.

    Args:
        kqv: Key, query and value of each node side by side, shape [nodes, 3 * heads * dim].
        key_relation: Shape [relations, heads, dim, dim].
        value_relation: Shape [relations, heads, dim, dim].
        graph: Edges and their order.

    Returns:
        The weighted sum of values, 0 where there are no incoming edges, shape [nodes, heads * dim]; and the
        attention weights by target (the order of ``graph.layout``), without gradient, shape [heads, edges].

    Source:
        Hu et al. 2020, arXiv:2003.01332, eq. 3 and 4.
    """
    result = _apply(_RelationalAttention, kqv, key_relation.to(kqv.dtype), value_relation.to(kqv.dtype), graph.layout)
    return cast(tuple[Tensor, Tensor], result)


class _TypedLinear(torch.autograd.Function):
    """Writes into slices of one result: cutting and joining by autograd would copy each operand twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, ptr: tuple[int, ...]) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.ptr = ptr
        out = x.new_empty(x.shape[0], weight.shape[1])
        for group, rows in _groups(ptr):
            torch.addmm(bias[group], x[rows], weight[group].t(), out=out[rows])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        x, weight = ctx.saved_tensors
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight)
        grad_bias = weight.new_zeros(weight.shape[:2])
        for group, rows in _groups(ctx.ptr):
            if grad_x is not None:
                torch.mm(grad_out[rows], weight[group], out=grad_x[rows])
            torch.mm(grad_out[rows].t(), x[rows], out=grad_weight[group])
            torch.sum(grad_out[rows], 0, out=grad_bias[group])
        return grad_x, grad_weight, grad_bias, None


class _TypedResidual(torch.autograd.Function):
    """One pass over the rows each way; autograd's gradient of the share would need a product per number."""

    @staticmethod
    def forward(ctx: Any, update: Tensor, x: Tensor, share: Tensor, ptr: tuple[int, ...]) -> Tensor:
        ctx.save_for_backward(x, share)
        ctx.ptr, ctx.update_dtype = ptr, update.dtype
        out = torch.empty_like(x, dtype=torch.promote_types(update.dtype, x.dtype))
        for group, rows in _groups(ptr):
            torch.addcmul(update[rows], x[rows], share[group], out=out[rows])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, Tensor | None, Tensor, None]:
        x, share = ctx.saved_tensors
        grad_out = grad_out.contiguous()
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[1] else None
        grad_share = torch.zeros_like(share)
        for group, rows in _groups(ctx.ptr):
            if grad_x is not None:
                torch.mul(grad_out[rows], share[group], out=grad_x[rows])
            grad_share[group] = torch.dot(grad_out[rows].flatten(), x[rows].to(grad_out.dtype).flatten())
        return grad_out.to(ctx.update_dtype), grad_x, grad_share, None


class _RelationalAttention(torch.autograd.Function):
    """Saves tables of rows and a number per edge and head; autograd would save vectors per edge.

    Tables are head by head, [heads * nodes, dim] or [heads * rows, dim], so that one call serves all heads.
    """

    @staticmethod
    def forward(
        ctx: Any, kqv: Tensor, key_relation: Tensor, value_relation: Tensor, layout: EdgeLayout
    ) -> tuple[Tensor, Tensor]:
        heads = key_relation.shape[1]
        edges = layout.edges_of_heads(heads)
        key, query, value = _by_head(kqv, 3, heads)
        key_rows = _transformed(key, key_relation, layout)
        attention = _dot_products(_flat(query), _flat(key_rows), edges)
        _segment_softmax(attention, edges)
        value_rows = _transformed(value, value_relation, layout)
        out = _weighted_sums(attention, _flat(value_rows), edges.row, edges.target_ptr)
        attention = attention.view(heads, len(layout.order))
        ctx.save_for_backward(kqv, key_relation, value_relation, key_rows, value_rows, attention)
        ctx.layout = layout
        ctx.mark_non_differentiable(attention)
        return out.view(query.shape).transpose(0, 1).flatten(1), attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        kqv, key_relation, value_relation, key_rows, value_rows, attention = ctx.saved_tensors
        layout: EdgeLayout = ctx.layout
        heads = key_relation.shape[1]
        edges = layout.edges_of_heads(heads)
        weights = attention.flatten()
        key, query, value = _by_head(kqv, 3, heads)
        upstream = _flat(_by_head(grad_out.contiguous(), 1, heads)[0])
        # Blocks that are slices write their nodes' gradients, the others add to them.
        grad_kqv = torch.empty_like(kqv) if layout.is_covered else torch.zeros_like(kqv)
        grad_key, grad_query, grad_value = _by_head(grad_kqv, 3, heads)

        grad_rows = _weighted_sums(weights[edges.by_row], upstream, edges.row_target, edges.row_ptr)
        grad_value_relation = _transformed_backward(grad_rows, value, value_relation, layout, grad_value)
        del grad_rows  # as large as all messages
        # Softmax: d score = weight * (d weight - sum over the node's edges of weight * d weight).
        grad_scores = _dot_products(upstream, _flat(value_rows), edges).mul_(weights)
        totals = _segment_sum(grad_scores, edges.target_ptr)
        grad_scores.addcmul_(weights, totals.index_select(0, edges.target), value=-1)
        grad_query.copy_(_weighted_sums(grad_scores, _flat(key_rows), edges.row, edges.target_ptr).view(query.shape))
        grad_rows = _weighted_sums(grad_scores[edges.by_row], _flat(query), edges.row_target, edges.row_ptr)
        grad_key_relation = _transformed_backward(grad_rows, key, key_relation, layout, grad_key)
        return grad_kqv, grad_key_relation, grad_value_relation, None


def _transformed(table: Tensor, weight: Tensor, layout: EdgeLayout) -> Tensor:
    """Each source row: its node through the matrices of its relation.

    Args:
        table: Shape [heads, nodes, dim].
        weight: Shape [relations, heads, dim, dim].
        layout: Says which nodes are rows for which relations.

    Returns:
        Shape [heads, rows, dim].
    """
    heads, _, dim = table.shape
    out = table.new_empty(heads, layout.num_rows, dim)
    for block in layout.blocks:
        torch.bmm(_block_nodes(table, block), _block_weight(weight, block), out=_block_rows(out, block))
    return out


def _transformed_backward(
    grad_rows: Tensor, table: Tensor, weight: Tensor, layout: EdgeLayout, grad_table: Tensor
) -> Tensor:
    """Gradients of ``_transformed``: writes that of the table to ``grad_table``, returns that of the weight.

    Args:
        grad_rows: Gradient of the result, shape [heads * rows, dim].
        table: Shape [heads, nodes, dim].
        weight: Shape [relations, heads, dim, dim].
        layout: As in ``_transformed``.
        grad_table: Shape [heads, nodes, dim]; zeros for nodes that are in no block that is a slice.
    """
    grad_rows = grad_rows.view(len(table), layout.num_rows, table.shape[2])
    grad_weight = torch.zeros_like(weight)
    for block in layout.blocks:
        grad = _block_rows(grad_rows, block)
        of_relations = torch.bmm(_block_nodes(table, block).transpose(1, 2), grad)
        for relation, of_relation in zip(block.relations, of_relations.chunk(len(block.relations), dim=2), strict=True):
            grad_weight[relation] = of_relation
        weight_back = _block_weight(weight, block).transpose(1, 2)
        if isinstance(block.nodes, slice):
            torch.bmm(grad, weight_back, out=grad_table[:, block.nodes])
        else:
            # A node is in a block once, so that the sum does not depend on an order.
            grad_table.index_add_(1, block.nodes, torch.bmm(grad, weight_back))
    return grad_weight


def _block_nodes(table: Tensor, block: RowBlock) -> Tensor:
    """The nodes of a block: [heads, nodes, dim] -> [heads, nodes of the block, dim]."""
    if isinstance(block.nodes, slice):
        return table[:, block.nodes]
    return table.index_select(1, block.nodes)


def _block_rows(rows: Tensor, block: RowBlock) -> Tensor:
    """A view of a block's rows, those of a node side by side: [heads, nodes of the block, relations * dim]."""
    return rows[:, block.rows].view(len(rows), -1, len(block.relations) * rows.shape[2])


def _block_weight(weight: Tensor, block: RowBlock) -> Tensor:
    """The matrices of a block's relations side by side, shape [heads, dim, relations * dim]."""
    return torch.cat([weight[relation] for relation in block.relations], dim=2)


def _dot_products(targets: Tensor, rows: Tensor, edges: SortedEdges) -> Tensor:
    """Dot product of each edge's target and source row.

    They are made in the order of source rows, which are then read once from end to end, beside targets of few types.

    Args:
        targets: Shape [targets, dim].
        rows: Shape [rows, dim], in the same type.
        edges: Which target and which row.

    Returns:
        By target, shape [edges], at least float32, as are the products and sums.
    """
    dtype = torch.promote_types(targets.dtype, torch.float32)
    by_row = targets.new_empty(edges.row.shape, dtype=dtype)
    size = _PIECE_BYTES_CPU if targets.device.type == "cpu" else _PIECE_BYTES_DEVICE
    edges_each = max(1, size // (targets.shape[1] * targets.element_size()))
    pieces = (torch.split(tensor, edges_each) for tensor in (by_row, edges.row_target, edges.row_sorted))
    for into, piece_target, piece_row in zip(*pieces, strict=True):
        product = targets.index_select(0, piece_target).to(dtype).mul_(rows.index_select(0, piece_row))
        torch.sum(product, dim=1, out=into)
    return by_row.index_select(0, edges.from_row)


def _weighted_sums(weights: Tensor, table: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    """For each bag the sum of weighted rows of a table, without a copy of the rows.

    Args:
        weights: Of each item, shape [items].
        table: Shape [rows, dim].
        index: Row of each item, shape [items].
        ptr: Where each bag's items begin, shape [bags + 1].

    Returns:
        Shape [bags, dim], in the table's type; sums are made in float32 where that is a shorter one.
    """
    weights = weights.to(table.dtype)
    return F.embedding_bag(index, table, ptr, mode="sum", per_sample_weights=weights, include_last_offset=True)


def _flat(by_head: Tensor) -> Tensor:
    """Head by head in one table: [heads, rows, dim] -> [heads * rows, dim]; a copy where it must be."""
    return by_head.flatten(0, 1)


def _by_head(table: Tensor, parts: int, heads: int) -> Tensor:
    """A view of parts side by side, cut by head: [nodes, parts * heads * dim] -> [parts, heads, nodes, dim]."""
    return table.view(table.shape[0], parts, heads, table.shape[1] // (parts * heads)).permute(1, 2, 0, 3)


def _segment_softmax(scores: Tensor, edges: SortedEdges) -> None:
    """Softmax over the incoming edges of each target, in place; scores by target, shape [edges]."""
    largest = torch.segment_reduce(scores, "max", offsets=edges.target_ptr, unsafe=True)
    scores.sub_(largest.index_select(0, edges.target)).exp_()
    scores.div_(_segment_sum(scores, edges.target_ptr).index_select(0, edges.target))


def _segment_sum(values: Tensor, ptr: Tensor) -> Tensor:
    """Sums of consecutive items: [items] -> [segments]."""
    return torch.segment_reduce(values, "sum", offsets=ptr, unsafe=True)


def _apply(function: type[torch.autograd.Function], *args: object) -> object:
    """Call an autograd function."""
    return function.apply(*args)  # type: ignore[no-untyped-call]  # torch does not annotate it


def _groups(ptr: tuple[int, ...]) -> Iterator[tuple[int, slice]]:
    """The groups that have rows."""
    for group, (begin, end) in enumerate(pairwise(ptr)):
        if begin < end:
            yield group, slice(begin, end)


def _compute_dtype(x: Tensor) -> torch.dtype:
    """The type autocast wants for matrix products of ``x``, else its own; float64 is never lowered."""
    device = x.device.type
    if x.dtype != torch.float64 and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype

"""Heterogeneous Graph Transformer layer on plain PyTorch.

Equal to PyG's ``HGTConv`` with the same weights, and several times faster on a CPU (benchmarks/hgt.py measures
by how much). Two things make the difference. Typed linear layers and relation matrices work on slices and write
into slices of one result. And no tensor of shape [edges, dim] is made: dot products along edges run in pieces
that fit the processor's cache, and weighted sums over edges are bags of embeddings, which read a row and add it
to its sum in one go.

Source:
    Hu et al. 2020, arXiv:2003.01332, eq. 3-5; details as in torch_geometric.nn.HGTConv 2.8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal, cast, overload

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch_geometric.nn import HGTConv

from gnn.errors import GraphError
from gnn.packed import EdgeLayout, GraphMetadata, PackedGraph

# Numbers per gathered operand of a piece of dot products. On a CPU two such pieces stay in the level 2 cache (a
# fourth of the size is 20% slower by calls, four times 50% by cache misses); an accelerator wants few launches.
_PIECE_NUMEL_CPU = 2**18
_PIECE_NUMEL_DEVICE = 2**26


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

    def __init__(
        self, in_dim: int, out_dim: int, metadata: GraphMetadata, *, heads: int, dropout: float = 0.0
    ) -> None:
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
    def forward(
        self, x: Tensor, graph: PackedGraph, *, return_attention: Literal[False] = False
    ) -> Tensor: ...

    @overload
    def forward(
        self, x: Tensor, graph: PackedGraph, *, return_attention: Literal[True]
    ) -> tuple[Tensor, Tensor]: ...

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
            raise GraphError(
                f"features have shape {list(x.shape)}; expected [{graph.num_nodes}, {self.in_dim}]"
            )
        if graph.metadata != self.metadata:
            raise GraphError(
                "the graph was packed with other metadata than the layer's; pack it with layer.metadata"
            )

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
        out = update + x * _per_node(1 - share, graph.node_ptr) if has_skip else update
        if not return_attention:
            return out
        return out, torch.empty_like(attention).index_copy_(0, graph.layout.order, attention)

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
    result = _TypedLinear.apply(x.to(dtype), weight.to(dtype), bias.to(dtype), ptr)  # type: ignore[no-untyped-call]
    return cast(Tensor, result)


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
        attention weights by target (the order of ``graph.layout``), without gradient, shape [edges, heads].

    Source:
        Hu et al. 2020, arXiv:2003.01332, eq. 3 and 4.
    """
    result = _RelationalAttention.apply(  # type: ignore[no-untyped-call]
        kqv, key_relation.to(kqv.dtype), value_relation.to(kqv.dtype), graph.layout
    )
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


class _RelationalAttention(torch.autograd.Function):
    """Saves tables of rows and a number per edge and head; autograd would save vectors per edge."""

    @staticmethod
    def forward(
        ctx: Any, kqv: Tensor, key_relation: Tensor, value_relation: Tensor, layout: EdgeLayout
    ) -> tuple[Tensor, Tensor]:
        heads = key_relation.shape[1]
        key, query, value = kqv.chunk(3, dim=1)
        key_rows = _transformed(key, key_relation, layout)
        value_rows = _transformed(value, value_relation, layout)
        scores = _dot_products(query, layout.target, key_rows, layout.row, heads)
        attention = _segment_softmax(scores, layout)
        sums = _weighted_sums(attention, value_rows, layout.row, layout.target_ptr)
        ctx.save_for_backward(kqv, key_relation, value_relation, key_rows, value_rows, attention)
        ctx.layout = layout
        ctx.mark_non_differentiable(attention)
        return torch.stack(sums, dim=1).flatten(1), attention

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        kqv, key_relation, value_relation, key_rows, value_rows, attention = ctx.saved_tensors
        layout: EdgeLayout = ctx.layout
        heads = key_relation.shape[1]
        grad_out = grad_out.contiguous()
        key, query, value = kqv.chunk(3, dim=1)
        grad_kqv = torch.zeros_like(kqv)
        grad_key, grad_query, grad_value = grad_kqv.chunk(3, dim=1)

        grad_attention = _dot_products(grad_out, layout.target, value_rows, layout.row, heads)
        grad_value_relation = _transformed_backward(
            _weighted_sums(attention[layout.by_row], grad_out, layout.row_target, layout.row_ptr),
            value,
            value_relation,
            layout,
            grad_table=grad_value,
        )
        # Softmax: d score = attention * (d attention - sum over the node's edges of attention * d attention).
        grad_scores = grad_attention.mul_(attention)
        totals = _segment_sum(grad_scores, layout.target_ptr)
        grad_scores = grad_scores.addcmul_(attention, totals.index_select(0, layout.target), value=-1)
        sums = _weighted_sums(grad_scores, key_rows, layout.row, layout.target_ptr)
        torch.stack(sums, dim=1, out=_by_head(grad_query, heads))
        grad_key_relation = _transformed_backward(
            _weighted_sums(grad_scores[layout.by_row], query, layout.row_target, layout.row_ptr),
            key,
            key_relation,
            layout,
            grad_table=grad_key,
        )
        return grad_kqv, grad_key_relation, grad_value_relation, None


def _transformed(table: Tensor, weight: Tensor, layout: EdgeLayout) -> Tensor:
    """Each source row's node, through the matrices of its relation.

    Args:
        table: Shape [nodes, heads * dim].
        weight: Shape [relations, heads, dim, dim].
        layout: Says which nodes each relation needs.

    Returns:
        Shape [rows, heads * dim].
    """
    heads = weight.shape[1]
    by_head = _by_head(table, heads)
    out = table.new_empty(layout.num_rows, *by_head.shape[1:])
    for block in layout.blocks:
        left = block.take(by_head).transpose(0, 1)
        torch.bmm(left, weight[block.relation], out=out[block.rows].transpose(0, 1))
    return out.flatten(1)


def _transformed_backward(
    grad_rows: list[Tensor], table: Tensor, weight: Tensor, layout: EdgeLayout, *, grad_table: Tensor
) -> Tensor:
    """Gradients of ``_transformed``: adds that of the table to ``grad_table``, returns that of the weight.

    Args:
        grad_rows: Gradient of the result, by head, each of shape [rows, dim].
        table: Shape [nodes, heads * dim].
        weight: Shape [relations, heads, dim, dim].
        layout: As in ``_transformed``.
        grad_table: Shape [nodes, heads * dim]; changed in place.
    """
    heads = weight.shape[1]
    by_head, grad_by_head = _by_head(table, heads), _by_head(grad_table, heads)
    grads = torch.stack(grad_rows)  # [heads, rows, dim]
    grad_weight = torch.zeros_like(weight)
    for block in layout.blocks:
        grad = grads[:, block.rows]
        torch.bmm(block.take(by_head).permute(1, 2, 0), grad, out=grad_weight[block.relation])
        block.add_to(grad_by_head, grad, weight[block.relation].transpose(1, 2))
    return grad_weight


def _dot_products(left: Tensor, left_index: Tensor, right: Tensor, right_index: Tensor, heads: int) -> Tensor:
    """Dot products of pairs of rows, head by head.

    Args:
        left: Shape [left rows, heads * dim].
        left_index: Shape [pairs].
        right: Shape [right rows, heads * dim].
        right_index: Shape [pairs].
        heads: Into how many pieces a row is cut.

    Returns:
        Shape [pairs, heads], at least float32, in which products and sums are made.
    """
    dtype = torch.promote_types(left.dtype, torch.float32)
    out = left.new_empty(left_index.shape[0], heads, dtype=dtype)
    numel = _PIECE_NUMEL_CPU if left.device.type == "cpu" else _PIECE_NUMEL_DEVICE
    pieces = max(1, numel // left.shape[1])
    for into, left_rows, right_rows in zip(
        torch.split(out, pieces),
        torch.split(left_index, pieces),
        torch.split(right_index, pieces),
        strict=True,
    ):
        product = left.index_select(0, left_rows).to(dtype).mul_(right.index_select(0, right_rows))
        torch.sum(_by_head(product, heads), dim=2, out=into)
    return out


def _weighted_sums(weights: Tensor, table: Tensor, index: Tensor, ptr: Tensor) -> list[Tensor]:
    """For each bag the sum of weighted rows of a table, head by head, without a copy of the rows.

    Args:
        weights: Of each item in each head, shape [items, heads].
        table: Shape [rows, heads * dim].
        index: Row of each item, shape [items].
        ptr: Where each bag's items begin, shape [bags + 1].

    Returns:
        A tensor per head, of shape [bags, dim] and the table's type; products and sums are made in float32
        where the type is a shorter one.
    """
    by_head = weights.t().to(table.dtype).contiguous()
    return [
        F.embedding_bag(index, columns, ptr, mode="sum", per_sample_weights=weight, include_last_offset=True)
        for weight, columns in zip(by_head, table.chunk(len(by_head), dim=1), strict=True)
    ]


def _by_head(table: Tensor, heads: int) -> Tensor:
    """A view of a table cut by head: [rows, heads * dim] -> [rows, heads, dim]."""
    return table.view(table.shape[0], heads, table.shape[1] // heads)


def _segment_softmax(scores: Tensor, layout: EdgeLayout) -> Tensor:
    """Softmax over the incoming edges of each node; overwrites the scores by target, [edges, heads]."""
    if not len(scores):
        return scores
    largest = torch.segment_reduce(scores, "max", offsets=layout.target_ptr, axis=0, unsafe=True)
    weights = scores.sub_(largest.index_select(0, layout.target)).exp_()
    return weights.div_(_segment_sum(weights, layout.target_ptr).index_select(0, layout.target))


def _segment_sum(values: Tensor, ptr: Tensor) -> Tensor:
    """Sums of consecutive rows: [items, heads] -> [segments, heads]."""
    return torch.segment_reduce(values, "sum", offsets=ptr, axis=0, unsafe=True)


def _per_node(per_type: Tensor, ptr: tuple[int, ...]) -> Tensor:
    """Repeat a number per node type for each of its nodes: [types] -> [nodes, 1]."""
    sizes = [end - begin for begin, end in pairwise(ptr)]
    return torch.cat([number.expand(size) for number, size in zip(per_type, sizes, strict=True)])[:, None]


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

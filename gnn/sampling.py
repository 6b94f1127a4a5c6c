"""Which edges to predict, which to carry messages, and what to draw against them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from locigraph.gnn.errors import GraphError
from locigraph.gnn.packed import EdgeType, PackedGraph


@dataclass(frozen=True, eq=False)
class Supervision:
    """Edges of one type to be predicted; node indices are the packed graph's.

    Attributes:
        edge_type: Their type.
        source: [edges].
        target: [edges].
        negative: A drawn non-edge's target for each source, [edges].
    """

    edge_type: EdgeType
    source: Tensor
    target: Tensor
    negative: Tensor


def split_supervision(
    graph: PackedGraph,
    edge_types: Sequence[EdgeType],
    *,
    share: float,
    generator: torch.Generator,
    text: Tensor | None = None,
    hard_candidates: int = 8,
) -> tuple[PackedGraph, list[Supervision]]:
    """Choose supervision edges and remove every trace of them from the message edges.

    For each chosen edge all edges between its two nodes go, in both directions and of every relation: PyG's
    ``RandomLinkSplit`` leaves undeclared reverse and parallel relations visible, and the answer with them.

    Args:
        graph: All edges.
        edge_types: Which to predict.
        share: Share of each type's edges, in (0, 1).
        generator: On the CPU; decides everything.
        text: Embeddings [nodes, dim]; with them the likest of ``hard_candidates`` drawn targets is the negative,
            without them the first.
        hard_candidates: Targets drawn per edge.

    Returns:
        The message graph and the supervision by type; types with fewer than two edges are left out.

    Raises:
        GraphError: If ``share`` is not in (0, 1).
    """
    if not 0 < share < 1:
        raise GraphError(f"share of supervision edges is {share}; expected a number between 0 and 1")
    chosen: list[Supervision] = []
    pairs = _pair_keys(graph.source, graph.target, graph.num_nodes)
    hidden: list[Tensor] = []
    for edge_type in edge_types:
        edges = graph.edges_of(edge_type)
        count = edges.stop - edges.start
        if count < 2:
            continue
        take = max(1, int(share * count))
        picked = torch.randperm(count, generator=generator)[:take].to(graph.device) + edges.start
        source, target = graph.source[picked], graph.target[picked]
        hidden.append(pairs[picked])
        negative = _negatives(graph, edge_type, source, target, generator, text, hard_candidates)
        chosen.append(Supervision(edge_type, source, target, negative))
    if not hidden:
        return graph, []
    keep = ~torch.isin(pairs, torch.cat(hidden))
    return graph.without_edges(keep=keep), chosen


def _pair_keys(source: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """One number for a pair of nodes, whichever way round."""
    return torch.minimum(source, target) * num_nodes + torch.maximum(source, target)


def _negatives(
    graph: PackedGraph,
    edge_type: EdgeType,
    source: Tensor,
    target: Tensor,
    generator: torch.Generator,
    text: Tensor | None,
    candidates: int,
) -> Tensor:
    nodes = graph.slice_of(edge_type[2])
    drawn = torch.randint(nodes.start, nodes.stop, (len(source), candidates), generator=generator).to(graph.device)
    edges = graph.edges_of(edge_type)
    known = graph.source[edges] * graph.num_nodes + graph.target[edges]
    is_edge = torch.isin(source[:, None] * graph.num_nodes + drawn, known)
    if text is None:
        preference = -torch.arange(candidates, device=graph.device, dtype=torch.float32).expand(len(source), -1)
    else:
        preference = torch.einsum("ed,ecd->ec", text[target], text[drawn])
    # Where every candidate is an edge the least bad is a false negative; rare, and the loss bears it.
    best = preference.masked_fill(is_edge, float("-inf")).argmax(1)
    return drawn.gather(1, best[:, None]).squeeze(1)


def hide_sources_of_half(
    graph: PackedGraph, edge_types: Sequence[EdgeType], *, generator: torch.Generator
) -> tuple[PackedGraph, Tensor]:
    """Choose half of the targets of some relations and hide all their edges of those relations, both ways.

    For facts as queries about turns: were only the queried facts' edges hidden, a turn that still has facts could not
    be the answer, and the model would learn just that. Within the half, all turns look alike.

    Args:
        graph: All edges.
        edge_types: Relations whose edges would give the answer away.
        generator: On the CPU; decides everything.

    Returns:
        The message graph, and the chosen nodes as bool [nodes].
    """
    targets = torch.unique(torch.cat([graph.target[graph.edges_of(edge_type)] for edge_type in edge_types]))
    chosen = random_half(targets, graph.num_nodes, generator=generator)
    keep = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)
    for source, relation, target in edge_types:
        there = graph.edges_of((source, relation, target))
        back = graph.edges_of((target, f"rev_{relation}", source))
        keep[there] = ~chosen[graph.target[there]]
        keep[back] = ~chosen[graph.source[back]]
    return graph.without_edges(keep=keep), chosen


def random_half(nodes: Tensor, num_nodes: int, *, generator: torch.Generator) -> Tensor:
    """A random half of some nodes, rounded down.

    Args:
        nodes: Packed indices, int64 [nodes].
        num_nodes: Of the whole graph.
        generator: On the CPU; decides everything.

    Returns:
        True for the chosen, bool [num_nodes].
    """
    half = torch.randperm(len(nodes), generator=generator)[: len(nodes) // 2].to(nodes.device)
    chosen = torch.zeros(num_nodes, dtype=torch.bool, device=nodes.device)
    chosen[nodes[half]] = True
    return chosen


def likely_false_negatives(text: Tensor, positive: Tensor, *, cosine: float) -> Tensor:
    """Candidates that say nearly what a right one says: perhaps right too, though nobody has marked them.

    Args:
        text: Embeddings of the candidates, rows of length 1, [candidates, dim].
        positive: True where a candidate is right, bool [questions, candidates].
        cosine: From which likeness to the likest right candidate.

    Returns:
        True for them, never for a right one, bool [questions, candidates].
    """
    right = positive.any(0)
    is_like = (text[right] @ text.T >= cosine).to(text.dtype)  # [right, candidates]
    return (positive[:, right].to(text.dtype) @ is_like > 0) & ~positive


def drop_edges(graph: PackedGraph, *, share: float, generator: torch.Generator) -> PackedGraph:
    """A view of the graph without a random share of its edges."""
    keep = torch.rand(graph.num_edges, generator=generator) >= share
    return graph.without_edges(keep=keep.to(graph.device))

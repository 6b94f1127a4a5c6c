"""Why a turn was found: the score of v2, taken apart exactly, and checked by deleting what is named.

A stored vector is linear in its own and its neighbours' inputs once gates and states are computed, so the inner
product with a question is a sum of one term per part: own meaning, own words, each neighbour's meaning, words and date,
the HGT state's share, speaker, date, and the turn's bias.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
import torch
from torch import Tensor

from locigraph.gnn.encoder import without_relations
from locigraph.gnn.hetero import METADATA, GraphInputs, inputs_of, reverse_of, to_hetero
from locigraph.gnn.query import query_batch
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import NodeId, TurnId
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.protocols import Embed


@dataclass(frozen=True, slots=True)
class Influence:
    """What one neighbour adds to a turn's score.

    Attributes:
        node_id: The neighbour.
        relation: By which it is reached, seen from the neighbour, such as ``DERIVED_FROM`` or ``NEXT``.
        description: Its text.
        meaning, words, date: Its shares by text block, lexical block and context block.
        effect: By how much the score would fall without it, gates and states unchanged: a relation's neighbours are
            averaged, so without one that says less to the question than the others the score would rise.
        score_without: The turn's score when the edge is deleted from the graph, in both directions, and everything is
            computed anew; None when not asked for.
    """

    node_id: NodeId
    relation: str
    description: str
    meaning: float
    words: float
    date: float
    effect: float
    score_without: float | None = None

    @property
    def total(self) -> float:
        """Sum of its shares."""
        return self.meaning + self.words + self.date


@dataclass(frozen=True, slots=True)
class Explanation:
    """A turn's score and its parts; ``score`` is their sum.

    Attributes:
        turn_id: The turn.
        description: Its text.
        score: Inner product of question and stored vector.
        own_meaning, own_words, own_context: The turn's own shares (context: its speaker and date).
        states: Share of the HGT states through residual and free block.
        bias: What the turn's traits give it whatever is asked.
        influences: Of neighbours, greatest effect first.
    """

    turn_id: TurnId
    description: str
    score: float
    own_meaning: float
    own_words: float
    own_context: float
    states: float
    bias: float
    influences: tuple[Influence, ...]


def explain(
    checkpoint: Checkpoint,
    snapshot: Snapshot,
    question: str,
    *,
    embed: Embed,
    top_k: int = 5,
    asked_at: datetime | None = None,
    check_deletions: int = 0,
) -> list[Explanation]:
    """The best turns for a question, each with the parts of its score.

    Args:
        checkpoint: Of the graph embeddings.
        snapshot: The graph, with embeddings.
        question: What is asked.
        embed: The checkpoint's text encoder.
        top_k: Turns to explain.
        asked_at: Anchors relative dates in the question.
        check_deletions: For so many of each turn's strongest neighbours, also compute the score without their edge.
    """
    nodes, queries = checkpoint.network.nodes.eval(), checkpoint.network.queries.eval()
    inputs = inputs_of(to_hetero(snapshot, checkpoint.sketch, checkpoint.context), METADATA)
    # The encoder leaves these out itself; here its edges and the graph's must have the same numbers.
    inputs = inputs.with_graph(without_relations(inputs.graph, nodes.config.excluded))
    batch = query_batch([question], embed([question]), checkpoint.sketch, checkpoint.context, asked_at=[asked_at])
    with torch.inference_mode():
        query = queries(batch)[0]
        vectors = nodes(inputs)
        episodes = inputs.graph.slice_of("episode")
        scores = vectors.joined()[episodes] @ query
        widths = [t.shape[1] for t in (vectors.text, vectors.lexical, vectors.free, vectors.context, vectors.bias)]
        q_text, q_lexical, q_free, q_context, q_bias = query.split(widths)
        # What each node's input says to this question, before weights.
        meaning, words, context = inputs.text @ q_text, inputs.lexical @ q_lexical, inputs.context @ q_context
        mixing = vectors.mixing
        explanations = []
        for local in scores.argsort(descending=True, stable=True)[:top_k].tolist():
            node = episodes.start + local
            edges = slice(int(mixing.bounds[local]), int(mixing.bounds[local + 1]))
            source = inputs.graph.source[mixing.edge[edges]]
            weight = mixing.weight[edges]
            shares = torch.stack([meaning[source], words[source], context[source]], dim=1) * weight
            own_meaning = float(mixing.own[node, 0] * meaning[node])
            effects = _effects(inputs, mixing.edge[edges], shares.sum(1))
            order = effects.argsort(descending=True, stable=True).tolist()
            influences = [
                _influence(inputs, snapshot, int(mixing.edge[edges][i]), shares[i].tolist(), float(effects[i]))
                for i in order
            ]
            for position, i in enumerate(order[:check_deletions]):
                without = _without_edge(inputs, int(mixing.edge[edges][i]))
                score = float(nodes(without).joined()[node] @ query)
                influences[position] = replace(influences[position], score_without=score)
            row = int(inputs.rows[node])
            # The text block holds own, neighbours and the states' residual; the first two are known.
            residual = float(vectors.text[node] @ q_text) - own_meaning - float(shares[:, 0].sum())
            explanations.append(
                Explanation(
                    turn_id=snapshot.turns_of[row][0],
                    description=snapshot.descriptions[row],
                    score=float(scores[local]),
                    own_meaning=own_meaning,
                    own_words=float(mixing.own[node, 1] * words[node]),
                    own_context=float(context[node]),
                    states=residual + float(vectors.free[node] @ q_free),
                    bias=float(vectors.bias[node] @ q_bias),
                    influences=tuple(influences),
                )
            )
    return explanations


def _effects(inputs: GraphInputs, edges: Tensor, share: Tensor) -> Tensor:
    """What each of a turn's edges adds to the mean over its relation, [edges]."""
    bounds = torch.tensor(inputs.graph.edge_ptr[1:])
    relation = torch.bucketize(edges.cpu(), bounds, right=True).to(share.device)
    relations = len(bounds)
    count = torch.bincount(relation, minlength=relations)[relation]
    total = torch.zeros(relations, device=share.device).index_add_(0, relation, share)[relation]
    return torch.where(count > 1, (count * share - total) / (count - 1).clamp(min=1), share)


def _influence(inputs: GraphInputs, snapshot: Snapshot, edge: int, shares: list[float], effect: float) -> Influence:
    row = int(inputs.rows[inputs.graph.source[edge]])
    meaning, words, date = shares
    relation = _relation_of(inputs, edge)[1]
    return Influence(snapshot.ids[row], relation, snapshot.descriptions[row], meaning, words, date, effect)


def _relation_of(inputs: GraphInputs, edge: int) -> tuple[str, str, str]:
    position = int(np.searchsorted(np.asarray(inputs.graph.edge_ptr), edge, side="right")) - 1
    return inputs.graph.metadata.edge_types[position]


def _without_edge(inputs: GraphInputs, edge: int) -> GraphInputs:
    graph = inputs.graph
    source, relation, target = _relation_of(inputs, edge)
    back = (
        (target, relation.removeprefix("rev_"), source)
        if relation.startswith("rev_")
        else reverse_of((source, relation, target))
    )
    ends = graph.source[edge], graph.target[edge]
    keep = torch.ones(graph.num_edges, dtype=torch.bool)
    keep[edge] = False
    there = graph.edges_of(back)
    keep[there] &= ~((graph.source[there] == ends[1]) & (graph.target[there] == ends[0]))
    return inputs.with_graph(graph.without_edges(keep=keep))

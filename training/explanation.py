"""Explains why a turn was found: decomposes its score in v2 exactly, and checks each neighbour by deleting its edge.

Once the edge weights are computed, a stored vector is linear in the features of the turn and its neighbours. Its inner
product with a question is therefore a sum of terms: the turn's own meaning, words, and speaker and date; each
neighbour's meaning, words and date; and the turn's bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np
import torch

from locigraph.gnn.features import GraphInputs
from locigraph.gnn.sketch import LexicalStatistics
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.errors import LocigraphError, UnknownTurnError, shortened
from locigraph.kg.schema import EPISODE
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import TurnId
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.explained import Explanation, Influence
from locigraph.training.inference import CheckpointQueryEncoder, reader_of


def explain(
    checkpoint: Checkpoint,
    snapshot: Snapshot,
    question: str,
    *,
    encoder: TextEncoder,
    top_k: int = 5,
    asked_at: datetime | None = None,
    turn_ids: Sequence[TurnId] | None = None,
    statistics: LexicalStatistics | None = None,
) -> list[Explanation]:
    """Decompose the scores of the best turns for a question, or of given turns; the best comes first.

    Args:
        checkpoint: The checkpoint that made the graph embeddings.
        snapshot: The graph, with embeddings of the checkpoint's text encoder.
        question: The question's text.
        encoder: That text encoder.
        top_k: Number of turns to explain.
        asked_at: When the question is asked; relative dates in it refer to this time.
        turn_ids: Turns to explain instead of the best.
        statistics: Counts of words with which the graph embeddings were made; None to count those of the snapshot.

    Raises:
        UnknownTurnError: If one of ``turn_ids`` is not in the graph.
        LocigraphError: If the vectors are no weighted sums.
    """
    if not checkpoint.network.nodes.is_weighted_sum:
        raise LocigraphError(
            f"the checkpoint's graph encoder is {checkpoint.network.nodes.name!r}, whose vectors are no weighted sums "
            "of a turn and its neighbours, so no score can be decomposed; use a checkpoint of another one"
        )
    turn_of = [snapshot.turns_of[row][0] for row in snapshot.active_rows((EPISODE,)).tolist()]
    for turn_id in turn_ids or ():
        if turn_id not in turn_of:
            raise UnknownTurnError(
                f"space {snapshot.space!r} has no turn {shortened(turn_id)} in the graph of that time, so it cannot be "
                "explained"
            )
    if not turn_of:
        return []
    nodes = checkpoint.network.nodes.cpu().eval()  # live embeddings may have moved it to a GPU
    reader = reader_of(checkpoint, snapshot, statistics=statistics)
    inputs = reader.inputs()
    query = torch.from_numpy(CheckpointQueryEncoder(checkpoint, encoder).encode_query(question, asked_at=asked_at))
    with torch.inference_mode():
        vectors = nodes(inputs)
        scores = vectors.joined() @ query
        widths = [block.shape[1] for block in (vectors.text, vectors.lexical, vectors.context, vectors.bias)]
        parts = torch.split(query, widths)
        # Inner products of each node's unweighted features with the question, by content block, [nodes, 3].
        products = torch.stack([inputs.text @ parts[0], inputs.lexical @ parts[1], inputs.context @ parts[2]], dim=1)

        def influence(turn: int, edge: int, near: GraphInputs, place: int) -> Influence:
            row = int(inputs.rows[inputs.source[edge]])
            meaning, words, date = (vectors.edge[edge] * products[inputs.source[edge]]).tolist()
            others = torch.arange(len(near.source)) != place
            effect = float(scores[turn] - nodes(near.with_edges(others)).joined()[0] @ query)
            relation = nodes.relations[int(inputs.relation[edge])].name
            return Influence(snapshot.ids[row], relation, snapshot.descriptions[row], meaning, words, date, effect)

        def explanation(turn: int) -> Explanation:
            edges = (inputs.target == turn).nonzero().flatten().tolist()
            near = reader.inputs(np.array([int(inputs.rows[turn])]))  # the turn and its edges, in the same order
            own_meaning, own_words, own_context = (vectors.own[turn] * products[turn]).tolist()
            return Explanation(
                turn_of[turn],
                snapshot.descriptions[int(inputs.rows[turn])],
                float(scores[turn]),
                own_meaning,
                own_words,
                own_context,
                float(vectors.bias[turn] @ parts[3]),
                tuple(
                    sorted(
                        (influence(turn, edge, near, place) for place, edge in enumerate(edges)),
                        key=lambda each: -each.effect,
                    )
                ),
            )

        best_first = scores.argsort(descending=True, stable=True).tolist()
        chosen = best_first[:top_k] if turn_ids is None else [turn for turn in best_first if turn_of[turn] in turn_ids]
        return [explanation(turn) for turn in chosen]

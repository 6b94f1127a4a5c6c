"""Spaces as training examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import torch
from torch import Tensor

from locigraph.gnn.features import GraphInputs, Tensors, graph_inputs
from locigraph.gnn.relations import network_relations
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.types import TurnId
from locigraph.training.checkpoint import hashed_features
from locigraph.training.config import ModelConfig
from locigraph.training.pseudo_questions import QuestionWriter, pseudo_questions
from locigraph.training.ranking_scores import answers
from locigraph.training.snapshots import TrainingGraph


@dataclass(frozen=True, eq=False)
class SpaceExample(Tensors):
    """One space: its graph, its questions with the turns that answer them, and pseudo-questions.

    Attributes:
        name: Name of the space, or of a view of it.
        inputs: The graph.
        questions: Features of the questions, [questions, vector_dim]; None when there are none.
        positive: Which turns answer which question, bool [questions, turns].
        pseudo: Features of pseudo-questions, made from the graph, [pseudo-questions, vector_dim]; None without any.
        pseudo_positive: Which turns each pseudo-question came from, bool [pseudo-questions, turns].
    """

    name: str
    inputs: GraphInputs
    questions: Tensor | None
    positive: Tensor
    pseudo: Tensor | None
    pseudo_positive: Tensor


def make_example(
    graph: TrainingGraph, *, model: ModelConfig, encoder: TextEncoder, writer: QuestionWriter | None = None
) -> SpaceExample:
    """Convert a space into tensors of a model's widths; questions without evidence in the graph are left out.

    The writer turns the facts and events of a training space into pseudo-questions; without one there are none.
    """
    snapshot = graph.snapshot
    hashed = hashed_features(model)
    inputs = graph_inputs(snapshot, hashed, network_relations(model.excluded_relations))
    turn_ids = [snapshot.turns_of[row][0] for row in inputs.rows[: inputs.num_turns].tolist()]

    def encoded(
        asked: Sequence[tuple[str, Sequence[TurnId], datetime | None]],
    ) -> tuple[Tensor | None, Tensor]:
        positive = answers(turn_ids, [evidence for _, evidence, _ in asked])
        is_answered = positive.any(1)
        known = [(text, time) for (text, _, time), keep in zip(asked, is_answered.tolist(), strict=True) if keep]
        if not known:
            return None, positive[is_answered]
        texts, times = zip(*known, strict=True)
        features = hashed.questions(texts, encoder.encode(texts), asked_at=times)
        return torch.from_numpy(features), positive[is_answered]

    questions, positive = encoded([(q.text, q.evidence, q.asked_at) for q in graph.questions])
    written = pseudo_questions(snapshot, writer) if writer is not None and graph.is_training else []
    pseudo, pseudo_positive = encoded([(text, turns, None) for text, turns in written])
    return SpaceExample(graph.name, inputs, questions, positive, pseudo, pseudo_positive)

"""Fusions learnt from questions: what the same supervision and most signals of v2 achieve without a graph network.

The two fusions, a linear one and boosted trees over the same signals, are the strongest baselines for graph embeddings.
Both score every turn of a space at query time, so neither can be searched in a vector index.

Source:
    Liu 2009, "Learning to Rank for Information Retrieval"; Friedman 2001, "Greedy Function Approximation: A Gradient
    Boosting Machine".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from locigraph.gnn.losses import multi_positive_loss
from locigraph.kg.embedded_text import TextEncoder
from locigraph.retrieval.strategies.turn_signals import SIGNALS, TurnSignals
from locigraph.retrieval.strategies.weighted_sum import WeightedSum
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.errors import CheckpointError, TrainingDataError
from locigraph.training.ranking_scores import RankingScores, answers
from locigraph.training.snapshots import TrainingGraph, TrainingSet, graphs_of

#: L2 penalties on the weights to try; validation questions choose among them.
_PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2)
_LARGEST_STEPS = 100
#: Number of the linear fusion's best turns that the trees score; they learn from these and from the correct turns.
_CANDIDATES = 50
# Of a space with more turns, each question keeps the answers and the turns with the largest sums of signals.
_MOST_TURNS = 2_048
#: Key of the weights in the details of a checkpoint's manifest.
DETAIL = "fusion"


@dataclass(frozen=True, eq=False)
class SignalExample:
    """The signals and the correct turns of the questions about a space.

    Attributes:
        values: Signals, float32 [questions, signals, turns].
        positive: Which turns answer which question, bool [questions, turns]. In a large space each question has turns
            of its own: the answers, and those with the largest sums of signals.
        is_training: True to learn from the questions, False to validate on them.
    """

    values: Tensor
    positive: Tensor
    is_training: bool

    def scores(self, weights: Tensor) -> Tensor:
        """Sums of the signals, weighted by ``weights``, float32 [signals], for each question and turn."""
        return torch.einsum("s,qst->qt", weights, self.values)


class SignalReader:
    """Makes examples from graphs and questions; each is computed only once, however many folds use it."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder
        self._known: dict[tuple[str, str, tuple[str, ...]], tuple[Tensor, Tensor]] = {}

    def examples(self, data: Sequence[TrainingSet]) -> list[SignalExample]:
        """The signals of all questions that have evidence among the turns of their graph.

        Raises:
            TrainingDataError: If there is no question to learn from.
        """
        graphs = [graph for graph in graphs_of(data) if graph.questions]
        made = [self.example(graph) for graph in tqdm(graphs, desc="signals", unit="space", leave=False)]
        examples = [example for example in made if len(example.positive)]
        if not any(example.is_training for example in examples):
            raise TrainingDataError("no training space has a question with evidence; a fusion is learnt from these")
        return examples

    def example(self, graph: TrainingGraph) -> SignalExample:
        """The signals of the questions about a space that have evidence among its turns; there may be none."""
        key = graph.name, graph.fingerprint, tuple(q.question_id for q in graph.questions)
        if key not in self._known:
            self._known[key] = self._values(graph)
        return SignalExample(*self._known[key], graph.is_training)

    def _values(self, graph: TrainingGraph) -> tuple[Tensor, Tensor]:
        snapshot = graph.snapshot
        signals = TurnSignals(snapshot)
        turn_ids = [snapshot.turns_of[row][0] for row in signals.rows]
        positive = answers(turn_ids, [q.evidence for q in graph.questions])
        is_answered = positive.any(1)
        answered = [q for q, keep in zip(graph.questions, is_answered.tolist(), strict=True) if keep]
        positive = positive[is_answered]
        count = min(len(turn_ids), _MOST_TURNS)
        values = np.zeros((len(answered), len(SIGNALS), count), dtype=np.float32)
        right = torch.zeros((len(answered), count), dtype=torch.bool)
        vectors = self._encoder.encode([q.text for q in answered]) if answered else ()
        for i, (question, vector) in enumerate(zip(answered, vectors, strict=True)):
            found = signals.of(question.text, vector, asked_at=question.asked_at)
            kept = _kept(found.sum(0), positive[i].numpy(), count)
            values[i], right[i] = found[:, kept], positive[i][kept]
        return torch.from_numpy(values), right


def _kept(sums: NDArray[np.float64], is_answer: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """Places of so many turns, ascending: the answers, and those with the largest sums."""
    if count == len(sums):
        return np.arange(count)
    order = np.argsort(-np.where(is_answer, np.inf, sums), kind="stable")
    return np.sort(order[:count])


def learn_fusion(examples: Sequence[SignalExample], signals: Sequence[str] = SIGNALS) -> WeightedSum:
    """Fit the linear fusion with the lowest ranking loss, using the L2 penalty that does best on validation questions.

    The loss is that of the graph network (``multi_positive_loss``), and as in its training, each space counts the same,
    however many questions it has. The loss is convex in the weights, so nothing is random.

    Args:
        examples: Training examples and, optionally, validation examples; without these, the middle penalty is used.
        signals: Names of the examples' signals, in order.
    """
    checks = [example for example in examples if not example.is_training]
    if checks:
        weights = max((fitted_weights(examples, penalty) for penalty in _PENALTIES), key=partial(_validated, checks))
    else:
        weights = fitted_weights(examples, _PENALTIES[len(_PENALTIES) // 2])
    # The ranking does not depend on the scale of the weights.
    scaled = weights / weights.abs().sum()
    return WeightedSum({name: round(value, 4) for name, value in zip(signals, scaled.tolist(), strict=True)})


def fitted_weights(examples: Sequence[SignalExample], penalty: float) -> Tensor:
    """Weights of the signals, float32 [signals], that minimise the ranking loss with an L2 penalty."""
    steps = [example for example in examples if example.is_training]
    weights = torch.ones(steps[0].values.shape[1], requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=_LARGEST_STEPS, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = penalty * weights.square().sum()
        for example in steps:
            loss = loss + multi_positive_loss(example.scores(weights), example.positive) / len(steps)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]  # torch's own
    return weights.detach()


def _validated(examples: Sequence[SignalExample], weights: Tensor) -> float:
    scores = RankingScores()
    for example in examples:
        scores.add(example.scores(weights), example.positive)
    return scores.means()["val/score"]


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """Boosted regression trees over signals; turns that they do not score follow in the order of the linear fusion.

    Attributes:
        linear: Linear fusion that chooses the turns that the trees score.
        trees: scikit-learn classifier that tells correct turns from others.
    """

    linear: WeightedSum
    trees: Any

    @property
    def signals(self) -> Sequence[str]:
        """Names of the signals, which are those of the linear fusion."""
        return self.linear.signals

    def scores(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """See ``Fusion``."""
        first = self.linear.scores(values)
        best = np.argsort(-first, kind="stable")[:_CANDIDATES]
        scores: NDArray[np.float64] = first - first.max(initial=0.0) - 1e3  # below every logit
        scores[best] = self.trees.decision_function(values[:, best].T)
        return scores


def learn_trees(examples: Sequence[SignalExample], linear: WeightedSum, *, seed: int) -> BoostedTrees:
    """Fit boosted trees that tell correct turns from others among the best of a linear fusion.

    Args:
        examples: Only training examples are used; a tenth of their turns is held out for early stopping.
        linear: Linear fusion learnt from the same examples.
        seed: Random seed of what is held out.

    Raises:
        TrainingDataError: If all these turns are correct, or none.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier  # takes a second to import

    rows, right = [], []
    weights = torch.tensor(list(linear.weights.values()))
    for example in examples:
        if example.is_training:
            scores = example.scores(weights)
            best = scores.topk(min(_CANDIDATES, scores.shape[1]), dim=1).indices
            chosen = example.positive.clone().scatter_(1, best, True)
            rows.append(example.values.transpose(1, 2)[chosen])
            right.append(example.positive[chosen])
    values, labels = torch.cat(rows).numpy(), torch.cat(right).numpy()
    if labels.all() or not labels.any():
        raise TrainingDataError("boosted trees need turns that answer a question and turns that do not; leave them out")
    trees = HistGradientBoostingClassifier(
        learning_rate=0.05, max_iter=300, max_leaf_nodes=15, l2_regularization=1.0, random_state=seed,
        early_stopping=min(labels.sum(), (~labels).sum()) > 10,  # of each a tenth is held out
    )  # fmt: skip
    trees.fit(values, labels)
    return BoostedTrees(linear, trees)


def fusion_of(checkpoint: Checkpoint) -> WeightedSum:
    """The linear fusion learnt from the same questions as a checkpoint, whose manifest holds the weights.

    Raises:
        CheckpointError: If the manifest holds no weights, or invalid ones.
    """
    weights = checkpoint.details.get(DETAIL)
    if not isinstance(weights, dict) or not weights:
        raise CheckpointError(
            f"checkpoint {checkpoint.version}: its manifest holds no fusion weights; train again with locigraph "
            "train, or leave out fusion-zero"
        )
    if not all(n in SIGNALS and isinstance(w, int | float) and np.isfinite(w) for n, w in weights.items()):
        raise CheckpointError(
            f"checkpoint {checkpoint.version}: {DETAIL} in its manifest is {weights}; expected a finite number for "
            "each named signal; train again"
        )
    return WeightedSum(weights)

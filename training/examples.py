"""Spaces as training examples, and the Lightning data module that serves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, Self, TypeVar

import lightning as L  # noqa: N812  (the name Lightning's own documentation uses)
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from locigraph.gnn.features import GraphInputs, Tensors, graph_inputs
from locigraph.gnn.query import query_features
from locigraph.gnn.relations import network_relations
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, TurnId
from locigraph.training.checkpoint import features_of
from locigraph.training.config import ModelConfig
from locigraph.training.protocols import QuestionWriter
from locigraph.training.pseudo_questions import pseudo_questions
from locigraph.training.ranking_scores import answers


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
    snapshot: Snapshot,
    questions: Sequence[Question],
    *,
    model: ModelConfig,
    encoder: TextEncoder,
    writer: QuestionWriter | None = None,
    name: str | None = None,
) -> SpaceExample:
    """Convert a space into tensors.

    Args:
        snapshot: The graph as of the questions' time, with embeddings.
        questions: Questions about this space; those without evidence in the snapshot are left out.
        model: Widths of the features, and the relations to leave out.
        encoder: Text encoder.
        writer: Turns facts and events into pseudo-questions; None for no pseudo-questions.
        name: Name of the example; None for the name of the space.
    """
    sketch, context = features_of(model)
    inputs = graph_inputs(snapshot, sketch, context, network_relations(model.excluded_relations))
    rows = inputs.rows[: inputs.num_turns].tolist()
    turn_ids = [snapshot.turns_of[row][0] for row in rows]

    def encoded(
        asked: Sequence[tuple[str, Sequence[TurnId], datetime | None]],
    ) -> tuple[Tensor | None, Tensor]:
        positive = answers(turn_ids, [evidence for _, evidence, _ in asked])
        is_answered = positive.any(1)
        known = [(text, time) for (text, _, time), keep in zip(asked, is_answered.tolist(), strict=True) if keep]
        if not known:
            return None, positive[is_answered]
        texts = [text for text, _ in known]
        features = query_features(texts, encoder.encode(texts), sketch, context, asked_at=[time for _, time in known])
        return torch.from_numpy(features), positive[is_answered]

    own, positive = encoded([(q.text, q.evidence, q.asked_at) for q in questions])
    written = [] if writer is None else pseudo_questions(snapshot, writer)
    pseudo, pseudo_positive = encoded([(text, turns, None) for text, turns in written])
    return SpaceExample(name or str(snapshot.space), inputs, own, positive, pseudo, pseudo_positive)


class _EpochSampler(Sampler[int]):
    """Shuffles depending on seed and epoch only, so that a resumed run sees the same order.

    It calls ``epoch`` for the epoch, since Lightning iterates the sampler of a resumed run before calling
    ``set_epoch``. Each of n processes takes every n-th example of one common order; if the number of examples is not a
    multiple of n, the order wraps around.
    """

    def __init__(self, count: int, seed: int, epoch: Callable[[], int], *, rank: int = 0, processes: int = 1) -> None:
        self._count, self._seed, self._epoch = count, seed, epoch
        self._rank, self._processes = rank, processes

    def __len__(self) -> int:
        return math.ceil(self._count / self._processes)

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng([self._seed, self._epoch()]).permutation(self._count)
        return iter(np.resize(order, len(self) * self._processes)[self._rank :: self._processes].tolist())


class Example(Protocol):
    """The data of one training step: a space, or a part of one."""

    @property
    def name(self) -> str:
        """Name of the space, or of a view of it."""

    def to(self, device: torch.device | str) -> Self:
        """The same example on a device."""


E = TypeVar("E", bound=Example)


class EpochDataModule(L.LightningDataModule, Generic[E]):
    """Serves one example per step, in an order that depends on the seed and the epoch.

    Args:
        train: Examples to learn from; for a graph network whole spaces, since no edge joins two spaces.
        validation: Examples whose questions decide when to stop.
        seed: Random seed of the order.
    """

    def __init__(self, train: Sequence[E], validation: Sequence[E], *, seed: int) -> None:
        super().__init__()
        self.train = list(train)
        self.validation = list(validation)
        self._seed = seed

    def train_dataloader(self) -> DataLoader[E]:
        """Training examples, shuffled by epoch."""
        trainer = self.trainer
        place = {} if trainer is None else {"rank": trainer.global_rank, "processes": trainer.world_size}
        sampler = _EpochSampler(len(self.train), self._seed, self._epochs_done, **place)
        # A loader draws a random number each time it starts, and a resumed run starts it at another point. A generator
        # of its own keeps this from changing torch's global generator, which dropout uses.
        return DataLoader(
            self.train,  # type: ignore[arg-type]  # a list is a dataset
            batch_size=None,
            sampler=sampler,
            generator=torch.Generator(),
        )

    def _epochs_done(self) -> int:
        # ``trainer.current_epoch`` is not yet up to date when a resumed run asks for its order.
        if self.trainer is None:
            return 0
        # Lightning annotates ``current`` with a base class that has no ``processed``.
        return int(self.trainer.fit_loop.epoch_progress.current.processed)  # type: ignore[attr-defined]

    def val_dataloader(self) -> DataLoader[E] | list[DataLoader[E]]:
        """Validation examples in a fixed order, all of them in every process; an empty list if there are none."""
        if not self.validation:
            return []
        return DataLoader(
            self.validation,  # type: ignore[arg-type]  # as above
            batch_size=None,
            shuffle=False,
            generator=torch.Generator(),
        )

    def transfer_batch_to_device(self, batch: E, device: torch.device, dataloader_idx: int) -> E:
        """Move an example to a device; Lightning does not know how to move our dataclasses."""
        return batch.to(device)

"""Spaces as training examples, and the Lightning data module that deals them out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import lightning as L  # noqa: N812  (the name Lightning's own documentation uses)
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from locigraph.gnn.hetero import METADATA, GraphInputs, inputs_of, to_hetero
from locigraph.gnn.lexical import (
    ContextHash,
    LexicalSketch,
    RelatedTerms,
    common_words,
    frequent_terms,
    related_terms,
)
from locigraph.gnn.query import QueryBatch, query_batch
from locigraph.kg.language.tokens import terms
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question
from locigraph.training.config import ModelConfig
from locigraph.training.errors import TrainingDataError
from locigraph.training.protocols import Embed, QuestionWriter
from locigraph.training.pseudo_queries import RULES, Kind, PseudoQueries, make_pseudo_queries

# Stems in the table of related ones: it grows with them, by 6 bytes a relation in the checkpoint, and the time of its
# making by their square.
_MOST_STEMS = 20_000


@dataclass(frozen=True, eq=False)
class SpaceExample:
    """One space: its graph, its questions with the turns that answer them, and pseudo-queries.

    Attributes:
        name: Of the space, or of a view of it.
        inputs: Graph.
        episodes: Packed node index of each candidate turn, int64 [turns].
        questions: Encoded questions; None when there are none.
        positive: Which turns answer which question, bool [questions, turns].
        pseudo: Queries made of the graph itself, by kind.
    """

    name: str
    inputs: GraphInputs
    episodes: Tensor
    questions: QueryBatch | None
    positive: Tensor
    pseudo: Mapping[Kind, PseudoQueries]

    def to(self, device: torch.device | str) -> SpaceExample:
        """The same on a device."""
        return SpaceExample(
            self.name,
            self.inputs.to(device),
            self.episodes.to(device),
            None if self.questions is None else self.questions.to(device),
            self.positive.to(device),
            {kind: queries.to(device) for kind, queries in self.pseudo.items()},
        )


def make_sketch(snapshots: Sequence[Snapshot], model: ModelConfig, *, embed: Embed | None = None) -> LexicalSketch:
    """A sketch with the words of the given spaces.

    Args:
        snapshots: Of the training and validation spaces.
        model: Says how many stems get buckets of their own (those that occur in most turns and facts), and how
            many related ones each has.
        embed: Text encoder; needed for related stems.
    """
    documents = (
        terms(text)
        for snapshot in snapshots
        for text, kind in zip(snapshot.descriptions, snapshot.types, strict=True)
        if kind in ("episode", "knowledge_node")
    )
    dedicated: tuple[str, ...] = ()
    if model.lexical_dim and model.dedicated_terms:
        dedicated = frequent_terms(documents, model.dedicated_terms)
    related = RelatedTerms()
    if model.lexical_dim and model.related_terms and embed is not None:
        words = common_words((text for s in snapshots for text in s.descriptions), count=_MOST_STEMS)
        related = related_terms(words, embed, count=model.related_terms, least=model.least_likeness)
    return model.sketch(dedicated, related)


def make_example(
    snapshot: Snapshot,
    questions: Sequence[Question],
    *,
    sketch: LexicalSketch,
    context: ContextHash,
    embed: Embed,
    pseudo: Collection[Kind] = (),
    writer: QuestionWriter = RULES,
) -> SpaceExample:
    """Turn a space into tensors.

    Args:
        snapshot: With embeddings, as of the questions' time.
        questions: About this space; those whose evidence the snapshot does not show are left out.
        sketch: Lexical sketch.
        context: Hash of speakers and dates.
        embed: Text embeddings, rows of length 1.
        pseudo: Kinds of queries to make of the graph itself.
        writer: Turns facts into questions, for the kind that needs it.
    """
    inputs = inputs_of(to_hetero(snapshot, sketch, context), METADATA)
    rows = inputs.rows[inputs.graph.slice_of("episode")]
    episodes = torch.arange(len(rows))  # episodes are the first node type
    candidate_of = {snapshot.turns_of[row][0]: i for i, row in enumerate(rows.tolist())}
    asked = [q for q in questions if any(turn in candidate_of for turn in q.evidence)]
    positive = torch.zeros(len(asked), len(rows), dtype=torch.bool)
    for i, question in enumerate(asked):
        for turn in question.evidence:
            if turn in candidate_of:
                positive[i, candidate_of[turn]] = True
    batch = None
    if asked:
        texts = [q.text for q in asked]
        batch = query_batch(texts, embed(texts), sketch, context, asked_at=[q.asked_at for q in asked])
    made = make_pseudo_queries(
        pseudo, snapshot, candidate_of, sketch=sketch, context=context, embed=embed, writer=writer
    )
    return SpaceExample(str(snapshot.space), inputs, episodes, batch, positive, made)


class _EpochSampler(Sampler[int]):
    """A shuffle that depends on seed and epoch only, so that a resumed run sees the same order.

    It asks for the epoch: of a resumed run Lightning takes the order before it calls ``set_epoch``. Of several
    processes each gets every so many-th of one order, which begins anew where it does not come out even.
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
    """What one step learns from: a space, or a part of one."""

    @property
    def name(self) -> str:
        """Of the space, or of a view of it."""

    def to(self, device: torch.device | str) -> Self:
        """The same on a device."""


E = TypeVar("E", bound=Example)


class EpochDataModule(L.LightningDataModule, Generic[E]):
    """Deals out one example per step, in an order that each epoch's seed decides.

    Args:
        train: Examples to learn from; a graph network's are whole spaces, since their graphs never touch.
        validation: Examples whose questions decide when to stop.
        seed: Of the order.

    Raises:
        TrainingDataError: If there is nothing to train on, or a space is on both sides.
    """

    def __init__(self, train: Sequence[E], validation: Sequence[E], *, seed: int) -> None:
        super().__init__()
        if not train:
            raise TrainingDataError("there is no space to train on; name a corpus with questions")
        both = sorted({e.name for e in train} & {e.name for e in validation})
        if both:
            raise TrainingDataError(f"space {both[0]!r} is among the training and the validation spaces")
        self.train = list(train)
        self.validation = list(validation)
        self._seed = seed

    def train_dataloader(self) -> DataLoader[E]:
        """Training examples, shuffled by epoch."""
        trainer = self.trainer
        place = {} if trainer is None else {"rank": trainer.global_rank, "processes": trainer.world_size}
        sampler = _EpochSampler(len(self.train), self._seed, self._epochs_done, **place)
        # A loader draws a number whenever it begins, which a resumed run does at another point: not from torch's own
        # generator, then, which dropout draws from.
        return DataLoader(
            self.train,  # type: ignore[arg-type]  # a list is a dataset
            batch_size=None,
            sampler=sampler,
            generator=torch.Generator(),
        )

    def _epochs_done(self) -> int:
        # ``trainer.current_epoch`` still lags behind when a resumed run takes the order.
        if self.trainer is None:
            return 0
        # Lightning types the progress as one of its bases, which does not count the processed.
        return int(self.trainer.fit_loop.epoch_progress.current.processed)  # type: ignore[attr-defined]

    def val_dataloader(self) -> DataLoader[E] | list[DataLoader[E]]:
        """Validation examples in order, all of them in every process; no loader at all when there are none."""
        if not self.validation:
            return []
        return DataLoader(
            self.validation,  # type: ignore[arg-type]  # as above
            batch_size=None,
            shuffle=False,
            generator=torch.Generator(),
        )

    def transfer_batch_to_device(self, batch: E, device: torch.device, dataloader_idx: int) -> E:
        """Lightning does not know how to move our dataclasses."""
        return batch.to(device)

"""Spaces as training examples, which are read from the graph when a step needs them.

A space of up to ``step_turns`` turns is one step of the training. Of a larger one, each step takes the turns that
answer some of its questions, other turns at random, and the neighbours of all of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from locigraph.gnn.features import GraphInputs, GraphReader
from locigraph.gnn.relations import network_relations
from locigraph.gnn.sketch import HashedFeatures
from locigraph.kg.byte_cache import ByteCache
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.types import TurnId
from locigraph.training.checkpoint import hashed_features
from locigraph.training.config import ModelConfig, TrainingConfig
from locigraph.training.pseudo_questions import QuestionWriter, pseudo_questions
from locigraph.training.snapshots import TrainingGraph

_QUESTIONS = 256  # scored at once in validation, since a large space has many turns


@dataclass(frozen=True, eq=False)
class SpaceExample:
    """One space, or the part of it that a step takes: its graph, and its questions with the turns that answer them.

    Attributes:
        name: Name of the space, or of a view of it.
        inputs: The graph.
        questions: Features of the questions, [questions, vector_dim]; None when there are none.
        positive: Which turns answer which question, bool [questions, turns]; on the CPU, as the structure of a graph.
        pseudo: Features of pseudo-questions, made from the graph, [pseudo-questions, vector_dim]; None without any.
        pseudo_positive: Which turns each pseudo-question came from, bool [pseudo-questions, turns]; on the CPU.
        correction: Logarithm of the number of turns for which each turn stands, [turns], which is 0 but for turns that
            were drawn at random; None for a whole space.
    """

    name: str
    inputs: GraphInputs
    questions: Tensor | None
    positive: Tensor
    pseudo: Tensor | None
    pseudo_positive: Tensor
    correction: Tensor | None = None

    def to(self, device: torch.device | str) -> SpaceExample:
        """A copy with the features of nodes and questions moved to a device."""
        questions, pseudo, correction = (
            each if each is None else each.to(device) for each in (self.questions, self.pseudo, self.correction)
        )
        return replace(self, inputs=self.inputs.to(device), questions=questions, pseudo=pseudo, correction=correction)

    def step(self, generator: torch.Generator) -> SpaceExample:
        """What a step of the training takes: all of it."""
        return self

    def corrected(self, logits: Tensor, turns: Tensor | None = None) -> Tensor:
        """Logits of questions and turns, [questions, turns], whose softmax estimates that over all turns of the space.

        Args:
            logits: The logits, [questions, turns].
            turns: Indices of the turns that they are of; None for all turns.

        Source:
            Bengio and Senécal 2008, "Adaptive importance sampling to accelerate training of a neural probabilistic
            language model": sampled softmax.
        """
        if self.correction is None:
            return logits
        return logits + (self.correction if turns is None else self.correction[turns])

    def blocks(self) -> Iterator[GraphInputs]:
        """The graph of all turns, a block of turns at a time: one block."""
        yield self.inputs

    def asked(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and answers of all questions, some at a time."""
        if self.questions is not None:
            yield self.questions, self.positive

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors."""
        held = [getattr(each, f.name) for each in (self, self.inputs) for f in fields(each)]
        return sum(each.nbytes for each in held if isinstance(each, Tensor))


@dataclass(frozen=True, eq=False)
class Asked:
    """Questions, and the places among the turns of those that answer each."""

    texts: tuple[str, ...] = ()
    times: tuple[datetime | None, ...] = ()
    answers: tuple[NDArray[np.int64], ...] = ()

    @classmethod
    def of(cls, asked: Sequence[tuple[str, Sequence[TurnId], datetime | None]], place_of: dict[TurnId, int]) -> Asked:
        """The questions that some turns of the graph answer, from (text, evidence, time) of each."""
        found = [
            (text, time, np.array(sorted({place_of[turn] for turn in evidence if turn in place_of}), dtype=np.int64))
            for text, evidence, time in asked
        ]
        kept = [each for each in found if len(each[2])]
        return cls(*map(tuple, zip(*kept, strict=True))) if kept else cls()

    def __len__(self) -> int:
        return len(self.texts)

    def some(self, which: Sequence[int]) -> Asked:
        """Some of the questions, by their numbers."""
        held = (self.texts, self.times, self.answers)
        return Asked(*(tuple(each[i] for i in which) for each in held))  # type: ignore[arg-type]  # three tuples

    def features(self, hashed: HashedFeatures, encoder: TextEncoder) -> Tensor | None:
        """Features of the questions, [questions, vector_dim]; None if there are none."""
        if not self.texts:
            return None
        return torch.from_numpy(hashed.questions(self.texts, encoder.encode(self.texts), asked_at=self.times))

    def positive(self, places: NDArray[np.int64]) -> Tensor:
        """Which of the turns at these places, ascending, answer which question, bool [questions, places]."""
        found = torch.zeros(len(self), len(places), dtype=torch.bool)
        for row, answers in zip(found, self.answers, strict=True):
            row[torch.from_numpy(np.flatnonzero(np.isin(places, answers)))] = True
        return found


@dataclass(frozen=True, eq=False)
class TrainingSpace:
    """A space of which each step takes a part; ``prepared`` gives the whole, if it fits into one step.

    Attributes:
        name: Name of the space, or of a view of it.
        reader: Reads the graph of some of its turns.
        hashed: Makes the features of words, speakers and dates.
        encoder: Text encoder.
        questions: Its questions.
        pseudo: Its pseudo-questions.
        step_turns: Most turns that are encoded at once.
    """

    name: str
    reader: GraphReader
    hashed: HashedFeatures
    encoder: TextEncoder = field(repr=False)
    questions: Asked
    pseudo: Asked
    step_turns: int

    def to(self, device: torch.device | str) -> TrainingSpace:
        """Itself: only what a step takes is moved to the device."""
        return self

    def step(self, generator: torch.Generator) -> SpaceExample:
        """What a step of the training takes: answers to random questions, other turns at random, and the neighbours.

        Up to a quarter of the turns answer questions, up to a quarter pseudo-questions, and the others are drawn from
        all that remain; each of these stands for as many turns as were not drawn.
        """
        turns = len(self.reader.turns)
        taken = np.zeros(turns, dtype=bool)
        asked = [self._drawn(each, taken, generator) for each in (self.questions, self.pseudo)]
        rest = np.flatnonzero(~taken)
        # The answers to one question may be more than a step should take.
        count = max(0, min(len(rest), self.step_turns - int(taken.sum())))
        drawn = rest[torch.randperm(len(rest), generator=generator)[:count].numpy()]
        places = np.sort(np.concatenate([np.flatnonzero(taken), drawn]))
        correction = np.where(taken[places], 0.0, np.log(max(1, len(rest)) / max(1, count))).astype(np.float32)
        return self._example(places, *asked, correction=torch.from_numpy(correction))

    def prepared(self) -> SpaceExample | TrainingSpace:
        """The whole space if it has no more turns than a step takes, else itself."""
        return self.whole() if len(self.reader.turns) <= self.step_turns else self

    def whole(self) -> SpaceExample:
        """The whole space as one step."""
        return self._example(np.arange(len(self.reader.turns)), self.questions, self.pseudo, correction=None)

    def blocks(self) -> Iterator[GraphInputs]:
        """The graph of all turns, a block of turns at a time."""
        return self.reader.blocks(self.step_turns)

    def asked(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Features and answers of all questions, some at a time."""
        places = np.arange(len(self.reader.turns))
        for start in range(0, len(self.questions), _QUESTIONS):
            some = self.questions.some(range(start, min(start + _QUESTIONS, len(self.questions))))
            features = some.features(self.hashed, self.encoder)
            assert features is not None
            yield features, some.positive(places)

    @cached_property
    def nbytes(self) -> int:
        """About how many bytes it holds: its snapshot, the statistics of its words, and its questions."""
        held = self.reader.snapshot.nbytes + 150 * len(self.reader.statistics.frequency)
        return held + sum(2 * len(text) + 300 for each in (self.questions, self.pseudo) for text in each.texts)

    def _drawn(self, asked: Asked, taken: NDArray[np.bool_], generator: torch.Generator) -> Asked:
        """Random questions with up to a quarter of a step's turns as answers, which are noted as taken."""
        most = int(taken.sum()) + max(1, self.step_turns // 4)
        chosen: list[int] = []
        for number in torch.randperm(len(asked), generator=generator).tolist():
            answers = asked.answers[number]
            if int(taken.sum()) + len(answers) > most and chosen:
                break
            taken[answers] = True
            chosen.append(number)
        return asked.some(sorted(chosen))

    def _example(
        self, places: NDArray[np.int64], questions: Asked, pseudo: Asked, *, correction: Tensor | None
    ) -> SpaceExample:
        return SpaceExample(
            self.name,
            self.reader.inputs(self.reader.turns[places]),
            questions.features(self.hashed, self.encoder),
            questions.positive(places),
            pseudo.features(self.hashed, self.encoder),
            pseudo.positive(places),
            correction,
        )


def read_space(
    graph: TrainingGraph,
    *,
    model: ModelConfig,
    encoder: TextEncoder,
    writer: QuestionWriter | None = None,
    step_turns: int = TrainingConfig.step_turns,
) -> TrainingSpace:
    """Read a space for a model of these widths; questions without evidence in the graph are left out.

    The writer turns the facts and events of a training space into pseudo-questions; without one there are none.
    """
    snapshot, hashed = graph.snapshot, hashed_features(model)
    reader = GraphReader(snapshot, hashed, network_relations(model.excluded_relations))
    place_of = {snapshot.turns_of[row][0]: place for place, row in enumerate(reader.turns.tolist())}
    questions = Asked.of([(q.text, q.evidence, q.asked_at) for q in graph.questions], place_of)
    written = pseudo_questions(snapshot, writer) if writer is not None and graph.is_training else []
    pseudo = Asked.of([(text, turns, None) for text, turns in written], place_of)
    return TrainingSpace(graph.name, reader, hashed, encoder, questions, pseudo, step_turns)


class Examples(Dataset[SpaceExample | TrainingSpace]):
    """The examples of some graphs. Each is made when it is asked for, and those used last are kept.

    So a training holds at most ``keep`` bytes of prepared spaces, and the one that it is working on.

    Args:
        graphs: The graphs.
        make: Makes the example of a graph.
        keep: Bytes that the kept examples may hold together.
    """

    def __init__(
        self,
        graphs: Sequence[TrainingGraph],
        make: Callable[[TrainingGraph], SpaceExample | TrainingSpace],
        *,
        keep: int,
    ) -> None:
        self._graphs, self._make = graphs, make
        self._kept: ByteCache[int, SpaceExample | TrainingSpace] = ByteCache(keep, lambda example: example.nbytes)

    def __len__(self) -> int:
        return len(self._graphs)

    def __getitem__(self, place: int) -> SpaceExample | TrainingSpace:
        return self._kept.get(place, lambda: self._make(self._graphs[place]))

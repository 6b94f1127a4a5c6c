"""What a training may see: spaces, their graphs as of the times of the questions, and the questions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain

from locigraph.kg.language.seen_texts import SeenTexts, is_distinctive
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, SpaceId, Turn
from locigraph.kg.views import View, Views
from locigraph.training.errors import TrainingDataError


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """What a training may see of a corpus.

    Attributes:
        questions: Questions about the training and validation spaces; those about other spaces are ignored.
        train: Spaces to learn from.
        validation: Spaces that decide when to stop.
        views: The graphs of these spaces.
    """

    questions: tuple[Question, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...]
    views: Views


@dataclass(frozen=True, eq=False)
class TrainingGraph:
    """A graph to train or validate on, and the questions about it.

    Attributes:
        name: Name of its view.
        load: Reads its snapshot; what calls it decides how long it stays in memory.
        questions: Questions about it.
        is_training: Whether it is learnt from; else it decides when to stop.
    """

    name: str
    load: Callable[[], Snapshot]
    questions: tuple[Question, ...]
    is_training: bool

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot, read again unless it is kept elsewhere."""
        return self.load()

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the snapshot."""
        return self.snapshot.fingerprint


def train_and_validation_spaces(data: Sequence[TrainingSet]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(All training spaces, all validation spaces), each sorted."""
    train = {space for each in data for space in each.train}
    return tuple(sorted(train)), tuple(sorted({space for each in data for space in each.validation}))


def graphs_of(data: Sequence[TrainingSet]) -> list[TrainingGraph]:
    """The training and validation graphs of some training sets, with the questions about each.

    Raises:
        TrainingDataError: If a space is in both training and validation.
    """
    train, validation = train_and_validation_spaces(data)
    both = sorted({*train} & {*validation})
    if both:
        raise TrainingDataError(
            f"space {both[0]!r} is among both the training and the validation spaces; leave it out of one"
        )
    # Two corpora, or two graphs of one corpus, may have spaces of the same name.
    return [g for n, each in enumerate(data) for g in _graphs_of(each, f"graph {n + 1}: " if n else "")]


def _graphs_of(data: TrainingSet, label: str) -> list[TrainingGraph]:
    spaces = sorted({*data.train, *data.validation})
    used: dict[View, list[Question]] = {data.views.of(SpaceId(space), None): [] for space in spaces}
    for question in data.questions:
        if question.space in spaces:
            used.setdefault(data.views.of(question.space, question.asked_at), []).append(question)
    # If all questions about a space refer to earlier views, only those views are used, not the latest graph.
    used = {v: qs for v, qs in used.items() if qs or not any(o.space == v.space and used[o] for o in used)}
    return [
        TrainingGraph(label + view.name, partial(data.views.snapshot, view), tuple(questions), view.space in data.train)
        for view, questions in used.items()
        if data.views.snapshot(view).num_nodes  # empty if a question was asked before the first turn
    ]


def seen_texts_of(graphs: Sequence[TrainingGraph]) -> SeenTexts:
    """The texts that a training sees: all questions, and turns too distinctive to be said twice by coincidence."""
    question_texts = (question.text for graph in graphs for question in graph.questions)
    turn_texts = (
        Turn.text_of(snapshot.descriptions[row], speaker)
        for snapshot in (graph.snapshot for graph in graphs)
        for row, speaker in zip(snapshot.episode_rows.tolist(), snapshot.speakers, strict=True)
        if row >= 0
    )
    return SeenTexts(chain(question_texts, filter(is_distinctive, turn_texts)))


def questions_fingerprint(graphs: Sequence[TrainingGraph]) -> str:
    """Hash of all questions, in order, 12 hexadecimal digits; it keeps their wording out of the manifest."""
    # The order of the questions decides that of the graphs, and so the outcome of the training.
    records = [[q.question_id, q.text, str(q.asked_at), list(q.evidence)] for graph in graphs for q in graph.questions]
    return hashlib.sha256(json.dumps(records).encode()).hexdigest()[:12]

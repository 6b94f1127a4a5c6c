"""Folds: trainings that never see the conversations that they are tested on."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from locigraph.kg.counts import counted
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.language.seen_texts import SeenTexts, wording
from locigraph.kg.types import Question
from locigraph.kg.views import Views
from locigraph.retrieval.text.text_adapter import TextAdapter
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.config import Settings, TrainerConfig
from locigraph.training.errors import LeakError, TrainingError
from locigraph.training.identity import TrainingRun
from locigraph.training.leaks import Fold, check_text_leak
from locigraph.training.pseudo_questions import RULES, QuestionWriter
from locigraph.training.snapshots import TrainingSet, graphs_of, seen_texts_of


def plan_folds(questions: Sequence[Question], *, folds: int, validation: int, seed: int) -> tuple[Fold, ...]:
    """Divide the conversations that have questions into folds that test each of them once.

    The sizes of the test parts differ by at most one conversation. The conversations with the most questions are dealt
    first, one to each fold, always the one with the most to the fold that has the fewest questions so far. A fold's
    validation part comes from the test parts of the next folds, so that conversations are used for validation about
    equally often.

    Args:
        questions: Questions of the whole corpus; their order does not matter.
        folds: Number of folds; one per conversation is leave-one-out.
        validation: Number of conversations that each fold sets aside from training, to decide when to stop.
        seed: Random seed; decides which conversations come together.

    Returns:
        Folds in the order of their index, each part sorted. The same arguments give the same folds.

    Raises:
        TrainingError: If there are fewer than 2 folds, more folds than conversations, or a fold would have no
            conversation left to train on.
    """
    sizes = Counter(str(question.space) for question in questions)
    if len(sizes) < 2:
        raise TrainingError(f"folds need at least 2 conversations with questions; the corpus has {len(sizes)}")
    if not 2 <= folds <= len(sizes):
        raise TrainingError(f"folds is {folds}; expected 2 to {len(sizes)}, the number of conversations with questions")
    largest_test = -(-len(sizes) // folds)
    if validation < 0 or len(sizes) - largest_test - validation < 1:
        raise TrainingError(
            f"validation is {validation}: of {counted(len(sizes), 'conversation')} a fold tests {largest_test}, "
            f"so it must be from 0 to {max(0, len(sizes) - largest_test - 1)} to leave one to train on"
        )
    tests = _test_parts(sizes, folds, seed)
    planned = []
    for index, test in enumerate(tests):
        others: list[str] = []
        for group in (*tests[index + 1 :], *tests[:index]):  # each with the conversation with the most questions first
            start = index % len(group)  # otherwise only the largest would ever be used for validation
            others += [*group[start:], *group[:start]]
        parts = (tuple(sorted(part)) for part in (others[validation:], others[:validation], test))
        planned.append(Fold(index, *parts))
    return tuple(planned)


def _test_parts(sizes: Mapping[str, int], folds: int, seed: int) -> list[list[str]]:
    """The test part of each fold, in the order in which its conversations were dealt."""
    order = sorted(sizes)
    random.Random(seed).shuffle(order)
    order.sort(key=lambda space: -sizes[space])  # stable, so the seed decides among equals
    tests: list[list[str]] = [[] for _ in range(folds)]
    for start in range(0, len(order), folds):
        loads = [sum(sizes[space] for space in test) for test in tests]
        lightest_first = sorted(range(folds), key=loads.__getitem__)
        for index, space in zip(lightest_first, order[start : start + folds], strict=False):
            tests[index].append(space)
    return tests


@dataclass(frozen=True, eq=False)
class FoldTrainer:
    """Trains models without a fold's test conversations, and without questions worded like its test questions.

    Attributes:
        questions: Questions of the whole corpus.
        views: Graphs of the corpus.
        trainer: Where and how to train; must be on one device.
        encoder: Text encoder.
        details: Recorded in the checkpoints' manifests, such as commit and versions.
        also: Other corpora to learn from in every fold.
        writer: Turns facts into pseudo-questions, if a loss in the settings needs them.
        experiment: Groups the trainings in Weights & Biases.
        notes: Remarks about the trainings so far that a report should include.
    """

    questions: Sequence[Question]
    views: Views
    trainer: TrainerConfig
    _: KW_ONLY
    encoder: TextEncoder
    details: Mapping[str, Any]
    also: Sequence[TrainingSet] = ()
    writer: QuestionWriter = RULES
    experiment: str = ""
    notes: list[str] = field(default_factory=list)
    _data: dict[Fold, list[TrainingSet]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.trainer.num_devices != 1:
            raise TrainingError(
                f"trainer.devices is {self.trainer.devices}; training in folds uses one device, since otherwise "
                "every process would write to the index; leave the option out"
            )

    def data(self, fold: Fold) -> list[TrainingSet]:
        """The data that a fold may learn from: its training side and the other corpora; computed once per fold.

        Raises:
            LeakError: If one of the other corpora contains a test conversation, or a training question still has the
                wording of a test question.
        """
        if fold in self._data:
            return self._data[fold]
        for other in self.also:
            known = sorted({*other.train, *other.validation} & set(fold.test))
            if known:
                raise LeakError(
                    f"fold {fold.index} tests space {known[0]!r}, which is also in a corpus to learn from; leave that "
                    "conversation out of the corpora in also"
                )
        tested = [q for q in self.questions if q.space in fold.test]
        side = [q for q in self.questions if q.space in {*fold.train, *fold.validation}]
        own = TrainingSet(without_wordings(side, tested), fold.train, fold.validation, self.views)
        left_out = len(side) - len(own.questions)
        note = f"fold {fold.index}: {left_out} training questions left out, since test questions have the same wording"
        if left_out and note not in self.notes:
            self.notes.append(note)
        others = [dataclasses.replace(o, questions=without_wordings(o.questions, tested)) for o in self.also]
        # Checks the final data, independently of the filtering above.
        check_text_leak([q.text for data in (own, *others) for q in data.questions], [q.text for q in tested])
        self._data[fold] = [own, *others]
        return self._data[fold]

    def seen_elsewhere(self) -> SeenTexts:
        """The turns of the other corpora, but not their questions: those worded like test questions are not trained on.

        Raises:
            TrainingDataError: If a space is in both training and validation.
        """
        return seen_texts_of([dataclasses.replace(graph, questions=()) for graph in graphs_of(self.also)])

    def train(self, fold: Fold, settings: Settings, *, folder: Path, seed: int, name: str) -> Checkpoint:
        """Train for a fold, or resume or load the training that is in the folder; see ``train_checkpoint``.

        Raises:
            LeakError: As in ``data``.
        """
        from locigraph.training.graph_training import train_checkpoint  # imports Lightning

        details = {**self.details, "fold": fold.index, "name": name}
        one_device = dataclasses.replace(self.trainer, devices=1)
        run = TrainingRun(folder, one_device, seed, details, name, self.experiment)
        return train_checkpoint(self.data(fold), settings, run, encoder=self.encoder, writer=self.writer)


def without_wordings(questions: Sequence[Question], tested: Sequence[Question]) -> tuple[Question, ...]:
    """The questions whose wording differs from that of every tested question."""
    known = {wording(q.text) for q in tested}
    return tuple(q for q in questions if wording(q.text) not in known)


class Trained(Protocol):
    """What was trained on conversations: a checkpoint, an adapter of the text encoder, or a reranker.

    Attributes:
        version: Its version.
        spaces: Conversations that it was trained or validated on.
        seen: The texts of these; None if they are not recorded.
    """

    @property
    def version(self) -> str:
        """See the class."""
        ...

    @property
    def spaces(self) -> frozenset[str]:
        """See the class."""
        ...

    @property
    def seen(self) -> SeenTexts | None:
        """See the class."""
        ...


def refuse_trained_on(trained: Trained, questions: Sequence[Question], *, option: str) -> None:
    """Refuse to test what was trained on what it was trained or validated on.

    Raises:
        LeakError: If it was trained or validated on the space of a question; names the option that gave it.
    """
    for question in questions:
        if question.space in trained.spaces:
            raise LeakError(
                f"{option} {trained.version} was trained or validated on space {question.space!r}; test on "
                "other conversations, or leave the option out"
            )


def seen_by(*trained: Trained | None) -> SeenTexts:
    """The texts that some record as seen, together; those that record none add nothing."""
    return SeenTexts.union(each.seen for each in trained if each is not None and each.seen is not None)


def refuse_validation_on_adapter_data(adapter: TextAdapter | None, data: Sequence[TrainingSet]) -> None:
    """Refuse validation conversations that the text encoder's adapter was trained on, since their scores are too good.

    Raises:
        LeakError: If the adapter was trained on one of these conversations.
    """
    if adapter is None:
        return
    known = sorted({*adapter.details["identity"]["train"]} & {space for each in data for space in each.validation})
    if known:
        raise LeakError(
            f"validation space {known[0]!r} decides when to stop, but the adapter {adapter.folder} was "
            "trained on it; hold back the same conversations as locigraph adapt did (--validation)"
        )

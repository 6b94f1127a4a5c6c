"""Inputs of strategies that learn inside folds or use a checkpoint: the fold, and the questions to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from locigraph.assembly import provenance
from locigraph.assembly.search_parts import SearchParts
from locigraph.kg.corpora import Corpus
from locigraph.kg.types import Question
from locigraph.kg.views import Views
from locigraph.research.evaluation.asking import run_strategy
from locigraph.research.evaluation.outcomes import StrategyRun
from locigraph.research.experiments.comparison import searchable
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.protocols import Retriever
from locigraph.retrieval.strategies.weighted_sum import Fusion, FusionRetriever
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.config import Settings, TrainerConfig, changed
from locigraph.training.folds import FoldTrainer
from locigraph.training.fusion import SignalExample, SignalReader
from locigraph.training.leaks import Fold
from locigraph.training.pseudo_questions import RULES, QuestionWriter
from locigraph.training.snapshots import TrainingSet

if TYPE_CHECKING:
    from locigraph.research.contenders import Contender


@dataclass(frozen=True, eq=False)
class Asker:
    """Runs questions through checkpoints, fusions and other retrievers.

    Attributes:
        questions: All questions of the evaluation.
        encoder: Text encoder, with its adapter if it has one.
        views: Graphs of the corpus.
        index: Vector index for graph embeddings; None to search them in memory.
        wrap: Adds several queries and a cross-encoder, if any, to a retriever.
        unanswerable: Unanswerable questions, for which only contexts are packed.
        packs: Whether to pack contexts.
    """

    questions: Sequence[Question]
    encoder: CachedTextEncoder
    views: Views
    index: MilvusIndex | None = None
    wrap: Callable[[Retriever], Retriever] = lambda retriever: retriever
    unanswerable: Sequence[Question] = ()
    packs: bool = False

    def checkpoint(self, made: Checkpoint, questions: Sequence[Question], *, name: str) -> StrategyRun:
        """Rank turns by the graph embeddings of a checkpoint."""
        asked = [*questions, *self._unanswerable(questions)]
        with searchable(made, asked, views=self.views, encoder=self.encoder, index=self.index) as (retriever, packer):
            return self.retriever(retriever, questions, name=name, packer=packer)

    def fusion(self, fusion: Fusion, questions: Sequence[Question], *, name: str) -> StrategyRun:
        """Rank turns by a fusion of signals."""
        return self.retriever(FusionRetriever(self.views.at, self.encoder, fusion=fusion), questions, name=name)

    def retriever(
        self, retriever: Retriever, questions: Sequence[Question], *, name: str, packer: Retriever | None = None
    ) -> StrategyRun:
        """Rank turns by any retriever; ``packer`` as in ``run_strategy``."""
        return run_strategy(
            self.wrap(retriever),
            questions,
            self.views if self.packs else None,
            name=name,
            unanswerable=self._unanswerable(questions),
            packer=None if packer is None else self.wrap(packer),
        )

    def _unanswerable(self, questions: Sequence[Question]) -> list[Question]:
        """The unanswerable questions about the same conversations; none if no contexts are packed."""
        spaces = {question.space for question in questions}
        return [question for question in self.unanswerable if self.packs and question.space in spaces]


@dataclass(frozen=True, eq=False)
class FoldTask:
    """One fold of a strategy that learns.

    Attributes:
        fold: The fold, whose test conversations are not learnt from.
        settings: Settings of graph networks.
        seed: Random seed.
        folder: Folder of the trainings.
        asker: Runs the test questions.
        trainer: Trains graph networks, and selects what may be learnt from.
        reader: Computes the signals of fusions.
        parts: Parts that published strategies are built of.
        seconds: Seconds that each training took; ``trained`` appends to it.
    """

    fold: Fold
    settings: Settings
    seed: int
    folder: Path
    asker: Asker
    trainer: FoldTrainer
    reader: SignalReader
    parts: SearchParts
    seconds: list[float]

    @property
    def questions(self) -> list[Question]:
        """The test questions of the fold."""
        return [q for q in self.asker.questions if q.space in self.fold.test]

    @property
    def training_questions(self) -> list[Question]:
        """The questions of the corpus that may be learnt from."""
        own = self.trainer.data(self.fold)[0]
        return [q for q in own.questions if q.space in own.train]

    @property
    def validation_questions(self) -> list[Question]:
        """The questions of the corpus that are held out for model selection."""
        own = self.trainer.data(self.fold)[0]
        return [q for q in own.questions if q.space in own.validation]

    def trained(self, strategy: Contender) -> Checkpoint:
        """Train a graph network with the strategy's changes, or resume or load an earlier training of it."""
        made = self.trainer.train(
            self.fold,
            changed(self.settings, strategy.changes),
            folder=self.folder / strategy.name / f"seed-{self.seed}" / f"fold-{self.fold.index}",
            seed=self.seed,
            name=f"{strategy.name}, seed {self.seed}, fold {self.fold.index}",
        )
        self.seconds.append(made.details["seconds"])
        return made

    def signals(self) -> list[SignalExample]:
        """The signals of the questions that may be learnt from."""
        return self.reader.examples(self.trainer.data(self.fold))


def fold_trainer(
    corpus: Corpus,
    views: Views,
    trainer: TrainerConfig,
    encoder: CachedTextEncoder,
    *,
    seed: int,
    also: Sequence[TrainingSet] = (),
    writer: QuestionWriter = RULES,
    experiment: str = "",
) -> FoldTrainer:
    """A trainer for the folds of a corpus."""
    return FoldTrainer(
        corpus.questions,
        views,
        trainer,
        encoder=encoder,
        details=provenance.manifest(seed, corpus=corpus.source),
        also=also,
        writer=writer,
        experiment=experiment,
    )

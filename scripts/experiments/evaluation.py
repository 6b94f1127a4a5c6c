"""The comparison that ``locigraph evaluate`` runs: graph, folds, trainings, questions, results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from locigraph.consolidation.protocols import Extractor
from locigraph.kg.corpora import Corpus
from locigraph.kg.language.wordings import Wordings
from locigraph.kg.store import Store
from locigraph.kg.types import Question
from locigraph.kg.views import Views
from locigraph.retrieval.evaluation import Fold, Results, StrategyRun
from locigraph.retrieval.evaluation.asking import joined_runs, run_strategy
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.multi_query import asking
from locigraph.retrieval.protocols import Retriever
from locigraph.retrieval.query_generator import QueryGenerator
from locigraph.retrieval.strategies.weighted_sum import Fusion, FusionRetriever
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts.assembly import graphs, opening
from locigraph.scripts.assembly.queries import notes_of, version_of
from locigraph.scripts.assembly.search_parts import SearchParts, indexer_of, reranked, search_parts
from locigraph.scripts.assembly.settings import EncoderSettings, GraphSettings, IndexSettings
from locigraph.scripts.assembly.strategies import STRATEGIES, Strategy, made_of
from locigraph.scripts.experiments import learning, provenance
from locigraph.scripts.experiments.result_files import write_results
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.comparison import run_checkpoint
from locigraph.training.config import Settings, TrainerConfig, changed
from locigraph.training.folds import FoldTrainer, seen_by
from locigraph.training.fusion import SignalExample, SignalReader
from locigraph.training.protocols import QuestionWriter


@dataclass(frozen=True, eq=False)
class Asker:
    """Asks questions of what has been learnt.

    Attributes:
        questions: All of the evaluation.
        encoder: Text encoder, with its adapter if it has one.
        views: Graphs of the corpus.
        index: Where graph embeddings go.
        second_look: Adds several queries and a cross-encoder, if there are any.
        unanswerable: Questions for which only contexts are packed.
        packs: Whether to pack contexts.
    """

    questions: Sequence[Question]
    encoder: CachedTextEncoder
    views: Views
    index: MilvusIndex
    second_look: Callable[[Retriever], Retriever]
    unanswerable: Sequence[Question]
    packs: bool

    def checkpoint(self, made: Checkpoint, questions: Sequence[Question], *, name: str) -> StrategyRun:
        """Ask graph embeddings."""
        return run_checkpoint(
            made,
            questions,
            index=self.index,
            views=self.views,
            embed=self.encoder.encode,
            second_look=self.second_look,
            name=name,
            packs=self.packs,
            unanswerable=self._unanswerable(questions),
        )

    def fusion(self, fusion: Fusion, questions: Sequence[Question], *, name: str) -> StrategyRun:
        """Ask a fusion of signals."""
        made = FusionRetriever(
            lambda space, as_of: self.views.snapshot(self.views.of(space, as_of)), self.encoder, fusion=fusion
        )
        return self.retriever(made, questions, name=name)

    def retriever(self, retriever: Retriever, questions: Sequence[Question], *, name: str) -> StrategyRun:
        """Ask any strategy."""
        return run_strategy(
            self.second_look(retriever),
            questions,
            self.views if self.packs else None,
            name=name,
            unanswerable=self._unanswerable(questions),
        )

    def _unanswerable(self, questions: Sequence[Question]) -> list[Question]:
        """Those about the same conversations; none where no contexts are packed."""
        spaces = {question.space for question in questions}
        return [question for question in self.unanswerable if self.packs and question.space in spaces]


@dataclass(frozen=True, eq=False)
class FoldTask:
    """One fold of a strategy that learns.

    Attributes:
        fold: Its test conversations are not learnt from.
        settings: Of graph networks.
        seed: Random seed.
        folder: Where trainings are kept.
        asker: Asks what was learnt.
        trainer: Trains graph networks, and knows what may be learnt from.
        reader: Makes the signals of fusions.
        parts: What published strategies are built of.
        seconds: How long each training took; grows.
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
        """Those that the fold tests."""
        return [q for q in self.asker.questions if q.space in self.fold.test]

    @property
    def training_questions(self) -> list[Question]:
        """Those of the corpus that may be learnt from."""
        own = self.trainer.data(self.fold)[0]
        return [q for q in own.questions if q.space in own.train]

    @property
    def validation_questions(self) -> list[Question]:
        """Those of the corpus that may choose between what was learnt."""
        own = self.trainer.data(self.fold)[0]
        return [q for q in own.questions if q.space in own.validation]

    def trained(self, strategy: Strategy) -> Checkpoint:
        """A graph network with the strategy's changes; a finished training is taken up."""
        made = self.trainer.train(
            self.fold,
            changed(self.settings, strategy.changes),
            # The main strategy's folders have no name of their own, as in earlier versions.
            folder=self.folder / ("" if strategy.name == "v2" else strategy.name) / f"seed-{self.seed}" / self._part,
            seed=self.seed,
            name=f"{strategy.name}, seed {self.seed}, fold {self.fold.index}",
        )
        self.seconds.append(made.details["seconds"])
        return made

    def signals(self) -> list[SignalExample]:
        """The signals of the questions that may be learnt from."""
        return self.reader.examples(self.trainer.data(self.fold))

    @property
    def _part(self) -> str:
        return f"fold-{self.fold.index}"


@dataclass
class Evaluation:
    """Asks every question of every strategy and writes the results.

    Attributes:
        corpus: Conversations and questions.
        extractor: Makes the graph.
        strategies: Names of the strategies to run.
        pairs: Strategies that are tested against each other; None for the report's own choice.
        folder: Where to write.
        encoder: Text encoder.
        checkpoint: The checkpoint of zero-shot strategies; None where none is run.
        folds: Folds by conversation; empty where no strategy is trained.
        settings: Model and training of each fold.
        trainer: Where and how to train.
        writer: Writes pseudo-questions.
        queries: Makes the queries of every strategy; None leaves each its own way.
        reranker: Cross-encoder; None for none.
        seed: First random seed.
        seeds: Number of trainings of each fold.
        notes: What the report says beside the numbers; grows.
        contexts: Whether to pack what is found into contexts.
    """

    corpus: Corpus
    extractor: Extractor
    strategies: list[str]
    pairs: list[tuple[str, str]] | None
    folder: Path
    encoder: CachedTextEncoder
    checkpoint: Checkpoint | None
    folds: Sequence[Fold]
    settings: list[Settings]
    trainer: TrainerConfig
    writer: QuestionWriter
    queries: QueryGenerator | None
    reranker: str | None
    seed: int
    seeds: int
    notes: list[str]
    contexts: bool

    def run(
        self,
        store: str | None,
        index: IndexSettings,
        also: list[GraphSettings] | None,
        encoder: EncoderSettings,
        details: dict[str, Any],
    ) -> Results:
        """Build the graph where it is not yet, run all strategies, and write the results.

        Args:
            store: The graph; None puts it into the folder.
            index: Vector index.
            also: Built graphs of other corpora, to learn from in every fold.
            encoder: Settings of the text encoder, for those graphs.
            details: What else the manifest records.
        """
        path = store or str(self.folder / "graph.sqlite")
        corpus, questions = self.corpus, self.corpus.questions
        with (
            Store(path) as graph,
            opening.vector_index(index, path) as vectors,
            learning.more_training_sets(also if self.folds else None, corpus, encoder, validation=0) as others,
        ):
            failed = graphs.build_graph(corpus, self.extractor, graph, self.encoder)
            indexer_of(graph, vectors, self.encoder).drain(progress=True)
            for used in dict.fromkeys([self.encoder.without_adapter(), self.encoder]):
                used.encode([q.text for q in (*questions, *corpus.unanswerable)], progress="encode questions")
            views = graphs.views_of(graph, corpus, self.encoder)
            several = asking(self.queries, lambda space: views.snapshot(views.of(space, None)).last_day)
            look_again = reranked(self.reranker)
            asker = Asker(
                questions,
                self.encoder,
                views,
                vectors,
                lambda retriever: look_again(several(retriever)),
                corpus.unanswerable,
                self.contexts,
            )
            trainer = learning.fold_trainer(
                corpus,
                views,
                self.trainer,
                self.encoder,
                seed=self.seed,
                also=others,
                writer=self.writer,
                experiment=self.folder.name,
            )
            reader = SignalReader(self.encoder.encode)
            spaces = [conversation.space for conversation in corpus.conversations]
            with search_parts(graph, self.encoder, spaces=spaces, index=vectors, queries=self.queries) as parts:
                retrievers = made_of(parts, self.strategies)
                runs = []
                for name in self.strategies:
                    if name in retrievers:
                        runs.append(asker.retriever(retrievers[name], questions, name=name))
                    else:
                        runs += self._learnt(STRATEGIES[name], asker, trainer, reader, parts)
            self.notes += [*trainer.notes, *notes_of(self.queries)]
        if failed:
            count = sum(map(len, failed.values()))
            self.notes.append(f"{count} turns failed to consolidate; the graph has their words but no fact of theirs")
        explained = {name: STRATEGIES[name].description for name in self.strategies}
        manifest = provenance.manifest(self.seed, **self._manifest(), **details)
        return write_results(
            self.folder,
            corpus,
            runs,
            self.folds,
            self.pairs,
            self.notes,
            manifest,
            seed=self.seed,
            learnt=self._learnt_from(),
            strategies=explained,
        )

    def _learnt_from(self) -> Wordings:
        """What the given checkpoint and adapter have seen; notes where one of them does not say."""
        for label, made in (("adapter", self.encoder.adapter), ("checkpoint", self.checkpoint)):
            if made is not None and made.seen is None:
                self.notes.append(
                    f"{label} {made.version} does not say what texts it has learnt from; it was checked by the names "
                    "of conversations alone"
                )
        return seen_by(self.encoder.adapter, self.checkpoint)

    def _learnt(
        self, row: Strategy, asker: Asker, trainer: FoldTrainer, reader: SignalReader, parts: SearchParts
    ) -> list[StrategyRun]:
        if row.transfer is not None:
            assert self.checkpoint is not None
            return [row.transfer(asker, self.checkpoint, row)]
        assert row.learn is not None
        runs = []
        for seed in range(self.seed, self.seed + (self.seeds if row.is_random else 1)):
            tasks = [
                FoldTask(fold, settings, seed, self.folder, asker, trainer, reader, parts, self._seconds)
                for fold, settings in zip(self.folds, self.settings, strict=True)
            ]
            runs.append(joined_runs([row.learn(task, row) for task in tasks], seed=seed if row.is_random else None))
        return runs

    def __post_init__(self) -> None:
        self._seconds: list[float] = []

    def _manifest(self) -> dict[str, Any]:
        adapter = self.encoder.adapter
        return {
            "consolidation": self.extractor.name,
            "strategies": self.strategies,
            "baselines": None if self.pairs is None else sorted({baseline for _, baseline in self.pairs}),
            "seeds": self.seeds if self.folds else 0,
            "folds": len(self.folds),
            "checkpoint": None if self.checkpoint is None else self.checkpoint.version,
            "text_encoder": self.encoder.without_adapter().model_id,
            "adapter": None if adapter is None else adapter.version,
            "queries": version_of(self.queries),
            "reranker": self.reranker,
            "training_seconds": self._seconds,
            "writer": self.writer.name,
            "trainer": dataclasses.asdict(self.trainer),
        }

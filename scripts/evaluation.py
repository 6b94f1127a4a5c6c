"""The comparison that ``locigraph evaluate`` runs: graph, folds, trainings, questions, results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from locigraph.kg.corpora import Corpus
from locigraph.kg.store import Store
from locigraph.kg.types import Question
from locigraph.retrieval.evaluation import Fold, Results, StrategyRun
from locigraph.retrieval.protocols import Retriever
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts import graphs, learning, opening, provenance
from locigraph.scripts.result_files import write_results
from locigraph.scripts.settings import EncoderSettings, GraphSettings, IndexSettings
from locigraph.scripts.strategies import STRATEGIES, built_strategies, indexer_of, reranked, texts_of
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.comparison import joined_runs, run_checkpoint, run_strategy
from locigraph.training.config import Settings, TrainerConfig, changed
from locigraph.training.folds import FoldTrainer
from locigraph.training.protocols import QuestionWriter


@dataclass
class Evaluation:
    """Asks every question of every strategy and writes the results.

    Attributes:
        corpus: Conversations and questions.
        consolidation: Name of the extractor.
        strategies: Names of the strategies to run.
        pairs: Strategies that are tested against each other; None for the report's own choice.
        folder: Where to write.
        encoder: Text encoder.
        checkpoint: The checkpoint of zero-shot strategies; None where none is run.
        folds: Folds by conversation; empty where no strategy is trained.
        settings: Model and training of each fold.
        trainer: Where and how to train.
        writer: Writes pseudo-questions.
        reranker: Cross-encoder; None for none.
        seed: First random seed.
        seeds: Number of trainings of each fold.
        notes: What the report says beside the numbers; grows.
    """

    corpus: Corpus
    consolidation: str
    strategies: list[str]
    pairs: list[tuple[str, str]] | None
    folder: Path
    encoder: CachedTextEncoder
    checkpoint: Checkpoint | None
    folds: Sequence[Fold]
    settings: list[Settings]
    trainer: TrainerConfig
    writer: QuestionWriter
    reranker: str | None
    seed: int
    seeds: int
    notes: list[str]

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
            extractor = graphs.extractor_for(self.consolidation, corpus)
            failed = graphs.build_graph(corpus, extractor, graph, self.encoder)
            indexer_of(graph, vectors, self.encoder).drain(progress=True)
            for used in dict.fromkeys([self.encoder.without_adapter(), self.encoder]):
                used.encode([q.text for q in questions], progress="encode questions")
            views = graphs.views_of(graph, corpus, self.encoder)
            second_look = reranked(self.reranker)
            ask = partial(
                run_checkpoint,
                index=vectors,
                views=views,
                embed=self.encoder.encode,
                texts=texts_of(graph),
                second_look=second_look,
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
            spaces = [conversation.space for conversation in corpus.conversations]
            with built_strategies(graph, self.encoder, self.strategies, spaces=spaces, index=vectors) as retrievers:
                runs = [
                    run for name in self.strategies for run in self._runs(name, retrievers, trainer, ask, second_look)
                ]
            self.notes += trainer.notes
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
            strategies=explained,
        )

    def _runs(
        self,
        name: str,
        retrievers: dict[str, Retriever],
        trainer: FoldTrainer,
        ask: Callable[..., StrategyRun],
        second_look: Callable[[Retriever], Retriever],
    ) -> list[StrategyRun]:
        row, questions = STRATEGIES[name], self.corpus.questions
        if row.needs_checkpoint:
            assert self.checkpoint is not None
            return [ask(self.checkpoint, questions, name=name)]
        if not row.is_trained:
            return [run_strategy(second_look(retrievers[name]), questions)]
        return [self._trained(name, seed, trainer, ask) for seed in range(self.seed, self.seed + self.seeds)]

    def _trained(self, name: str, seed: int, trainer: FoldTrainer, ask: Callable[..., StrategyRun]) -> StrategyRun:
        of_folds = []
        for fold, settings in zip(self.folds, self.settings, strict=True):
            # The main strategy's folders have no name of their own, as in earlier versions.
            folder = self.folder / ("" if name == "v2" else name) / f"seed-{seed}" / f"fold-{fold.index}"
            made = trainer.train(
                fold,
                changed(settings, STRATEGIES[name].changes),
                folder=folder,
                seed=seed,
                name=f"{name}, seed {seed}, fold {fold.index}",
            )
            tested: list[Question] = [q for q in self.corpus.questions if q.space in fold.test]
            of_folds.append(ask(made, tested, name=name))
            self._seconds.append(made.details["seconds"])
        return joined_runs(of_folds, seed=seed)

    def __post_init__(self) -> None:
        self._seconds: list[float] = []

    def _manifest(self) -> dict[str, Any]:
        adapter = self.encoder.adapter
        return {
            "consolidation": self.consolidation,
            "strategies": self.strategies,
            "baselines": None if self.pairs is None else sorted({baseline for _, baseline in self.pairs}),
            "seeds": self.seeds if self.folds else 0,
            "folds": len(self.folds),
            "checkpoint": None if self.checkpoint is None else self.checkpoint.version,
            "text_encoder": self.encoder.without_adapter().model_id,
            "adapter": None if adapter is None else adapter.version,
            "reranker": self.reranker,
            "training_seconds": self._seconds,
            "writer": self.writer.name,
            "trainer": dataclasses.asdict(self.trainer),
        }

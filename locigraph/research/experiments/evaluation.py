"""The comparison that ``locigraph evaluate`` runs: graph, folds, trainings, questions, results."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

from locigraph.assembly import defaults, graphs, learning, opening, provenance
from locigraph.assembly.queries import notes_of, queries_of, version_of
from locigraph.assembly.search_parts import SearchParts, indexer_of, named_reranker, trained_reranker
from locigraph.assembly.settings import EncoderSettings, GraphSettings, IndexSettings
from locigraph.assembly.space_indexes import SpaceIndexes
from locigraph.consolidation.extractors import EXTRACTORS, Clients
from locigraph.consolidation.linking import Linker
from locigraph.consolidation.protocols import Extractor
from locigraph.kg.corpora import Corpus
from locigraph.kg.counts import counted
from locigraph.kg.errors import LocigraphError
from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.kg.store import Store
from locigraph.kg.types import Question
from locigraph.kg.views import Views
from locigraph.research.contenders import CONTENDERS, Contender, made_of
from locigraph.research.evaluation.asking import joined_runs
from locigraph.research.evaluation.outcomes import StrategyRun
from locigraph.research.evaluation.report import learnt_note, text_table
from locigraph.research.evaluation.results import Results
from locigraph.research.experiments.fold_task import Asker, FoldTask, fold_trainer
from locigraph.research.experiments.result_files import write_results
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.multi_query import with_queries
from locigraph.retrieval.protocols import Retriever
from locigraph.retrieval.query_generator import QueryGenerator
from locigraph.retrieval.rerank import RerankedRetriever
from locigraph.retrieval.text.pair_scorer import TrainedReranker
from locigraph.retrieval.text.text_encoder import CachedTextEncoder, plain_and_adapted
from locigraph.training.checkpoint import Checkpoint, load_checkpoint
from locigraph.training.config import Settings, TrainerConfig
from locigraph.training.folds import FoldTrainer, plan_folds, refuse_trained_on, seen_by
from locigraph.training.fusion import SignalReader
from locigraph.training.leaks import Fold
from locigraph.training.pseudo_questions import QuestionWriter


@dataclass(frozen=True)
class Given:
    """What was trained before the evaluation, besides the text encoder's adapter.

    Attributes:
        checkpoint: The checkpoint of zero-shot strategies; None if none is run.
        reranker: Name or folder of the reranker; None for none.
        learnt_reranker: The reranker itself, if it is one of ours.
    """

    checkpoint: Checkpoint | None
    reranker: str | None
    learnt_reranker: TrainedReranker | None

    @classmethod
    def read(
        cls, questions: Sequence[Question], encoder: CachedTextEncoder, *, checkpoint: str | None, reranker: str | None
    ) -> Self:
        """Read what is named, to be tested with these questions.

        Raises:
            LeakError: If something of it was trained on their conversations.
            LocigraphError: If something of it cannot be used.
        """
        given = None if checkpoint is None else load_checkpoint(Path(checkpoint), text_encoder=encoder.model_id)
        learnt = trained_reranker(reranker)
        for option, made in {"checkpoint": given, "reranker": learnt}.items():
            if made is not None:
                refuse_trained_on(made, questions, option=option)
        return cls(given, reranker, learnt)

    @property
    def notes(self) -> list[str]:
        """What the report says of it."""
        if self.reranker is None:
            return []
        version = "" if self.learnt_reranker is None else f" ({self.learnt_reranker.version})"
        return [f"the best hits of every strategy were reranked by {self.reranker}{version}"]

    @property
    def versions(self) -> dict[str, str | None]:
        """What the manifest says of it."""
        return {
            "checkpoint": None if self.checkpoint is None else self.checkpoint.version,
            "reranker": self.reranker if self.learnt_reranker is None else self.learnt_reranker.version,
        }


@dataclass
class Evaluation:
    """Runs every strategy on every question and writes the results.

    Attributes:
        corpus: Conversations and questions.
        extractor: Extractor that builds the graph.
        strategies: Names of the strategies to run.
        pairs: Strategies that are tested against each other; None for the report's own choice.
        folder: Where to write.
        encoder: Text encoder.
        given: What was trained before.
        folds: Folds by conversation; empty if no strategy is trained.
        settings: Model and training.
        trainer: Where and how to train.
        writer: Writes pseudo-questions.
        seeds: Seeds of the trainings of each fold.
        also: Built graphs of other corpora, to learn from in every fold.
        queries: Generates the queries of every strategy; None leaves each strategy its default.
        notes: Notes of the report; ``run`` appends to them.
        contexts: Whether to pack the hits into contexts.
    """

    corpus: Corpus
    extractor: Extractor
    strategies: list[str]
    pairs: list[tuple[str, str]] | None
    folder: Path
    encoder: CachedTextEncoder
    given: Given
    folds: Sequence[Fold]
    settings: Settings
    trainer: TrainerConfig
    writer: QuestionWriter
    seeds: range
    also: Sequence[GraphSettings]
    queries: QueryGenerator | None
    notes: list[str]
    contexts: bool
    _seconds: list[float] = field(default_factory=list, init=False)

    @classmethod
    def prepared(
        cls,
        corpus: Corpus,
        consolidation: str,
        clients: Clients,
        encoder: EncoderSettings,
        *,
        strategies: list[str],
        pairs: list[tuple[str, str]] | None,
        output: str,
        checkpoint: str | None,
        reranker: str | None,
        queries: str | None,
        folds: int,
        validation: int,
        settings: Settings,
        trainer: TrainerConfig,
        writer: QuestionWriter,
        seeds: range,
        also: Sequence[GraphSettings],
        contexts: bool,
        notes: list[str],
    ) -> Self:
        """Read and check all that is named, and make the folder of the results; the arguments are those of the command.

        Raises:
            LeakError: If something that is given was trained on the corpus.
            LocigraphError: If something of it cannot be used.
        """
        extractor = graphs.extractor_for(consolidation, corpus, clients)
        generator = queries_of(queries, clients)
        text_encoder = opening.held_out_encoder(encoder, corpus.questions)
        rows = [CONTENDERS[name] for name in strategies]
        needed = checkpoint if any(row.needs_checkpoint for row in rows) else None
        given = Given.read(corpus.questions, text_encoder, checkpoint=needed, reranker=reranker)
        planned: Sequence[Fold] = ()
        if any(row.is_trained for row in rows):
            planned = plan_folds(corpus.questions, folds=folds, validation=validation, seed=seeds[0])
        folder = Path(output)
        folder.mkdir(parents=True, exist_ok=True)
        return cls(
            corpus, extractor, strategies, pairs, folder, text_encoder, given, planned, settings, trainer, writer,
            seeds, also, generator, [*notes, *given.notes], contexts,
        )  # fmt: skip

    def run(
        self,
        store: str,
        index: IndexSettings,
        encoder: EncoderSettings,
        details: dict[str, Any],
    ) -> Results:
        """Build what is missing of the graph, link it by rules, run all strategies, and write the results.

        Args:
            store: The graph.
            index: Vector index.
            encoder: Settings of the text encoder, for the graphs of other corpora and for the store to remember.
            details: Further entries of the manifest.
        """
        corpus = self.corpus
        self._require_same_extractions()
        with (
            Store(store) as graph,
            opening.vector_index(index, graph) as vectors,
            learning.more_training_sets(self.also if self.folds else None, corpus, encoder, validation=0) as others,
        ):
            failed = graphs.build_graph(corpus, self.extractor, graph, self.encoder)
            graphs.require_same_turns(corpus, graph)
            for conversation in corpus.conversations:  # for strategies that search along links, as in their papers
                Linker(graph).run(conversation.space)
            indexer_of(graph, vectors, self.encoder).drain(progress=True)
            defaults.remember_indexed(graph, encoder)
            for used in plain_and_adapted(self.encoder):
                used.encode([q.text for q in (*corpus.questions, *corpus.unanswerable)], progress="encode questions")
            views = graphs.views_of(graph, self.encoder)
            trainer = fold_trainer(
                corpus,
                views,
                self.trainer,
                self.encoder,
                seed=self.seeds[0],
                also=others,
                writer=self.writer,
                experiment=self.folder.name,
            )
            runs = self._runs(graph, vectors, views, trainer)
            learnt = SeenTexts.union([self._seen_by_given(), trainer.seen_elsewhere()])
            self.notes += [*trainer.notes, *notes_of(self.queries)]
        if failed:
            turns = counted(sum(map(len, failed.values())), "turn")
            self.notes.append(f"{turns} failed to consolidate; the graph has their text but no facts from them")
        chosen = [CONTENDERS[name] for name in self.strategies]
        explained = {row.name: row.description + "; searches the vector index" * row.needs_index for row in chosen}
        manifest = provenance.manifest(self.seeds[0], **self._manifest(), **details)
        return write_results(
            self.folder, corpus, runs, self.folds, self.pairs, self.notes, manifest,
            seed=self.seeds[0], learnt=learnt, strategies=explained,
        )  # fmt: skip

    def _runs(self, graph: Store, vectors: MilvusIndex, views: Views, trainer: FoldTrainer) -> list[StrategyRun]:
        """Run all strategies on all questions, after the trainings that they need."""
        corpus = self.corpus
        reranker = None if self.given.reranker is None else named_reranker(self.given.reranker)

        def configured(retriever: Retriever) -> Retriever:
            queried = with_queries(retriever, self.queries, lambda space: views.at(space, None).last_day)
            return queried if reranker is None else RerankedRetriever(queried, reranker)

        asker = Asker(
            corpus.questions, self.encoder, views, vectors, configured, corpus.unanswerable, packs=self.contexts
        )
        spaces = [conversation.space for conversation in corpus.conversations]
        indexes = SpaceIndexes(graph, spaces)
        searched = partial(
            SearchParts, graph, self.encoder, spaces=spaces, queries=self.queries, indexes=lambda: indexes,
            texts=views.texts,
        )  # fmt: skip
        reader = SignalReader(self.encoder)
        with searched(index=vectors) as parts, searched() as in_memory:
            retrievers = made_of(parts, self.strategies)
            packers = made_of(in_memory, [name for name in retrievers if CONTENDERS[name].needs_index])
            runs = []
            for name in self.strategies:
                if name in retrievers:
                    made, packer = retrievers[name], packers.get(name)
                    runs.append(asker.retriever(made, corpus.questions, name=name, packer=packer))
                else:
                    runs += self._learnt(CONTENDERS[name], asker, trainer, reader, parts)
        return runs

    def _seen_by_given(self) -> SeenTexts:
        """The texts that all that is given was trained on; adds a note if something does not record them."""
        given = {
            "adapter": self.encoder.adapter,
            "checkpoint": self.given.checkpoint,
            "reranker": self.given.learnt_reranker,
        }
        for label, made in given.items():
            if made is not None and made.seen is None:
                self.notes.append(
                    f"{label} {made.version} does not record which texts it was trained on; only the names of its "
                    "conversations were compared with those of the corpus"
                )
        return seen_by(*given.values())

    def _learnt(
        self, row: Contender, asker: Asker, trainer: FoldTrainer, reader: SignalReader, parts: SearchParts
    ) -> list[StrategyRun]:
        if row.zero_shot is not None:
            assert self.given.checkpoint is not None
            return [row.zero_shot(asker, self.given.checkpoint, row)]
        assert row.learn is not None
        runs = []
        for seed in self.seeds if row.is_random else self.seeds[:1]:
            tasks = [
                FoldTask(fold, self.settings, seed, self.folder, asker, trainer, reader, parts, self._seconds)
                for fold in self.folds
            ]
            runs.append(joined_runs([row.learn(task, row) for task in tasks], seed=seed if row.is_random else None))
        return runs

    @property
    def _extractions(self) -> str | None:
        """Hash of the recorded extractions, if the graph is made of any."""
        name = self.extractor.name
        return self.corpus.extractions if name in EXTRACTORS and EXTRACTORS[name].is_replay else None

    def _require_same_extractions(self) -> None:
        """Raise LocigraphError if the folder has results, and so a graph, of other recorded extractions."""
        try:
            earlier = json.loads((self.folder / "results.json").read_text())["manifest"]["settings"].get("extractions")
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return  # there are none
        if earlier not in (None, self._extractions):
            raise LocigraphError(
                f"{self.folder} holds results of other recorded extractions, whose graph would be used again; name "
                "another output folder"
            )

    def _manifest(self) -> dict[str, Any]:
        adapter = self.encoder.adapter
        return {
            "consolidation": self.extractor.name,
            "extractions": self._extractions,
            "strategies": self.strategies,
            "baselines": None if self.pairs is None else sorted({baseline for _, baseline in self.pairs}),
            "seeds": len(self.seeds) if self.folds else 0,
            "folds": len(self.folds),
            **self.given.versions,
            "text_encoder": self.encoder.without_adapter().model_id,
            "adapter": None if adapter is None else adapter.version,
            "queries": version_of(self.queries),
            "training_seconds": self._seconds,
            "writer": self.writer.name,
            "trainer": dataclasses.asdict(self.trainer),
        }


def reported(results: Results, folder: Path) -> list[str]:
    """Lines that tell the results, and where the files are."""
    return [
        text_table(results),
        *learnt_note(len(results.get("left_out", ()))),
        f"report: {folder / 'report.html'} and {folder / 'report.md'}; numbers: {folder / 'results.json'}",
    ]

"""The matrix of ``locigraph transfer``: checkpoints trained on some corpora (rows), tested on others (columns)."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from locigraph.assembly import learning, opening, provenance
from locigraph.assembly.graphs import require_same_turns, views_of
from locigraph.assembly.options import names
from locigraph.assembly.search_parts import SearchParts
from locigraph.assembly.settings import EncoderSettings, GraphSettings
from locigraph.kg.corpora import Corpus
from locigraph.kg.errors import LocigraphError, shortened
from locigraph.kg.name_list import Names
from locigraph.kg.registry import Table
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.kg.views import Views
from locigraph.research.contenders import CONTENDERS, Contender, made_of
from locigraph.research.evaluation import document
from locigraph.research.evaluation.asking import outcomes, run_strategy
from locigraph.research.evaluation.formatting import p_value, signed, unsigned
from locigraph.research.evaluation.outcomes import StrategyRun
from locigraph.research.evaluation.question_scores import write_question_scores
from locigraph.research.evaluation.report import learnt_note
from locigraph.research.evaluation.summary import summarise
from locigraph.research.experiments.fold_task import Asker
from locigraph.research.experiments.result_files import learnt_questions
from locigraph.retrieval.metrics import CONTEXT_METRICS
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.training.checkpoint import Checkpoint, load_checkpoint
from locigraph.training.config import Settings, TrainerConfig
from locigraph.training.folds import refuse_trained_on, refuse_validation_on_adapter_data, seen_by
from locigraph.training.identity import TrainingRun

_METRICS = ("recall@10", "ndcg@10")
(_PROPOSED,) = (row for row in CONTENDERS.values() if row.zero_shot is not None and row.searches_graph_embeddings)
#: Strategies that use a checkpoint, and those that learn nothing; all of them search in memory, exactly.
BASELINES: Table[Contender] = Table(
    "baseline",
    [row for row in CONTENDERS.values() if row is not _PROPOSED and not row.is_trained],
)


@dataclass(frozen=True, eq=False)
class _Graph:
    store: Store
    corpus: Corpus
    encoder: CachedTextEncoder
    views: Views


class TransferMatrix:
    """Trains the rows, tests the cells, and keeps the results. As a context manager, it closes the graphs.

    Args:
        graphs: Settings of the graphs by name; each names its corpus.
        encoder: Text encoder of all graphs.
        settings: Model and training.
        trainer: Where and how to train.
        folder: Folder of the trainings and scores.
        baselines: Names of those of ``BASELINES`` that v2 is tested against.
        validation: Number of conversations of each training corpus held out for early stopping.
        seed: Random seed.
        contexts: Whether to pack the hits into contexts of several sizes.

    Raises:
        LocigraphError: If a name is not in ``BASELINES``, or none is given.

    Attributes:
        cells: Results of the cells, in the order in which ``ask`` added them.
        notes: What was not tested, and why; and which graphs lack what a baseline searches.
    """

    def __init__(
        self,
        graphs: Mapping[str, GraphSettings],
        encoder: EncoderSettings,
        settings: Settings,
        trainer: TrainerConfig,
        folder: Path,
        *,
        baselines: Names,
        validation: int,
        seed: int,
        contexts: bool,
    ) -> None:
        for name in graphs:
            check_file_name(name)
        self._baselines = names(baselines, BASELINES)
        if not self._baselines:
            raise LocigraphError(f"baselines is {baselines!r}; name at least one of {', '.join(BASELINES)}")
        self._named, self._encoder = graphs, encoder
        self._settings, self._trainer = settings, trainer
        self._folder, self._validation, self._seed = folder, validation, seed
        self._contexts = contexts
        self._metrics = (*_METRICS, *(CONTEXT_METRICS if contexts else ()))
        self._opened = ExitStack()
        self._graphs: dict[str, _Graph] = {}
        self._same_for_all: dict[str, list[StrategyRun]] = {}  # by graph: strategies that learn nothing
        self.cells: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def trained(self, name: str, sources: Sequence[str]) -> Checkpoint:
        """Train a checkpoint, with its fusion, on some graphs; a finished training is loaded."""
        check_file_name(name)
        graphs = [self._graph(source) for source in sources]
        sets = [learning.training_set(each.views, each.corpus, validation=self._validation) for each in graphs]
        encoder = graphs[0].encoder
        refuse_validation_on_adapter_data(encoder.adapter, sets)
        from locigraph.training.graph_training import train_checkpoint  # imports Lightning

        corpora = {source: each.corpus.sha256 for source, each in zip(sources, graphs, strict=True)}
        details = provenance.manifest(self._seed, corpora=corpora)
        run = TrainingRun(self._folder / name, self._trainer, self._seed, details, name, self._folder.name)
        return train_checkpoint(sets, self._settings, run, encoder=encoder, with_fusion=True)

    def loaded(self, path: str) -> Checkpoint:
        """Load the checkpoint of an earlier training."""
        return load_checkpoint(Path(path), text_encoder=opening.text_encoder(self._encoder).model_id)

    def require_unlearnt(
        self, train: Mapping[str, Sequence[str]], checkpoints: Mapping[str, Checkpoint], tests: Sequence[str]
    ) -> None:
        """Raise LeakError, before anything is trained, if the adapter was trained on a graph that will be tested."""
        rows = [{space for graph in graphs for space in self._spaces(graph)} for graphs in train.values()]
        rows += [{*checkpoint.spaces} for checkpoint in checkpoints.values()]
        for tested in tests:
            graph = self._graph(tested)
            is_tested = any(not self._spaces(tested) & row for row in rows)
            if is_tested and graph.encoder.adapter is not None:
                refuse_trained_on(graph.encoder.adapter, graph.corpus.questions, option="encoder.adapter")

    def _spaces(self, graph: str) -> set[str]:
        return {str(question.space) for question in self._graph(graph).corpus.questions}

    def ask(self, row: str, checkpoint: Checkpoint, tested: str) -> None:
        """Run all questions of a graph and add the cell; does nothing if the checkpoint was trained on all of it.

        If it was trained on a part of the graph's conversations, a note says so in place of the cell. Questions whose
        wording or evidence was learnt from another corpus are left out of comparisons.
        """
        graph = self._graph(tested)
        questions = graph.corpus.questions
        spaces = self._spaces(tested)
        if spaces <= checkpoint.spaces:
            return
        if learnt_from := spaces & checkpoint.spaces:
            left = ", ".join(sorted(spaces - learnt_from))
            self.notes.append(
                f"{row} on {tested}: not tested, since it was trained on {len(learnt_from)} of the {len(spaces)} "
                f"conversations; name the others as corpus.conversations of that graph: {left}."
            )
            return
        asker = Asker(questions, graph.encoder, graph.views, packs=self._contexts)
        learnt = [_PROPOSED, *(BASELINES[name] for name in self._baselines)]
        runs = [each.zero_shot(asker, checkpoint, each) for each in learnt if each.zero_shot is not None]
        runs += self._learning_nothing(tested)
        scored = outcomes(questions, {})
        left_out = learnt_questions(graph.corpus, (), seen_by(checkpoint, graph.encoder.adapter))
        pairs = [(_PROPOSED.name, baseline) for baseline in self._baselines]
        summary = summarise(scored, runs, comparisons=pairs, metrics=self._metrics, left_out=left_out, seed=self._seed)
        write_question_scores(self._folder / f"{row}--{tested}.scores.jsonl.gz", scored, runs, left_out=left_out)
        self.cells.append(
            {
                "trained": row,
                "checkpoint": checkpoint.version,
                "tested": tested,
                "questions": len(questions),
                "left_out": len(left_out),
                "means": {
                    name: {metric: found["overall"][metric] for metric in self._metrics}
                    for name, found in summary["strategies"].items()
                },
                "comparisons": summary["comparisons"],
            }
        )

    def table(self) -> str:
        """The matrix in Markdown: a line for each cell; and a second table, of contexts, if they were packed."""
        shown = [_PROPOSED.name, *self._baselines]
        head = ["trained on", "tested on"]
        differences = [f"{_PROPOSED.name} − {name}" for name in self._baselines]
        ranked = [self._ranked(cell, shown) for cell in self.cells]
        blocks: list[document.Block] = [_table([*head, *shown, *differences], ranked)]
        if self._contexts:
            packed = [line for cell in self.cells for line in _packed(cell, shown)]
            blocks += [
                document.Paragraph("Recall of contexts of so many tokens:"),
                _table([*head, "tokens", *shown], packed),
            ]
        for cell in self.cells:
            for note in learnt_note(cell.get("left_out", 0)):
                blocks.append(document.Paragraph(f"{cell['trained']} on {cell['tested']}: {note}."))
        blocks += map(document.Paragraph, self.notes)
        return document.markdown_text(blocks).rstrip("\n")

    def _ranked(self, cell: Mapping[str, Any], shown: Sequence[str]) -> list[str]:
        means = ["/".join(unsigned(cell["means"][name][metric]) for metric in _METRICS) for name in shown]
        found = {
            row["b"]: f"{signed(row['delta'])} (p {p_value(row['p'])}, Holm {p_value(row['p_holm'])})"
            for row in cell["comparisons"]
            if row["metric"] == _METRICS[0]
        }
        return [cell["trained"], cell["tested"], *means, *(found.get(name, "") for name in self._baselines)]

    def manifest(self, train: Mapping[str, Sequence[str]], checkpoints: Mapping[str, str]) -> dict[str, Any]:
        """Entries of the manifest of the matrix."""
        return {
            "graphs": {
                name: {
                    "corpus": graph.corpus.sha256,
                    "content": graph.corpus.content,
                    "conversations": len(graph.corpus.conversations),
                    "questions": len(graph.corpus.questions),
                    "text_encoder": graph.encoder.model_id,
                }
                for name, graph in self._graphs.items()
            },
            "train": train,
            "checkpoints": checkpoints,
            "baselines": self._baselines,
            "validation": self._validation,
            "model": dataclasses.asdict(self._settings.model),
            "training": dataclasses.asdict(self._settings.training),
        }

    def _graph(self, name: str) -> _Graph:
        if name not in self._graphs:
            given = self._named[name]
            assert given.corpus is not None
            corpus = opening.read_corpus(given.corpus)
            opening.require_questions(corpus, "there is nothing to train or test on")
            store = self._opened.enter_context(opening.existing_store(given.store))
            require_same_turns(corpus, store)  # before anything is encoded
            settings = self._encoder if given.dtype is None else dataclasses.replace(self._encoder, dtype=given.dtype)
            encoder = opening.text_encoder(settings)
            encoder.encode([q.text for q in corpus.questions], progress=f"encode questions of {name}")
            self._graphs[name] = _Graph(store, corpus, encoder, views_of(store, encoder))
        return self._graphs[name]

    def _learning_nothing(self, name: str) -> list[StrategyRun]:
        if name not in self._same_for_all:
            graph = self._graph(name)
            spaces = list(dict.fromkeys(q.space for q in graph.corpus.questions))
            self._note_missing_causes(name, spaces)
            with SearchParts(graph.store, graph.encoder, spaces=spaces) as parts:
                made = made_of(parts, self._baselines).values()
                views = graph.views if self._contexts else None
                self._same_for_all[name] = [run_strategy(each, graph.corpus.questions, views) for each in made]
        return self._same_for_all[name]

    def _note_missing_causes(self, name: str, spaces: Sequence[SpaceId]) -> None:
        readers = [each for each in self._baselines if BASELINES[each].reads_causes]
        views = self._graph(name).views
        if readers and not any("CAUSES" in views.at(space, None).relations for space in spaces):
            self.notes.append(
                f"{name} has no link to a cause, along which {', '.join(readers)} search; unless locigraph link has "
                f"been run with --store {self._named[name].store}, run it, and then this again."
            )


def _packed(cell: Mapping[str, Any], shown: Sequence[str]) -> list[list[str]]:
    return [
        [cell["trained"], cell["tested"], f"{tokens:,}", *(unsigned(cell["means"][name][metric]) for name in shown)]
        for metric, tokens in CONTEXT_METRICS.items()
    ]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> document.TableBlock:
    return document.TableBlock(tuple(head), tuple(tuple(row) for row in rows), text_columns=len(head))


def check_file_name(name: str) -> None:
    """Raise LocigraphError unless a name, of a graph or training, can be that of a file in the output folder."""
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise LocigraphError(
            f"the name {shortened(name)} would be part of names of files; expected letters, digits and . + - _"
        )

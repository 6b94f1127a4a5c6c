"""A corpus whose conversations are trained on and tested in folds, as commands name it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from locigraph.assembly import graphs, opening, provenance
from locigraph.assembly.language_models import clients_of
from locigraph.assembly.settings import CorpusSettings, EncoderSettings, LLMSettings
from locigraph.consolidation.protocols import Extractor
from locigraph.kg.corpora import Corpus
from locigraph.kg.views import Views
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.training.config import ModelConfig, TrainerConfig, TrainingConfig
from locigraph.training.leaks import Fold

if TYPE_CHECKING:
    from locigraph.training.folds import FoldTrainer


@dataclass(frozen=True)
class FoldedCorpus:
    """A corpus with its extractor, text encoder and folds.

    Attributes:
        corpus: Conversations and questions.
        extractor: Extractor that builds the graph.
        encoder: Text encoder, whose adapter was trained on none of the conversations.
        folds: Folds by conversation.
        folder: Folder of the results, which exists.
        store: The graph.
        settings: The part of a manifest that is the same for all that is done with it.
    """

    corpus: Corpus
    extractor: Extractor
    encoder: CachedTextEncoder
    folds: Sequence[Fold]
    folder: Path
    store: str
    settings: dict[str, Any]

    @classmethod
    def opened(
        cls,
        corpus: Corpus,
        consolidation: str,
        llm: LLMSettings,
        encoder: EncoderSettings,
        *,
        output: str,
        store: str | None,
        folds: int,
        validation: int,
        seed: int,
    ) -> Self:
        """Check everything that can be wrong, and make the folder of the results.

        Args:
            corpus: Conversations and questions.
            consolidation: Name of the extractor.
            llm: Language models, for the extractor ``llm``.
            encoder: Text encoder.
            output: Folder of the results.
            store: The graph; None puts it into this folder.
            folds: Number of groups of conversations.
            validation: Number of training conversations of each fold that are held out.
            seed: Random seed of the folds.

        Raises:
            LocigraphError: If the extractor is unknown, or there are too few conversations.
            LeakError: If the adapter was trained on one of them.
        """
        from locigraph.training.folds import plan_folds

        extractor = graphs.extractor_for(consolidation, corpus, clients_of(llm))
        text_encoder = opening.held_out_encoder(encoder, corpus.questions)
        planned = plan_folds(corpus.questions, folds=folds, validation=validation, seed=seed)
        folder = Path(output)
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "consolidation": consolidation,
            "folds": len(planned),
            "validation": validation,
            "corpus": corpus.sha256,
            "text_encoder": text_encoder.model_id,
        }
        return cls(corpus, extractor, text_encoder, planned, folder, graph_in(output, store), settings)

    @contextmanager
    def trainings(self, trainer: TrainerConfig, *, seed: int) -> Iterator[tuple[Views, FoldTrainer]]:
        """Build what is missing of the graph, and yield its views and what trains on them."""
        from locigraph.research.experiments.fold_task import fold_trainer  # imports the vector index

        with graphs.built_views(self.corpus, self.extractor, self.encoder, self.store) as views:
            yield (
                views,
                fold_trainer(self.corpus, views, trainer, self.encoder, seed=seed, experiment=self.folder.name),
            )

    def manifest(
        self, seed: int, model: ModelConfig, training: TrainingConfig, trainer: TrainerConfig, **settings: Any
    ) -> dict[str, Any]:
        """How numbers were computed, with further settings."""
        return provenance.manifest(
            seed,
            **self.settings,
            model=dataclasses.asdict(model),
            training=dataclasses.asdict(training),
            trainer=dataclasses.asdict(trainer),
            **settings,
        )


def read_with_questions(corpus: CorpusSettings, *, output: str, store: str | None, needed_for: str) -> Corpus:
    """Read a corpus; raises LocigraphError, which says what the questions are needed for, if it has none."""
    provenance.source_commit()  # now, since the source may change while a long command runs
    loaded = opening.read_corpus(corpus, store=graph_in(output, store))
    opening.require_questions(loaded, needed_for)
    return loaded


def graph_in(output: str, store: str | None) -> str:
    """The store of a graph: the one that is named, or else one in the folder of the results."""
    return store or str(Path(output) / "graph.sqlite")

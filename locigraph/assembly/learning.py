"""Prepares trainings: conversations to learn from, question writers."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from locigraph.assembly import opening
from locigraph.assembly.graphs import require_same_turns, views_of
from locigraph.assembly.language_models import clients_of
from locigraph.assembly.settings import EncoderSettings, GraphSettings, WriterSettings
from locigraph.kg.corpora import Corpus
from locigraph.kg.counts import counted, is_or_are
from locigraph.kg.errors import LocigraphError
from locigraph.kg.views import Views
from locigraph.training.config import ModelConfig, Settings, TrainingConfig
from locigraph.training.pseudo_questions import RULES, QuestionWriter
from locigraph.training.snapshots import TrainingSet

_LOG = logging.getLogger(__name__)


def settings_of(model: ModelConfig, training: TrainingConfig) -> Settings:
    """Settings of model and training, after a check of the names in them.

    Raises:
        UnknownNameError: If a graph encoder or a loss is unknown; the message lists those that are known.
        GraphError: If a relation is unknown.
    """
    from locigraph.training.objectives import require_known_names

    made = Settings(model, training)
    require_known_names(made)
    return made


def training_set(views: Views, corpus: Corpus, *, validation: int) -> TrainingSet:
    """A corpus, split into conversations to learn from and conversations held back for early stopping.

    Args:
        views: Graphs of the corpus.
        corpus: Its questions; without any, none are held back, since early stopping needs questions.
        validation: Number of conversations to hold back, evenly spread over the sorted list of all.

    Raises:
        LocigraphError: If ``validation`` is negative or leaves none to learn from.
    """
    check_validation(validation)
    spaces = sorted({q.space for q in corpus.questions})
    if not corpus.questions:
        return TrainingSet((), tuple(sorted(c.space for c in corpus.conversations)), (), views)
    if validation >= len(spaces):
        raise LocigraphError(
            f"{corpus.path}: validation is {validation}, but there are only {counted(len(spaces), 'conversation')} for "
            "training and validation together; lower it"
        )
    if left := len(corpus.conversations) - len(spaces):
        _LOG.warning(
            "%s: %s without questions %s left out", corpus.path, counted(left, "conversation"), is_or_are(left)
        )
    held_back = tuple(spaces[:: max(1, len(spaces) // validation)][:validation]) if validation else ()
    return TrainingSet(corpus.questions, tuple(s for s in spaces if s not in held_back), held_back, views)


def check_validation(conversations: int) -> None:
    """Raise LocigraphError if the number of conversations to hold back is negative."""
    if conversations < 0:
        raise LocigraphError(f"validation is {conversations}; expected 0 or more conversations")


@contextmanager
def training_sets(
    corpus: Corpus,
    store: str,
    also: Sequence[GraphSettings] | None,
    encoder: EncoderSettings | None,
    *,
    validation: int,
) -> Iterator[list[TrainingSet]]:
    """Open a built graph and further ones, and yield their training sets.

    Args:
        corpus: The corpus that the graph was built from.
        store: Where the graph is.
        also: Further graphs, as in ``more_training_sets``.
        encoder: Text encoder whose embeddings to read; None for none.
        validation: Number of conversations of each corpus to hold back for early stopping.

    Raises:
        LocigraphError: If ``validation`` is negative or leaves none to learn from, or there is no graph.
    """
    check_validation(validation)  # before the graph is opened
    with (
        opening.existing_store(store) as graph,
        more_training_sets(also, corpus, encoder, validation=validation) as others,
    ):
        require_same_turns(corpus, graph)
        views = views_of(graph, None if encoder is None else opening.text_encoder(encoder))
        yield [training_set(views, corpus, validation=validation), *others]


@contextmanager
def more_training_sets(
    graphs: Sequence[GraphSettings] | None, own: Corpus, encoder: EncoderSettings | None, *, validation: int
) -> Iterator[list[TrainingSet]]:
    """Open further graphs, and yield their training sets.

    Args:
        graphs: Where they are; None for none.
        own: The command's corpus, for graphs that name none.
        encoder: The command's text encoder; None if no embeddings are needed.
        validation: Number of conversations of each corpus to hold back for early stopping.
    """
    with ExitStack() as opened:
        sets = []
        for each in graphs or ():
            if encoder is None and each.dtype is not None:
                raise LocigraphError(
                    f"also: dtype of {each.store!r} is given, but no embeddings are used; leave it out"
                )
            corpus = own if each.corpus is None else opening.read_corpus(each.corpus)
            texts = None if encoder is None else replace(encoder, dtype=each.dtype or encoder.dtype)
            store = opened.enter_context(opening.existing_store(each.store))
            require_same_turns(corpus, store)
            views = views_of(store, None if texts is None else opening.text_encoder(texts))
            sets.append(training_set(views, corpus, validation=validation))
        yield sets


def question_writer(settings: WriterSettings) -> QuestionWriter:
    """The writer of questions about facts: a language model, or rules if no endpoint is named.

    Raises:
        LocigraphError: If an endpoint is named without a model, or a model without an endpoint, or a limit or price is
            invalid.
    """
    if settings.base_url is None:
        if settings.model:
            raise LocigraphError(f"writer.model is {settings.model!r}, but writer.base_url is not set; give both")
        return RULES
    if not settings.model:
        raise LocigraphError(f"writer.base_url is {settings.base_url!r}, but writer.model is empty; give both")
    clients = clients_of(settings, max_tokens=settings.max_tokens, max_cost=settings.max_cost, option="writer")
    from locigraph.assembly.question_writer import LLMQuestions  # its client takes a second to import

    return LLMQuestions(clients("questions"), concurrency=settings.concurrency)

"""Builders: settings in, parts out. The one place where packages meet that do not import each other."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from consolidation.pipeline import Consolidator, claim_space
from consolidation.protocols import Extractor
from consolidation.recorded import RecordedExtractor
from consolidation.rules import RuleExtractor
from kg.corpora import Corpus, load_corpus
from kg.errors import LocigraphError, nearest
from kg.store import Store
from kg.types import Question, SpaceId, TurnState
from retrieval.evaluation import Fold
from retrieval.fusion import RRF_K
from retrieval.hybrid import HybridRetriever
from retrieval.indexer import DescriptionIndexer
from retrieval.lexical import LexicalIndex
from retrieval.memory_vectors import MemoryVectors
from retrieval.milvus import MilvusIndex
from retrieval.protocols import Retriever, VectorSearch
from retrieval.rerank import CrossEncoderReranker, RerankedRetriever
from retrieval.single_arm import Bm25Retriever, DenseRetriever
from retrieval.text_encoder import CachedTextEncoder
from retrieval.weighted_sum import WeightedSumRetriever
from scripts.context import HybridContext
from scripts.settings import (
    Consolidation,
    CorpusSettings,
    EncoderSettings,
    GraphSettings,
    IndexSettings,
    WriterSettings,
)
from training.config import TrainConfig, changed
from training.fit import TrainerConfig
from training.folds import FoldTrainer, refuse_known
from training.protocols import QuestionWriter
from training.pseudo_queries import RULES
from training.refresh import forget_in_collections
from training.run import TrainingSet
from training.views import Views

#: Strategies that need a checkpoint.
TRAINED = ("v2", "v2-zero")
#: Strategies that search the vector index.
WITH_INDEX = ("v1", "v1-k60", "dense", *TRAINED)
#: Strategies with the text encoder's adapter, by those without; their vectors are searched in memory, exactly.
ADAPTED = {f"{name}-adapted": name for name in ("v1", "sum", "dense")}


def read_corpus(settings: CorpusSettings) -> Corpus:
    """The corpus of the settings."""
    categories = None if settings.categories is None else tuple(settings.categories)
    return load_corpus(
        settings.format,
        settings.path,
        extractions=settings.extractions,
        corrections=settings.corrections,
        categories=categories,
    )


def text_encoder(settings: EncoderSettings) -> CachedTextEncoder:
    """The text encoder with its cache."""
    return CachedTextEncoder(
        settings.model,
        cache=Path(settings.cache),
        adapter=None if settings.adapter is None else Path(settings.adapter),
        device=settings.device,
        dtype=settings.dtype,
    )


def held_out_encoder(settings: EncoderSettings, questions: Sequence[Question]) -> CachedTextEncoder:
    """The text encoder for a test with these questions.

    Raises:
        LeakError: If its adapter knows one of their conversations.
    """
    encoder = text_encoder(settings)
    if encoder.adapter is not None:
        refuse_known(encoder.adapter, questions, option="encoder.adapter")
    return encoder


def names(listed: str, known: Sequence[str], kind: str) -> list[str]:
    """Names separated by commas.

    Raises:
        LocigraphError: If one is not known; names the nearest.
    """
    found = [name.strip() for name in listed.split(",") if name.strip()]
    for name in found:
        if name not in known:
            raise LocigraphError(f"{kind} {name!r} is not known{nearest(name, known)}")
    return list(dict.fromkeys(found))


def require_adapter(strategies: Sequence[str], adapter: str | None) -> None:
    """Refuse strategies of ``ADAPTED`` without an adapter.

    Raises:
        LocigraphError: Names the first.
    """
    wrong = [name for name in strategies if name in ADAPTED]
    if adapter is None and wrong:
        raise LocigraphError(f"strategy {wrong[0]!r} needs an adapter; name one with --encoder.adapter")


def claim(strategies: Sequence[str], baselines: str | None) -> tuple[str | None, list[str]]:
    """Which strategy is tested, and against which.

    Args:
        strategies: All that are run.
        baselines: Names separated by commas; None for v1 and sum (of which with the adapter what is run), or for all
            others where none of these is run.

    Returns:
        (v2, or v2-zero without it, or None without both; names of the baselines).

    Raises:
        LocigraphError: If a baseline is not among the strategies.
    """
    claimant = next((name for name in ("v2", "v2-zero") if name in strategies), None)
    others = [name for name in strategies if name != claimant]
    if baselines is not None:
        return claimant, names(baselines, others, "baseline")
    # Where v2's text encoder is adapted, so must be what it is tested against; v1 as it is besides.
    usual = ("v1", "v1-adapted", "sum-adapted") if any(name in ADAPTED for name in others) else ("v1", "sum")
    return claimant, [name for name in others if name in usual] or others


def unused_options(
    strategies: Sequence[str], *, checkpoint: str | None, adapter: str | None, only_v2: Mapping[str, object]
) -> list[str]:
    """Notes on options, perhaps of a shared configuration, that a choice of strategies leaves without use.

    Args:
        strategies: All that are run.
        checkpoint: Of v2-zero; None for none.
        adapter: Of the text encoder; None for none.
        only_v2: Options by name that only v2 uses; false where they have their default.
    """
    said = []
    if checkpoint is not None and "v2-zero" not in strategies:
        said.append("checkpoint was not used, since v2-zero was not run")
    if adapter is not None and not any(name in ADAPTED or name in TRAINED for name in strategies):
        said.append("encoder.adapter was not used, since no strategy that uses it was run")
    if "v2" not in strategies:
        said += [f"{name} was not used, since v2 was not run" for name, given in only_v2.items() if given]
    return said


def views_of(graph: Store, corpus: Corpus, encoder: CachedTextEncoder | None) -> Views:
    """Snapshots of a corpus' spaces, with an encoder's embeddings, or without any."""
    model = None if encoder is None else encoder.model_id
    return Views.of_corpus(lambda space, as_of: graph.snapshot(space, as_of=as_of, embedding_model=model), corpus)


def training_set(views: Views, corpus: Corpus, *, validation: int) -> TrainingSet:
    """A corpus to learn from.

    Args:
        views: Its graphs.
        corpus: Its questions; without any, its conversations are learnt from all the same.
        validation: Conversations held back to decide when to stop, evenly from the list of all.

    Raises:
        LocigraphError: If none would be left to learn from.
    """
    spaces = sorted({q.space for q in corpus.questions} or {c.space for c in corpus.conversations})
    if validation >= len(spaces):
        raise LocigraphError(
            f"{corpus.path}: validation is {validation}, but there are only {len(spaces)} conversations to learn from "
            "and to hold back; lower it"
        )
    held_back = tuple(spaces[:: max(1, len(spaces) // validation)][:validation]) if validation else ()
    return TrainingSet(corpus.questions, tuple(s for s in spaces if s not in held_back), held_back, views)


@contextmanager
def more_training_sets(
    graphs: Sequence[GraphSettings] | None, own: Corpus, encoder: EncoderSettings | None, *, validation: int
) -> Iterator[list[TrainingSet]]:
    """More graphs to learn from, opened.

    Args:
        graphs: Where they are; None for none.
        own: The command's corpus, of graphs that name none.
        encoder: The command's; None where no embeddings are needed.
        validation: Conversations of each that are held back.
    """
    with ExitStack() as opened:
        sets = []
        for each in graphs or ():
            if encoder is None and each.dtype is not None:
                raise LocigraphError(
                    f"also: dtype of {each.store!r} is given, but no embeddings are used; leave it out"
                )
            corpus = own if each.corpus is None else read_corpus(each.corpus)
            if encoder is not None and each.dtype is not None:
                texts: EncoderSettings | None = dataclasses.replace(encoder, dtype=each.dtype)
            else:
                texts = encoder
            store = opened.enter_context(existing_store(each.store))
            views = views_of(store, corpus, None if texts is None else text_encoder(texts))
            sets.append(training_set(views, corpus, validation=validation))
        yield sets


def question_writer(settings: WriterSettings) -> QuestionWriter:
    """What writes questions about facts.

    Raises:
        LocigraphError: If an endpoint is named without a model, or a model without an endpoint.
    """
    if settings.base_url is None:
        if settings.model:
            raise LocigraphError(f"writer.model is {settings.model!r} but writer.base_url names no endpoint; give both")
        return RULES
    if not settings.model:
        raise LocigraphError(f"writer.base_url is {settings.base_url!r}, but writer.model is empty; give both")
    from consolidation.questions import LLMQuestions  # its client takes a second to import

    return LLMQuestions(
        settings.base_url,
        settings.model,
        cassette=Path(settings.cassette),
        api_key=os.environ.get(settings.api_key_env, "none"),
        concurrency=settings.concurrency,
    )


def fold_trainer(
    corpus: Corpus,
    views: Views,
    trainer: TrainerConfig,
    encoder: CachedTextEncoder,
    *,
    seed: int,
    also: Sequence[TrainingSet] = (),
    writer: QuestionWriter = RULES,
) -> FoldTrainer:
    """What trains inside folds of a corpus."""
    return FoldTrainer(
        corpus.questions,
        views,
        trainer,
        embed=encoder.encode,
        text_encoder=encoder.model_id,
        details=provenance(seed, corpus={"path": corpus.path, "sha256": corpus.sha256}),
        also=also,
        writer=writer,
    )


def configs_of_folds(model: TrainConfig, folds: Sequence[Fold], searched: str | None) -> list[TrainConfig]:
    """The configuration of each fold: the given one, changed as a search chose for that fold.

    Raises:
        LocigraphError: If the search's file cannot be read or is of other folds.
    """
    if searched is None:
        return [model] * len(folds)
    from training.search import chosen_for

    try:
        found = json.loads(Path(searched).read_text())["folds"]
        return [changed(model, chosen_for(found, fold)) for fold in folds]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LocigraphError(f"{searched}: not the search.json of locigraph search ({error!r})") from error


def _advance(bar: tqdm[Any]) -> None:
    bar.update()


def existing_store(path: str) -> Store:
    """A store that an earlier command made.

    Raises:
        LocigraphError: If there is none, rather than making an empty one.
    """
    file = path.removeprefix("sqlite:///")  # of SQLAlchemy's URLs the one that names a file
    if "://" not in file and not Path(file).is_file():
        raise LocigraphError(f"store {path!r} does not exist; run locigraph build, or name it with --store")
    return Store(path)


def vector_index(settings: IndexSettings, store: str) -> MilvusIndex:
    """The vector index; by default a file of the store's own, beside it.

    Raises:
        LocigraphError: If none is named for a store on a server.
    """
    file = store.removeprefix("sqlite:///")
    if settings.uri is None and "://" in file:
        raise LocigraphError(
            f"store {store.partition('@')[2] or store!r} has no folder to put an index in; name one with --index.uri"
        )
    return MilvusIndex(settings.uri or str(Path(file).with_suffix(".index.db")), token=settings.token)


def extractor_for(consolidation: Consolidation, corpus: Corpus) -> Extractor:
    """The architect and scribe of a name."""
    return RuleExtractor() if consolidation == "rules" else RecordedExtractor(corpus.conversations)


def build_graph(corpus: Corpus, extractor: Extractor, store: Store, encoder: CachedTextEncoder) -> dict[SpaceId, int]:
    """Conversations into graph; what an earlier run did is passed over.

    What becomes of a turn is decided by the text encoder without its adapter: graphs stay the same whatever retrieval
    has learnt. Nodes get vectors of both.

    Returns:
        Number of failed turns by space, of spaces that have some.
    """
    for conversation in corpus.conversations:
        store.append_turns(conversation.turns)
        claim_space(store, conversation.space, extractor)
    turns = [turn for conversation in corpus.conversations for turn in conversation.turns]
    pending = sum(store.turn_counts(c.space)[TurnState.PENDING] for c in corpus.conversations)
    failed: dict[SpaceId, int] = {}
    if pending:
        # One large batch now instead of a small one per turn.
        texts = [turn.utterance for turn in turns]
        plain = encoder.without_adapter()
        plain.encode([*texts, *extractor.expected_texts(turns)], progress="encode")
        context = HybridContext(store, plain)
        try:
            consolidator = Consolidator(store, extractor, plain, context)
            with tqdm(desc="consolidate", total=pending, unit="turn") as bar:
                for conversation in corpus.conversations:
                    consolidator.run(conversation.space, on_turn=lambda: _advance(bar))
        finally:
            context.close()
    for each in dict.fromkeys([encoder.without_adapter(), encoder]):
        _embed_all(corpus, store, each)
    for conversation in corpus.conversations:
        count = len(store.failures(conversation.space))
        if count:
            failed[conversation.space] = count
    return failed


def _embed_all(corpus: Corpus, store: Store, encoder: CachedTextEncoder) -> None:
    """Vectors for nodes that have none of this encoder, such as those of a graph that another one has built."""
    lacking = {c.space: found for c in corpus.conversations if (found := store.unembedded(c.space, encoder.model_id))}
    # One large batch now instead of a small one per space.
    texts = [text for found in lacking.values() for _, text in found]
    vectors = encoder.encode(texts, progress="embed" if lacking else None)
    start = 0
    for space, found in lacking.items():
        nodes, rows = [node for node, _ in found], vectors[start : start + len(found)]
        start += len(found)
        # The index holds no vectors of adapters (see indexer_of).
        store.put_embeddings(space, encoder.model_id, nodes, rows, to_indexes=encoder.adapter is None)


@contextmanager
def built_views(corpus: Corpus, extractor: Extractor, encoder: CachedTextEncoder, store: str) -> Iterator[Views]:
    """What trainings inside folds need: the graphs of a corpus, built where they are not yet, and encoded questions."""
    with Store(store) as graph:
        build_graph(corpus, extractor, graph, encoder)
        encoder.encode([q.text for q in corpus.questions], progress="encode questions")
        yield views_of(graph, corpus, encoder)


def indexer_of(store: Store, index: MilvusIndex, encoder: CachedTextEncoder) -> DescriptionIndexer:
    """The indexer of descriptions, by which collections of graph embeddings forget what the store forgot.

    It holds vectors of the text encoder without its adapter: v1 is the same whatever v2 has learnt.
    """
    plain = encoder.without_adapter().model_id
    return DescriptionIndexer(
        store, index, plain, on_delete=lambda space, keys: forget_in_collections(index, space, keys)
    )


@contextmanager
def search_parts(
    store: Store,
    encoder: CachedTextEncoder,
    strategies: Sequence[str],
    *,
    spaces: Sequence[SpaceId],
    index: MilvusIndex | None = None,
) -> Iterator[tuple[LexicalIndex, dict[str, Retriever]]]:
    """Strategies that need no training over an indexed graph.

    Args:
        store: The graph.
        encoder: Text encoder; only strategies of ``ADAPTED`` use its adapter.
        strategies: Names; those that need training are passed over.
        spaces: That will be asked.
        index: Vector index; may be None if no strategy is of ``WITH_INDEX``.

    Yields:
        (index of the words of all nodes, retrievers by name).
    """
    lexical = LexicalIndex(lambda space, as_of: store.snapshot(space, as_of=as_of))
    # An index of their own: what is common in facts must not weigh on words of turns.
    turns = LexicalIndex(lambda space, as_of: store.snapshot(space, as_of=as_of), types=("episode",))

    @cache
    def indexed() -> VectorSearch:
        assert index is not None
        return indexer_of(store, index, encoder).collection()

    @cache
    def in_memory() -> VectorSearch:
        vectors = MemoryVectors()
        for space in spaces:
            vectors.add_snapshot(store.snapshot(space, embedding_model=encoder.model_id))
        return vectors

    def made(name: str, closing: ExitStack) -> Retriever:
        used = encoder if name in ADAPTED else encoder.without_adapter()
        kind = ADAPTED.get(name, name)
        if kind == "bm25":
            return Bm25Retriever(turns)
        if kind == "sum":
            return WeightedSumRetriever(
                lambda space, as_of: store.snapshot(space, as_of=as_of, embedding_model=used.model_id), used, name=name
            )
        vectors = in_memory() if name in ADAPTED else indexed()
        if kind == "dense":
            return DenseRetriever(vectors, used, turns, name=name)
        if kind == "v1-k60":
            hybrid = HybridRetriever(lexical, vectors, used, name=name, rrf_k=RRF_K)
        else:
            hybrid = HybridRetriever(lexical, vectors, used, name=name)
        closing.callback(hybrid.close)
        return hybrid

    with ExitStack() as closing:
        yield lexical, {name: made(name, closing) for name in strategies if name not in TRAINED}


def second_look(model: str | None) -> Callable[[Retriever], Retriever]:
    """Adds a cross-encoder to a strategy, or nothing where none is named."""
    if model is None:
        return lambda retriever: retriever
    reranker = CrossEncoderReranker(model)
    return lambda retriever: RerankedRetriever(retriever, reranker)


def provenance(seed: int, **settings: Any) -> dict[str, Any]:
    """What a manifest says about how its numbers came to be."""
    return {
        "commit": source_commit(),
        "seed": seed,
        "versions": {name: metadata.version(name) for name in _VERSIONED},
        "settings": settings,
    }


_VERSIONED = (
    "locigraph", "torch", "torch-geometric", "lightning", "pymilvus", "milvus-lite", "sentence-transformers", "numpy",
)  # fmt: skip


@cache
def source_commit() -> str:
    """Commit of the source tree, with '+' when it has changes; 'unknown' outside a checkout.

    Long commands ask for it when they start, since the tree may move on while they run.
    """
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout

    try:
        return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if git("status", "--porcelain").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def check_device(device: str) -> None:
    """Raise LocigraphError, before any work, if torch cannot use a device."""
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        raise LocigraphError(f"device {device!r} cannot be used here: {str(error)[:120]}") from error


def parse_time(text: str | None) -> datetime | None:
    """An ISO 8601 time of the command line.

    Raises:
        LocigraphError: If it is none.
    """
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError as error:
        raise LocigraphError(f"time {text!r} is not ISO 8601, such as 2024-06-30T00:00:00") from error

"""``locigraph build``: turn conversations into a graph and its index."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from locigraph.assembly.settings import (
    DEFAULT,
    REMEMBERED,
    CorpusSettings,
    EncoderSettings,
    IndexSettings,
    LLMSettings,
)
from locigraph.kg.counts import counted

if TYPE_CHECKING:
    from locigraph.consolidation.errors import LanguageModelError
    from locigraph.consolidation.protocols import Extractor
    from locigraph.kg.corpora import Corpus
    from locigraph.kg.store import Store, TurnFailure
    from locigraph.kg.types import Scope, SpaceId, TurnId

    Failures = dict[SpaceId, list[TurnFailure]]


def build(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    consolidation: str = "rules",
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str | None = DEFAULT,
    llm: LLMSettings = LLMSettings(),
    max_tokens: int | None = None,
    max_cost: float | None = None,
    dry_run: bool = False,
    redact: bool = False,
    retry_failed: bool = False,
    user: str | None = None,
    agent: str | None = None,
    workers: int = 1,
    ray: str | None = None,
) -> None:
    """Read conversations, consolidate every turn into the graph, and index it. Can be interrupted and run again.

    Files may hold new sessions, further turns of known ones, or everything again; forgotten turns are skipped.

    Exits with code 1 if turns failed: they can be found by their own words, but no facts were extracted from them.

    Args:
        corpus: Conversations to read.
        consolidation: Extractor that builds the graph: <extractors>.
        store: SQLite file of the graph, or the URL of a PostgreSQL database.
        index: Vector index.
        encoder: Text encoder.
        checkpoint: Checkpoint whose graph embeddings are kept up to date, for v2; ``default`` for the one that the
            store remembers, or the shipped one; null for none.
        llm: Language models, for the extractor ``llm``.
        max_tokens: Limit on the tokens that language models read and write for the graph, including earlier runs; at
            the limit the command stops with exit code 3, and it continues when it is run again with a higher limit.
        max_cost: The same limit for the cost, in the currency of the prices.
        dry_run: Whether to only report what would be built and what it would cost, without calling models or writing
            anything.
        redact: Whether to replace what looks like a password, key or card number before anything is stored.
        retry_failed: Whether to try failed turns again.
        user: User to whom the conversations belong, for ``locigraph recall --user``; null sets none.
        agent: Agent to which the conversations belong, for ``locigraph recall --agent``; null sets none.
        workers: Number of processes that build conversations; more than one needs a store and an index on servers, and
            the extra ``ray``.
        ray: Address of a Ray cluster that runs the workers; null for this machine.
    """
    from functools import partial

    from locigraph.assembly import defaults, exports, graphs, opening
    from locigraph.assembly.batch_jobs import workers_of
    from locigraph.assembly.build_job import BuildJob
    from locigraph.assembly.language_models import clients_of, refuse_unasked
    from locigraph.assembly.refresh_job import RefreshJob
    from locigraph.assembly.search_parts import indexer_of
    from locigraph.consolidation.extractors import EXTRACTORS
    from locigraph.kg.schema import EPISODE
    from locigraph.kg.store import Store
    from locigraph.kg.types import Scope
    from locigraph.scripts.console.terminal import printable, spaces_list

    if not EXTRACTORS[consolidation].asks_models:
        refuse_unasked(llm, "consolidation", consolidation)
    running = workers_of(workers, ray, store, index)
    loaded = _read(corpus, store, redact=redact)
    clients = clients_of(llm, max_tokens=max_tokens, max_cost=max_cost)
    extractor = graphs.extractor_for(consolidation, loaded, clients)
    scope = Scope(user, agent)
    if dry_run:
        _foresee(loaded, extractor, store, scope)
        return
    with Store(store) as graph:
        print(spaces_list(loaded.conversations, {*graph.spaces()}))
        used = defaults.encoder_settings(encoder, graph, checkpoint)
        text_encoder = opening.text_encoder(used)
        with opening.vector_index(index, graph) as vectors:
            # Before everything that takes long, since a named checkpoint may turn out to be unusable.
            embeddings, missing = defaults.opened_embeddings(graph, vectors, text_encoder, checkpoint)
            defaults.remember_encoder(graph, used, text_encoder)
            forgotten = exports.forgotten_of(loaded, graph)
            told, notes = exports.as_first_stored(loaded, graph, forgotten)
            if retry_failed:
                graphs.make_failed_pending(loaded, graph, extractor)
            build_here = partial(graphs.build_graph, told, extractor, graph, text_encoder, scope)
            build_there = partial(BuildJob(store, used, consolidation, scope).run, told, running)
            if not running.is_this_process:  # each worker stores its part: all or none
                graphs.require_buildable(told, extractor, graph, scope)
            failed, stopped = _done(build_here if running.is_this_process else build_there)
            indexer_of(graph, vectors, text_encoder).drain(progress=True)
            if embeddings is not None and checkpoint is not None:
                folder = defaults.checkpoint_folder(checkpoint, graph, text_encoder.model_name)
                writer = RefreshJob(store, index, used, str(folder)).writer(graph.counts_of_type(EPISODE), running)
                embeddings.update(progress="refresh", writer=writer)
                defaults.remember_checkpoint(graph, folder, text_encoder.model_name)
            notes.insert(0, _held(graph, loaded))
    notes += [f"v1 will answer questions, since v2 cannot be used: {missing}"] if missing else []
    _conclude(extractor, stopped, [*notes, *map(printable, [*_skipped(forgotten), *_failures(failed)])])
    if failed:
        raise SystemExit(1)


def _foresee(corpus: Corpus, extractor: Extractor, store: str, scope: Scope) -> None:
    """Print what would be built, and what it would cost."""
    from locigraph.assembly import graphs, opening
    from locigraph.scripts.console.terminal import spaces_list

    with opening.present_store(store) as present:
        print(spaces_list(corpus.conversations, frozenset() if present is None else {*present.spaces()}))
        print(graphs.foreseen(corpus, extractor, present, scope))


def _conclude(extractor: Extractor, stopped: LanguageModelError | None, notes: Sequence[str]) -> None:
    """Print what language models cost, and the notes; raises what has stopped them."""
    from locigraph.consolidation.protocols import MeteredExtractor

    if isinstance(extractor, MeteredExtractor):
        for line in extractor.ledger.lines():
            print(line)
    if stopped is not None:
        raise stopped
    print("\n".join(notes))


def _read(settings: CorpusSettings, store: str, *, redact: bool) -> Corpus:
    """Read the corpus, and print what is to be said of it."""
    from locigraph.assembly import graphs, opening
    from locigraph.scripts.console.terminal import printable

    corpus = opening.read_corpus(settings, store=store)
    for note in corpus.notes:
        print(printable(note))
    return graphs.redacted(corpus) if redact else corpus


def _done(build: Callable[[], Failures]) -> tuple[Failures, LanguageModelError | None]:
    """What failed, and the limit or outage that ended it early: what is done is indexed then, so it can be searched."""
    from locigraph.consolidation.errors import LanguageModelError

    try:
        return build(), None
    except LanguageModelError as error:
        return {}, error


def _held(graph: Store, corpus: Corpus) -> str:
    """How many nodes of each type the conversations of a corpus have in a graph."""
    known = {*graph.spaces()}
    spaces = [conversation.space for conversation in corpus.conversations if conversation.space in known]
    counts = sum(map(graph.node_counts, spaces), Counter[str]())
    held = ", ".join(f"{n} {t}" for t, n in sorted(counts.items()))
    built = counted(len(spaces), "space")
    of_all = built if len(spaces) == len(known) else f"{len(spaces)} of {counted(len(known), 'space')}"
    return f"{of_all} in {graph.url}: {held or 'no nodes'}"


def _skipped(forgotten: Mapping[SpaceId, Collection[TurnId]]) -> Iterator[str]:
    """A line for each space of which forgotten turns were skipped."""
    for space, number in {space: len(gone) for space, gone in forgotten.items() if gone}.items():
        cure = f"to allow this again, run locigraph forget --restore --space {shlex.quote(space)}, then build again"
        yield f"{space}: {counted(number, 'forgotten turn')} skipped; {cure}"


def _failures(failed: Mapping[SpaceId, Sequence[TurnFailure]]) -> Iterator[str]:
    """A line for each space of which turns failed."""
    for space, failures in failed.items():
        first = f"{failures[0].turn_id} ({failures[0].error})"
        said = f"{space}: {counted(len(failures), 'turn')} failed and kept only the text, for example {first}"
        yield f"{said}; retry with --retry_failed true"

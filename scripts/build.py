"""``locigraph build``: turn conversations into a graph and its index."""

from __future__ import annotations

from locigraph.scripts.assembly.settings import (
    DEFAULT,
    REMEMBERED,
    CorpusSettings,
    EncoderSettings,
    IndexSettings,
    LLMSettings,
)


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
) -> None:
    """Read conversations, consolidate every turn into the graph, and index it. Can be interrupted and run again.

    Files may hold new sessions, further turns of known ones, or everything again; forgotten turns are skipped.

    Exits with code 1 if turns failed: they can be found by their own words, but no facts were extracted from them.

    Args:
        corpus: Conversations to read.
        consolidation: Extractor that builds the graph: <extractors>.
        store: SQLite file of the graph, or the SQLAlchemy URL of another database; only SQLite is tested.
        index: Vector index.
        encoder: Text encoder.
        checkpoint: Checkpoint whose graph embeddings are kept up to date, for v2; ``default`` for the one that the
            store remembers, or the shipped one; null for none.
        llm: Language models, for the extractor ``llm``.
        max_tokens: Limit on the tokens that these read and write for the graph, including earlier runs; at the limit
            the command stops with exit code 3, and it continues when it is run again with a higher limit.
        max_cost: The same limit for the cost, in the currency of the prices.
        dry_run: Whether to only report what would be built and what it would cost, without calling models or writing
            anything.
        redact: Whether to replace what looks like a password, key or card number before anything is stored.
        retry_failed: Whether to try failed turns again.
        user: User to whom the conversations belong, for ``locigraph recall --user``; null sets none.
        agent: Agent to which the conversations belong, for ``locigraph recall --agent``; null sets none.
    """
    import shlex
    from collections import Counter

    from locigraph.consolidation.errors import LanguageModelError
    from locigraph.consolidation.protocols import MeteredExtractor
    from locigraph.kg.counts import counted
    from locigraph.kg.store import Store, TurnFailure
    from locigraph.kg.types import Scope, SpaceId
    from locigraph.scripts.assembly import defaults, exports, graphs, opening
    from locigraph.scripts.assembly.language_models import clients_of
    from locigraph.scripts.assembly.search_parts import indexer_of
    from locigraph.scripts.console.terminal import printable, spaces_list

    loaded = opening.read_corpus(corpus, store=store)
    for note in loaded.notes:
        print(printable(note))
    if redact:
        loaded = graphs.redacted(loaded)
    clients = clients_of(llm, max_tokens=max_tokens, max_cost=max_cost)
    extractor = graphs.extractor_for(consolidation, loaded, clients)
    if dry_run:
        with opening.present_store(store) as present:
            print(spaces_list(loaded.conversations, frozenset() if present is None else {*present.spaces()}))
            print(graphs.foreseen(loaded, extractor, present))
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
                graphs.make_failed_pending(loaded, graph)
            failed, stopped = dict[SpaceId, list[TurnFailure]](), None
            try:
                failed = graphs.build_graph(told, extractor, graph, text_encoder, Scope(user, agent))
            except LanguageModelError as error:  # a limit or an outage: what is done is indexed, so it can be searched
                stopped = error
            indexer_of(graph, vectors, text_encoder).drain(progress=True)
            if embeddings is not None and checkpoint is not None:
                embeddings.update(progress="refresh")
                defaults.remember_checkpoint(graph, defaults.checkpoint_folder(checkpoint, graph))
            known = {*graph.spaces()}
            counts: Counter[str] = Counter()
            for conversation in loaded.conversations:
                counts += graph.node_counts(conversation.space) if conversation.space in known else Counter()
    if isinstance(extractor, MeteredExtractor):
        for line in extractor.ledger.lines():
            print(line)
    if stopped is not None:
        raise stopped
    held = ", ".join(f"{n} {t}" for t, n in sorted(counts.items()))
    built = sum(conversation.space in known for conversation in loaded.conversations)
    of_all = counted(built, "space") if built == len(known) else f"{built} of {counted(len(known), 'space')}"
    print(f"{of_all} in {graph.url}: {held or 'no nodes'}")
    notes += [f"v1 will answer questions, since v2 cannot be used: {missing}"] if missing else []
    for note in notes:
        print(note)
    for space, number in {space: len(gone) for space, gone in forgotten.items() if gone}.items():
        cure = f"to allow this again, run locigraph forget --restore --space {shlex.quote(space)}, then build again"
        print(printable(f"{space}: {counted(number, 'forgotten turn')} skipped; {cure}"))
    for space, failures in failed.items():
        first = f"{failures[0].turn_id} ({failures[0].error})"
        said = f"{space}: {counted(len(failures), 'turn')} failed and kept only the text, for example {first}"
        print(printable(f"{said}; retry with --retry_failed true"))
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

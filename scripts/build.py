"""``locigraph build``: conversations into a graph and its index."""

from __future__ import annotations

from locigraph.scripts.settings import CorpusSettings, EncoderSettings, IndexSettings, LLMSettings


def build(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    consolidation: str = "rules",
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
    llm: LLMSettings = LLMSettings(),
    max_tokens: int | None = None,
    max_cost: float | None = None,
    dry_run: bool = False,
    redact: bool = False,
    retry_failed: bool = False,
) -> None:
    """Read conversations, consolidate every turn into the graph, and index it. Can be interrupted and run again.

    Exits with code 1 when turns failed: they are found by their own words, but no fact was drawn from them.

    Args:
        corpus: What to read.
        consolidation: Extractor that makes the graph: <extractors>.
        store: SQLite file or SQLAlchemy URL of the graph.
        index: Vector index.
        encoder: Text encoder.
        llm: Language models, for the extractor ``llm``.
        max_tokens: Most tokens that this graph may cost, earlier runs included; then the command stops with code 3, and
            goes on when it is run again with a higher number. A reply may go beyond it by its own length.
        max_cost: The same in the currency of the prices.
        dry_run: Whether only to say how many calls and tokens it would take, about; nothing is asked or written.
        redact: Whether to replace what looks like a password, key or card number before anything is stored.
        retry_failed: Whether to try failed turns again.
    """
    from collections import Counter

    from locigraph.consolidation.protocols import Accounted
    from locigraph.kg.store import Store
    from locigraph.scripts import graphs, opening
    from locigraph.scripts.language_models import clients_of
    from locigraph.scripts.strategies import indexer_of

    read = opening.read_corpus(corpus)
    if redact:
        read = graphs.redacted(read)
    clients = clients_of(llm, max_tokens=max_tokens, max_cost=max_cost)
    extractor = graphs.extractor_for(consolidation, read, clients)
    if dry_run:
        print(graphs.foreseen(read, extractor, store))
        return
    text_encoder = opening.text_encoder(encoder)
    with Store(store) as graph, opening.vector_index(index, store) as vectors:
        if retry_failed:
            for conversation in read.conversations:
                if conversation.space in graph.spaces():
                    for failure in graph.failures(conversation.space):
                        graph.retry_turn(conversation.space, failure.turn_id)
        failed = graphs.build_graph(read, extractor, graph, text_encoder)
        indexer_of(graph, vectors, text_encoder).drain(progress=True)
        counts: Counter[str] = Counter()
        for conversation in read.conversations:
            counts += graph.node_counts(conversation.space)
    if isinstance(extractor, Accounted):
        for stage, spent in extractor.ledger.by_stage().items():
            print(f"{stage}: {spent}")
    print(f"{len(read.conversations)} spaces in {store}: " + ", ".join(f"{n} {t}" for t, n in sorted(counts.items())))
    for space, failures in failed.items():
        print(
            f"{space}: {len(failures)} turns failed and are kept as they were said, such as {failures[0].turn_id} "
            f"({failures[0].error}); retry with --retry_failed true"
        )
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

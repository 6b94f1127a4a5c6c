"""``locigraph build``: conversations into a graph and its index."""

from __future__ import annotations

from locigraph.scripts.settings import CorpusSettings, EncoderSettings, IndexSettings


def build(
    *,
    corpus: CorpusSettings = CorpusSettings(),
    consolidation: str = "rules",
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
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
        retry_failed: Whether to try failed turns again.
    """
    from collections import Counter

    from locigraph.kg.store import Store
    from locigraph.scripts import graphs, opening
    from locigraph.scripts.strategies import indexer_of

    read = opening.read_corpus(corpus)
    extractor = graphs.extractor_for(consolidation, read)
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

"""``locigraph verify``: does the index say what the store says?"""

from __future__ import annotations

from locigraph.scripts.settings import EncoderSettings, IndexSettings


def verify(
    *,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
    rebuild: bool = False,
) -> None:
    """Compare the index of descriptions with the store, row by row and vector by vector.

    Graph embeddings are verified by each refresh, whose collection's name changes with the graph.

    Args:
        store: The graph, which is the truth.
        index: Vector index.
        encoder: Text encoder the graph was built with.
        rebuild: Whether to make the collection of descriptions anew from the store first.
    """
    from locigraph.kg.errors import LocigraphError
    from locigraph.scripts import opening
    from locigraph.scripts.strategies import indexer_of

    text_encoder = opening.text_encoder(encoder)
    with opening.existing_store(store, access="write") as graph, opening.vector_index(index, store) as vectors:
        indexer = indexer_of(graph, vectors, text_encoder)
        if rebuild:
            print(f"{indexer.rebuild(progress=True)} rows rebuilt")
        else:
            indexer.drain(progress=True)
        differences = indexer.verify()
        missing = opening.partial_memory(graph, graph.spaces())
    for found in differences:
        state = "clean" if found.is_clean else "differs"
        print(f"{found.space}: {state} ({found.missing} missing, {found.surplus} surplus, {found.changed} changed)")
    if not all(found.is_clean for found in differences):
        missing = ["the index differs from the store; run locigraph verify --rebuild true", *missing]
    if missing:
        raise LocigraphError("; ".join(missing))


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

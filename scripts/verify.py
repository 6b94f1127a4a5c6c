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
    """Check the store, and compare the index of descriptions with it: every row, its turns, times and vector.

    Graph embeddings are verified by each refresh, whose collection's name changes with the graph.

    Args:
        store: The graph, which is the truth.
        index: Vector index.
        encoder: Text encoder the graph was built with.
        rebuild: Whether to make the index anew from the store first, whatever state it is in. Graph embeddings are
            gone until the next refresh.
    """
    from locigraph.kg.errors import LocigraphError
    from locigraph.scripts import opening
    from locigraph.scripts.strategies import indexer_of

    text_encoder = opening.text_encoder(encoder)
    with opening.existing_store(store, access="write") as graph, opening.vector_index(index, store) as vectors:
        broken = graph.faults()
        if broken:
            raise LocigraphError(
                f"store {store!r} is damaged ({'; '.join(broken)}); restore it from a copy, or build anew"
            )
        indexer = indexer_of(graph, vectors, text_encoder)
        if rebuild:
            print(f"{indexer.rebuild(progress=True)} rows rebuilt; for v2 run locigraph refresh too")
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

"""``locigraph forget``: erase turns and all that was drawn from them."""

from __future__ import annotations

from locigraph.scripts.settings import EncoderSettings, IndexSettings


def forget(
    *,
    space: str,
    turns: list[str] | None = None,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
) -> None:
    """Erase turns, the nodes drawn from them and their rows in every index; without turns, the whole space.

    Args:
        space: Whose memory.
        turns: Ids of the turns; null erases the space.
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with.
    """
    from locigraph.kg.types import SpaceId, TurnId
    from locigraph.scripts import opening
    from locigraph.scripts.strategies import indexer_of

    text_encoder = opening.text_encoder(encoder)
    with opening.existing_store(store, access="write") as graph, opening.vector_index(index, store) as vectors:
        indexer = indexer_of(graph, vectors, text_encoder)
        indexer.drain()  # what a forgetting that was cut has left
        if turns is None:
            erased = graph.forget_space(SpaceId(space))
        else:
            erased = graph.forget(SpaceId(space), [TurnId(turn) for turn in turns])
        indexer.drain()
    print(f"{erased} nodes of {space} erased; run locigraph refresh, since their neighbours remember them")


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

"""``locigraph forget``: erase turns and all that was drawn from them."""

from __future__ import annotations

from locigraph.scripts.settings import EncoderSettings, IndexSettings


def forget(
    *,
    space: str,
    turns: list[str] | None = None,
    whole_space: bool = False,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
) -> None:
    """Erase turns and the nodes drawn from them, or a whole space, and make the index anew without them.

    The store forgets first, whatever state the index is in. Can be interrupted and run again.

    Args:
        space: Whose memory.
        turns: Ids of the turns.
        whole_space: Whether to erase all turns of the space; then none are named.
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with.
    """
    from locigraph.kg.errors import LocigraphError, UnknownSpaceError
    from locigraph.kg.types import SpaceId, TurnId
    from locigraph.retrieval.errors import RetrievalError
    from locigraph.scripts import opening
    from locigraph.scripts.strategies import indexer_of

    if (turns is None) != whole_space:
        raise LocigraphError(f"space {space!r}: name --turns to erase, or erase all with --whole_space true")
    text_encoder = opening.text_encoder(encoder)
    with opening.existing_store(store, access="write") as graph:
        was_cut = graph.has_forgotten()  # an earlier forgetting, after the store forgot and before the index did
        try:
            if turns is None:
                erased = graph.forget_space(SpaceId(space), going=text_encoder.forget)
            else:
                named = [TurnId(turn) for turn in turns]
                held = {turn.turn_id for turn in graph.turns(SpaceId(space))}
                is_done = was_cut and not held & {*named}
                erased = 0 if is_done else graph.forget(SpaceId(space), named, going=text_encoder.forget)
        except UnknownSpaceError:
            if not was_cut:
                raise
            erased = 0
        try:
            with opening.vector_index(index, store) as vectors:
                indexer_of(graph, vectors, text_encoder).drain()
        except RetrievalError as error:
            raise LocigraphError(
                f"{erased} nodes of {space} are erased from the store, but not yet: {error}"
            ) from error
    done = "an earlier forgetting is complete now" if was_cut and not erased else f"{erased} nodes of {space} erased"
    print(f"{done}; run locigraph refresh before the next search with v2, whose vectors are gone with them")


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

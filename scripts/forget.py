"""``locigraph forget``: erase turns and all that was drawn from them."""

from __future__ import annotations

from locigraph.scripts.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings


def forget(
    *,
    space: str,
    turns: list[str] | str | None = None,
    yes: bool = False,
    restore: bool = False,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str | None = DEFAULT,
) -> None:
    """Erase turns and the nodes drawn from them, or a whole space, for good, and make the index anew without them.

    Forgotten turns stay forgotten: a later build with their file passes them over. The store forgets first, whatever
    state the index is in. Can be interrupted and run again.

    Args:
        space: Whose memory; locigraph spaces lists what a store holds.
        turns: Ids of the turns, separated by commas or as a list; null for all of the space, which needs --yes.
        yes: Whether to go on without the question that all turns of a space are worth.
        restore: Whether to undo instead: the turns, which are gone, may come back with the next build of their file.
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with.
        checkpoint: Checkpoint of the graph embeddings; ``default`` for the one that the store remembers, or the shipped
            one; null leaves them to a later refresh.
    """
    from locigraph.kg.errors import LocigraphError
    from locigraph.scripts.memory import Memory

    if isinstance(turns, str):
        turns = [name for each in turns.split(",") if (name := each.strip())]
    with Memory.open(store, index=index, encoder=encoder, checkpoint=checkpoint, access="write") as memory:
        if restore:
            count = memory.restore(space=space, turn_ids=turns)
            print(f"{count} forgotten turns of {space} may come back; run locigraph build with their file")
            return
        if turns is None and not yes:
            raise LocigraphError(f"space {space!r}: all of it would be erased for good; add --yes, or name --turns")
        erased = memory.forget(space=space, turn_ids=turns, whole_space=turns is None)
        print(f"{erased} nodes of {space} erased" if erased else "an earlier forgetting is complete now")


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

"""``locigraph drift``: report how far the graph embeddings in use differ from the present graph."""

from __future__ import annotations

from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings


def drift(
    *,
    space: str | None = None,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str | None = DEFAULT,
    json: bool = False,
) -> None:
    """Report the share of turns with no vector or an outdated one, and how far the outdated ones would move if updated.

    Nothing is changed.

    ``Memory.recall`` brings the spaces that it searches up to date, so drift arises between recalls: turns that were
    added since the last one are missing, and they have changed the word counts that weight all turns of their space.
    With a checkpoint other than the one in use every vector differs: the report says how far a ``locigraph refresh``
    with it would move them. Distances are cosine distances of the vectors that differ.

    Args:
        space: The space to report on; null for each space and for all of them together.
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with.
        checkpoint: Checkpoint that encodes the present graph; ``default`` for the one that the store remembers, or the
            shipped one.
        json: Whether to print JSON instead of lines: an object for each space, then one for all, whose space is null.
    """
    from json import dumps

    from locigraph.assembly import defaults, opening
    from locigraph.kg.counts import counted
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.types import SpaceId
    from locigraph.scripts.console.terminal import printable

    if checkpoint is None:
        raise LocigraphError(
            "checkpoint is null; drift compares with what a checkpoint encodes, so name one with --checkpoint"
        )
    named = opening.space_of(space, store)
    with opening.existing_store(store) as graph:
        if named is not None:
            graph.require_space(SpaceId(named))
        text_encoder = opening.text_encoder(defaults.encoder_settings(encoder, graph, checkpoint))

        from locigraph.training.live_embeddings import Drift  # imports PyTorch

        with opening.vector_index(index, graph, is_reader=True) as vectors:
            embeddings, reason = defaults.opened_embeddings(graph, vectors, text_encoder, checkpoint)
            if embeddings is None:
                raise LocigraphError(f"drift cannot be measured: {reason}")
            spaces = graph.spaces() if named is None else [SpaceId(named)]
            found: dict[str | None, Drift] = {each: embeddings.drift(each) for each in spaces}
    if space is None:
        found[None] = sum(found.values(), Drift())
    for name, each in found.items():
        counts = {"turns": each.turns, "missing": each.missing, "stale": each.stale, "surplus": each.surplus}
        if json:
            print(dumps({"space": name, **counts, "share": each.share, "distance": each.distances}))
            continue
        far = "  ".join(f"{what} {distance:.4f}" for what, distance in each.distances.items())
        turns = counted(each.turns, "turn")
        said = f"{each.share:.1%} of {turns} ({each.missing} missing, {each.stale} stale), {each.surplus} gone"
        print(printable(f"{'all spaces' if name is None else name}: {said}; distance {far}"))

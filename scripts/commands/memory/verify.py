"""``locigraph verify``: checks the store, and compares both indexes with it."""

from __future__ import annotations

from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings


def verify(
    *,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str | None = DEFAULT,
    rebuild: bool = False,
) -> None:
    """Check the store, its positions and NEXT edges, and compare both indexes with it: every row and vector.

    Exits with code 1 if something differs or turns failed. Pending work is not a difference: rows that are due are
    written to the indexes first, and turns that an interrupted command left pending are only reported. Where store or
    index cannot be written, as on a read-only disk, spaces with due rows are only reported too.

    Args:
        store: The graph; it is the source of truth for the indexes.
        index: Vector index.
        encoder: Text encoder the graph was built with.
        checkpoint: Checkpoint whose graph embeddings are compared; ``default`` for the one that the store remembers, or
            the shipped one; null for none.
        rebuild: Whether to rebuild the index from the store first, whatever state it is in.
    """
    from locigraph.assembly import defaults, opening
    from locigraph.assembly.search_parts import indexer_of
    from locigraph.kg.counts import counted
    from locigraph.kg.errors import LocigraphError
    from locigraph.scripts.console.terminal import printable

    is_reader = not rebuild and not opening.are_writable(store, index)
    with opening.existing_store(store, access="read" if is_reader else "write") as graph:
        text_encoder = opening.text_encoder(defaults.encoder_settings(encoder, graph, checkpoint))
        with opening.vector_index(index, graph, is_reader=is_reader) as vectors:
            broken = graph.faults()
            if broken:
                raise LocigraphError(
                    f"store {store!r} is damaged ({'; '.join(broken)}); restore it from a copy, or build it again"
                )
            indexer = indexer_of(graph, vectors, text_encoder)
            if rebuild:
                print(f"{counted(indexer.rebuild(progress=True), 'row')} rebuilt")
            elif not is_reader:
                indexer.drain(progress=True)
            found = indexer.verify()
            waiting = {each.space: graph.outbox_size(each.space) for each in found}  # nothing after a drain
            differences = {"": [each for each in found if not waiting[each.space]]}
            due = [f"{space}: {counted(rows, 'row')} due to the index" for space, rows in waiting.items() if rows]
            if checkpoint is not None:
                embeddings, reason = defaults.opened_embeddings(graph, vectors, text_encoder, checkpoint)
                if embeddings is None:
                    print(f"no graph embeddings were compared: {reason}")
                else:
                    found, waiting_spaces = embeddings.verify_all(is_reader=is_reader)
                    due += [f"{each}: graph embeddings due" for each in waiting_spaces]
                    differences[" graph embeddings"] = found
            wrong = [
                f"{space}: {fault}; run locigraph build with the file of the conversation"
                for space, fault in graph.misplaced().items()
            ]
            if due:
                due.append("store or index cannot be written here; run locigraph verify again where they can")
            partial = opening.partial_memory(graph, graph.standings())
            has_failed = any(graph.failures(space) for space in graph.spaces())
    for kind, each_space in differences.items():
        for each in each_space:
            state = "clean" if each.is_clean else "differs"
            counts = f"{each.missing} missing, {each.surplus} surplus, {each.changed} changed"
            print(printable(f"{each.space}{kind}: {state} ({counts})"))
    if not all(each.is_clean for each_space in differences.values() for each in each_space):
        wrong.insert(0, "the index differs from the store; run locigraph verify --rebuild true")
    if wrong or due or partial:
        print(printable("\n".join([*wrong, *due, *partial])))
    if wrong or has_failed:
        raise SystemExit(1)

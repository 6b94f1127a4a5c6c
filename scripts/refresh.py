"""``locigraph refresh``: write the graph embeddings of all turns into the index."""

from __future__ import annotations

from locigraph.scripts.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings


def refresh(
    *,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str = DEFAULT,
    device: str = "cpu",
) -> None:
    """Encode the graph with a checkpoint, write its turns into a new collection, verify it and put it in use.

    Needed only for a new checkpoint: ``locigraph build`` and ``Memory`` keep the embeddings in use up to date.

    Args:
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with.
        checkpoint: Folder of the checkpoint, which the store remembers from now on; ``default`` for the one that it
            remembers, or the shipped one; ``shipped`` for the shipped one, whatever the store remembers.
        device: torch device to encode on.
    """
    from locigraph.kg.counts import counted
    from locigraph.scripts.assembly import defaults, opening

    opening.check_device(device)
    with opening.existing_store(store, access="write") as graph:
        used = defaults.encoder_settings(encoder, graph, checkpoint)
        text_encoder = opening.text_encoder(used)
        folder = defaults.checkpoint_folder(checkpoint, graph)

        from locigraph.scripts.assembly.search_parts import indexer_of  # imports the vector index

        with opening.vector_index(index, graph) as vectors:
            if graph.has_forgotten():  # then the index must be rebuilt first
                indexer_of(graph, vectors, text_encoder).drain()
            embeddings, _ = defaults.opened_embeddings(graph, vectors, text_encoder, str(folder), device=device)
            assert embeddings is not None  # a named checkpoint that cannot be used has raised an error
            done = embeddings.refresh(progress="refresh")
        defaults.remember_encoder(graph, used, text_encoder)
        defaults.remember_checkpoint(graph, folder)
    print(
        f"{counted(done.turns, 'turn')} in {done.collection} (checkpoint {embeddings.version}), {done.written} written "
        f"now; the index finds {done.sample_recall:.0%} of the exact neighbours"
    )


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

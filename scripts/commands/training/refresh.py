"""``locigraph refresh``: write the graph embeddings of all turns into the index."""

from __future__ import annotations

from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings


def refresh(
    *,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str = DEFAULT,
    device: str = "cpu",
    workers: int = 1,
    ray: str | None = None,
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
        workers: Number of processes that encode and write; more than one needs a store and an index on servers, and the
            extra ``ray``.
        ray: Address of a Ray cluster that runs the workers; null for this machine.
    """
    from locigraph.assembly import defaults, opening
    from locigraph.assembly.batch_jobs import workers_of
    from locigraph.kg.counts import counted
    from locigraph.kg.schema import EPISODE

    opening.check_device(device)
    running = workers_of(workers, ray, store, index)
    with opening.existing_store(store, access="write") as graph:
        used = defaults.encoder_settings(encoder, graph, checkpoint)
        text_encoder = opening.text_encoder(used)
        # Absolute, since workers run in other folders.
        folder = defaults.checkpoint_folder(checkpoint, graph, text_encoder.model_name).absolute()

        from locigraph.assembly.refresh_job import RefreshJob
        from locigraph.assembly.search_parts import indexer_of  # imports the vector index

        with opening.vector_index(index, graph) as vectors:
            if graph.has_forgotten():  # then the index must be rebuilt first
                indexer_of(graph, vectors, text_encoder).drain()
            embeddings, _ = defaults.opened_embeddings(graph, vectors, text_encoder, str(folder), device=device)
            assert embeddings is not None  # a named checkpoint that cannot be used has raised an error
            job = RefreshJob(store, index, used, str(folder), device)
            writer = job.writer(graph.counts_of_type(EPISODE), running)
            done = embeddings.refresh(progress="refresh", writer=writer)
        defaults.remember_encoder(graph, used, text_encoder)
        defaults.remember_checkpoint(graph, folder, text_encoder.model_name)
    print(
        f"{counted(done.turns, 'turn')} in {done.collection} (checkpoint {embeddings.version}), {done.written} written "
        f"now; the index finds {done.sample_recall:.0%} of the exact neighbours"
    )

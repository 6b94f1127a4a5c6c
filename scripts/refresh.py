"""``locigraph refresh``: graph embeddings of all turns into the index."""

from __future__ import annotations

from locigraph.scripts.settings import EncoderSettings, IndexSettings


def refresh(
    *,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
    checkpoint: str = "data/train/checkpoint",
    device: str = "cpu",
) -> None:
    """Encode the graph with a checkpoint, write its turns into a new collection, verify it and put it in use.

    Args:
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with.
        checkpoint: Folder of the checkpoint.
        device: torch device to encode on.
    """
    from pathlib import Path

    from locigraph.scripts import opening
    from locigraph.training.checkpoint import load_checkpoint
    from locigraph.training.embedding_refresh import refresh as run
    from locigraph.training.snapshots import View

    opening.check_device(device)
    text_encoder = opening.text_encoder(encoder)
    loaded = load_checkpoint(Path(checkpoint), text_encoder=text_encoder.model_id)
    with opening.existing_store(store) as graph, opening.vector_index(index, store) as vectors:
        done = run(
            vectors,
            loaded,
            [View(space) for space in graph.spaces()],
            # Read anew each time: all graphs of a large store would not fit in memory.
            lambda view: graph.snapshot(view.space, embedding_model=text_encoder.model_id),
            device=device,
        )
    print(
        f"{done.turns} turns in {done.collection} (checkpoint {loaded.version}), {done.written} written now; "
        f"index finds {done.sample_recall:.0%} of the exact neighbours"
    )


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

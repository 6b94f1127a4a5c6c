"""``locigraph explain``: why v2 found what it found."""

from __future__ import annotations

from locigraph.scripts.settings import EncoderSettings


def explain(
    question: str,
    *,
    space: str,
    store: str = "data/graph.sqlite",
    encoder: EncoderSettings = EncoderSettings(),
    checkpoint: str = "data/train/checkpoint",
    as_of: str | None = None,
    top_k: int = 3,
    influences: int = 3,
) -> None:
    """Take the scores of the best turns apart: own meaning and words, neighbours by relation, speaker, date.

    Each neighbour is checked by deleting its edge and computing the score anew.

    Args:
        question: What to look for.
        space: Whose memory.
        store: The graph.
        encoder: Text encoder the graph was built with.
        checkpoint: Folder of the checkpoint.
        as_of: Time (ISO 8601) whose knowledge may be used; null for now.
        top_k: Number of turns to explain.
        influences: Neighbours to show for each.
    """
    from pathlib import Path

    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.types import SpaceId
    from locigraph.scripts import opening, options
    from locigraph.scripts.terminal import explanation_table
    from locigraph.training.checkpoint import load_checkpoint
    from locigraph.training.explanation import explain as take_apart

    if top_k < 1 or influences < 0:
        raise LocigraphError(f"top_k is {top_k} and influences {influences}; expected at least 1, and 0 or more")
    time = options.parse_time(as_of)
    text_encoder = opening.text_encoder(encoder)
    with opening.existing_store(store) as graph:
        graph.require_space(SpaceId(space))
        missing = opening.partial_memory(graph, [SpaceId(space)])
        loaded = load_checkpoint(Path(checkpoint), text_encoder=text_encoder.model_id)
        snapshot = graph.snapshot(SpaceId(space), as_of=time, embedding_model=text_encoder.model_id)
    found = take_apart(
        loaded,
        snapshot,
        question,
        embed=text_encoder.encode,
        top_k=top_k,
        asked_at=time,
    )
    print("\n".join([explanation_table(found, influences=influences), *missing]))


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

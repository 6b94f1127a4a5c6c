"""``locigraph recall``: ask the memory."""

from __future__ import annotations

from typing import Literal

from locigraph.scripts.settings import EncoderSettings, IndexSettings


def recall(
    question: str,
    *,
    space: str,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
    strategy: Literal[
        "v1", "v1-k60", "v1-adapted", "v2", "sum", "sum-adapted", "dense", "dense-adapted", "bm25"
    ] = "v1",
    checkpoint: str = "data/train/checkpoint",
    reranker: str | None = None,
    as_of: str | None = None,
    top_k: int = 10,
) -> None:
    """Answer a question with the memories of a space: scores per signal and source turns.

    Args:
        question: What to look for.
        space: Whose memory.
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with; its adapter is used by v2 and the strategies named ``-adapted``.
        strategy: ``v2`` needs a checkpoint and a refresh.
        checkpoint: Folder of the checkpoint, for ``v2``.
        reranker: Cross-encoder (hub name or folder) that scores the best hits again; null for none.
        as_of: Time (ISO 8601) whose knowledge may be used; null for now. v2 leaves out later turns, but the
            vectors of earlier ones were made of the present graph: what came later has coloured them.
        top_k: Number of memories to show.
    """
    from contextlib import ExitStack
    from pathlib import Path

    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.types import SpaceId
    from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
    from locigraph.scripts.parts import opening, options, retrieving
    from locigraph.scripts.parts.strategies import WITH_INDEX, require_adapter
    from locigraph.scripts.tables import hits_table
    from locigraph.training.checkpoint import load_checkpoint
    from locigraph.training.inference import CheckpointQueryEncoder
    from locigraph.training.refresh import GRAPH_ALIAS

    if top_k < 1:
        raise LocigraphError(f"top_k is {top_k}; at least 1 memory can be shown")
    require_adapter([strategy], encoder.adapter)
    time = options.parse_time(as_of)
    text_encoder = opening.text_encoder(encoder)
    with ExitStack() as opened:
        graph = opened.enter_context(opening.existing_store(store))
        graph.require_space(SpaceId(space))
        # Milvus Lite lets one process at a time in: who needs no vectors need not wait for another.
        vectors = None
        if strategy in WITH_INDEX:
            vectors = opened.enter_context(opening.vector_index(index, store))
        searching = retrieving.search_parts(graph, text_encoder, [strategy], spaces=[SpaceId(space)], index=vectors)
        with searching as strategies:
            if strategy == "v2" and vectors is not None:
                loaded = load_checkpoint(Path(checkpoint), text_encoder=text_encoder.model_id)
                collection = vectors.open(GRAPH_ALIAS)
                turns, held = graph.node_counts(SpaceId(space))["episode"], collection.count(space)
                if held < turns:
                    raise LocigraphError(
                        f"space {space!r}: {held} of {turns} turns have graph embeddings; run locigraph refresh with "
                        f"checkpoint {checkpoint!r}"
                    )
                strategies["v2"] = GraphEmbeddingRetriever(
                    collection,
                    CheckpointQueryEncoder(loaded, text_encoder.encode),
                    retrieving.texts_of(graph),
                )
            retriever = retrieving.second_look(reranker)(strategies[strategy])
            result = retriever.retrieve(question, SpaceId(space), as_of=time, top_k=top_k)
    print(hits_table(result.hits[:top_k]))
    print(
        f"{strategy}: query encoded in {result.timing.encode_ms:.0f} ms, searched in {result.timing.search_ms:.0f} ms"
    )


if __name__ == "__main__":
    import sys
    from pathlib import Path

    from locigraph.scripts.cli import main

    main([Path(__file__).stem, *sys.argv[1:]])

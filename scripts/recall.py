"""``locigraph recall``: ask the memory."""

from __future__ import annotations

from locigraph.scripts.settings import EncoderSettings, IndexSettings


def recall(
    question: str,
    *,
    space: str,
    store: str = "data/graph.sqlite",
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = EncoderSettings(),
    strategy: str = "v1",
    checkpoint: str = "data/train/checkpoint",
    reranker: str | None = None,
    as_of: str | None = None,
    top_k: int = 10,
    budget_tokens: int | None = None,
) -> None:
    """Answer a question with the memories of a space: scores for each signal, and source turns.

    Args:
        question: What to look for.
        space: The space whose memory is asked.
        store: The graph.
        index: Vector index.
        encoder: Text encoder the graph was built with; v2 and the strategies named ``-adapted`` use its adapter.
        strategy: One of <recalled>. v2 needs a checkpoint and a refresh.
        checkpoint: Folder of the checkpoint, for ``v2``.
        reranker: Cross-encoder (hub name or folder) that scores the best hits again; null for none.
        as_of: Time (ISO 8601) whose knowledge may be used; null for now. v2 leaves out later turns, but the
            vectors of earlier ones were made of the present graph: what came later has coloured them.
        top_k: Number of memories to show.
        budget_tokens: Tokens of a context: the best memories that fit into it, with dates and source turns, in the
            order in which they were said. null for ``top_k`` memories with their scores.
    """
    from contextlib import ExitStack

    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.types import SpaceId
    from locigraph.retrieval.packing import Budget, pack
    from locigraph.retrieval.protocols import Arranges, Retriever
    from locigraph.scripts import opening, options
    from locigraph.scripts.strategies import STRATEGIES, built_strategies, require_adapter, reranked
    from locigraph.scripts.terminal import hits_table

    row = STRATEGIES[strategy]
    if not row.in_recall:
        raise LocigraphError(f"strategy {strategy!r} is for locigraph evaluate; recall has it as v2 with --checkpoint")
    if top_k < 1:
        raise LocigraphError(f"top_k is {top_k}; at least 1 memory can be shown")
    if budget_tokens is not None and budget_tokens < 1:
        raise LocigraphError(f"budget_tokens is {budget_tokens}; a context has room for at least 1 token")
    require_adapter([strategy], encoder.adapter)
    time = options.parse_time(as_of)
    text_encoder = opening.text_encoder(encoder)
    with ExitStack() as opened:
        graph = opened.enter_context(opening.existing_store(store))
        graph.require_space(SpaceId(space))
        # Milvus Lite lets one process at a time in: who needs no vectors need not wait for another.
        vectors = opened.enter_context(opening.vector_index(index, store, must_exist=True)) if row.needs_index else None
        if row.is_claimant:
            from locigraph.scripts.live import graph_retriever

            assert vectors is not None
            retriever: Retriever = graph_retriever(graph, vectors, text_encoder, checkpoint, SpaceId(space))
        else:
            building = built_strategies(graph, text_encoder, [strategy], spaces=[SpaceId(space)], index=vectors)
            retriever = opened.enter_context(building)[strategy]
        # A memory takes at least about ten tokens, so that no more of them can fit.
        wanted = top_k if budget_tokens is None else max(top_k, 1 + budget_tokens // 10)
        result = reranked(reranker)(retriever).retrieve(question, SpaceId(space), as_of=time, top_k=wanted)
        if budget_tokens is None:
            shown = hits_table(result.hits[:top_k])
        else:
            order = None
            if isinstance(retriever, Arranges):
                order = retriever.arrange(question, result.hits, SpaceId(space), time)
            read = graph.snapshot(SpaceId(space), as_of=time)
            context = pack(result.hits, read, Budget(tokens=budget_tokens), order=order)
            shown = f"{context}\n{context.tokens} of {budget_tokens} tokens; {context.left_out} memories did not fit"
        missing = opening.partial_memory(graph, [SpaceId(space)])
    print("\n".join([shown, *missing]))
    print(
        f"{strategy}: query encoded in {result.timing.encode_ms:.0f} ms, searched in {result.timing.search_ms:.0f} ms"
    )


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

"""``locigraph reflect``: derive insights that several facts show together."""

from __future__ import annotations

from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings, ModelSettings


def reflect(
    *,
    store: str = "data/graph.sqlite",
    once: bool = False,
    interval: float | None = None,
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str | None = DEFAULT,
    llm: ModelSettings = ModelSettings(),
    max_tokens: int | None = None,
    max_cost: float | None = None,
    retry_failed: bool = False,
) -> None:
    """Derive reflections from facts and events by a language model, and archive those whose facts are no longer true.

    May run at the same time as a build. SIGTERM ends it after the current change.

    Args:
        store: The graph.
        once: States that the command ends after one pass, as it does unless ``interval`` is given.
        interval: Seconds between two passes over the store, to run as a service.
        index: Vector index, which is brought up to date after each pass.
        encoder: Text encoder; by default the one that the graph was built with.
        checkpoint: Checkpoint whose graph embeddings are kept up to date, for v2; ``default`` for the one that the
            store remembers, or the shipped one; null for none.
        llm: Language model that derives them from the facts that it has not seen yet; without one, reflections are only
            archived.
        max_tokens: Limit on the tokens that all commands together use for this store; at the limit this command stops
            with exit code 3.
        max_cost: The same limit for the cost, in the currency of the prices.
        retry_failed: Whether to try again with facts for which the model's replies were unusable.
    """
    from locigraph.assembly.language_models import client_if_named
    from locigraph.consolidation.reflection import Reflected, Reflector
    from locigraph.kg.embedded_text import TextEncoder
    from locigraph.kg.store import Store
    from locigraph.kg.types import SpaceId
    from locigraph.scripts.commands.memory import second_passes

    client = client_if_named("reflection", llm, max_tokens=max_tokens, max_cost=max_cost)
    if client is None:
        print("no language model is named (--llm.model), so nothing is derived; what is untrue is archived")

    retries = second_passes.first_passes(retry_failed)

    def work(graph: Store, plain: TextEncoder, space: SpaceId, is_stopped: second_passes.Stopped) -> Reflected:
        return Reflector(graph, plain).run(space, client, retry_failed=retries(space), is_stopped=is_stopped)

    target = second_passes.Target(store, index, encoder, checkpoint)
    second_passes.run("reflect", target, Reflected(), work, once=once, interval=interval, client=client)

"""``locigraph classify``: put events and facts under categories."""

from __future__ import annotations

from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings, ModelSettings


def classify(
    *,
    store: str = "data/graph.sqlite",
    once: bool = False,
    interval: float | None = None,
    threshold: float = 0.12,
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str | None = DEFAULT,
    llm: ModelSettings = ModelSettings(),
    max_tokens: int | None = None,
    max_cost: float | None = None,
) -> None:
    """Assign every unclassified event and fact to the category that fits, and create categories where none fits.

    May run at the same time as a build. SIGTERM ends it after the current batch.

    Args:
        store: The graph.
        once: States that the command ends after one pass, as it does unless ``interval`` is given.
        interval: Seconds between two passes over the store, to run as a service.
        threshold: Smallest cosine between a node and the mean of a category at which the node belongs to the category.
        index: Vector index, which is brought up to date after each pass.
        encoder: Text encoder; by default the one that the graph was built with.
        checkpoint: Checkpoint whose graph embeddings are kept up to date, for v2; ``default`` for the one that the
            store remembers, or the shipped one; null for none.
        llm: Language model that names new categories; without one they are named by their key terms.
        max_tokens: Limit on the tokens that all commands together use for this store; at the limit this command stops
            with exit code 3.
        max_cost: The same limit for the cost, in the currency of the prices.
    """
    from locigraph.assembly import options
    from locigraph.assembly.language_models import client_if_named
    from locigraph.consolidation.classification import Classified, Classifier, LLMNamer, key_terms
    from locigraph.kg.embedded_text import TextEncoder
    from locigraph.kg.store import Store
    from locigraph.kg.types import SpaceId
    from locigraph.scripts.commands.memory import second_passes

    options.check_cosine(threshold)
    client = client_if_named("category", llm, max_tokens=max_tokens, max_cost=max_cost)

    def work(graph: Store, plain: TextEncoder, space: SpaceId, is_stopped: second_passes.Stopped) -> Classified:
        classifier = Classifier(graph, plain, threshold=threshold)
        if client is None:
            return classifier.run(space, key_terms, is_stopped=is_stopped)
        return classifier.run(space, LLMNamer(client, space), is_stopped=is_stopped)

    target = second_passes.Target(store, index, encoder, checkpoint)
    second_passes.run("classify", target, Classified(), work, once=once, interval=interval, client=client)

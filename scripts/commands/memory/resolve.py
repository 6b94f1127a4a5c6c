"""``locigraph resolve``: merge entities and concepts that mean the same."""

from __future__ import annotations

from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings


def resolve(
    *,
    store: str = "data/graph.sqlite",
    once: bool = False,
    interval: float | None = None,
    threshold: float = 0.92,
    index: IndexSettings = IndexSettings(),
    encoder: EncoderSettings = REMEMBERED,
    checkpoint: str | None = DEFAULT,
) -> None:
    """Merge entities and concepts whose names differ only in case, article or plural, or mean the same.

    The oldest one is kept; the others are archived as its aliases, with the node that they were merged into, the
    reason and the cosine. May run at the same time as a build. SIGTERM ends it after the current merge.

    Args:
        store: The graph.
        once: States that the command ends after one pass, as it does unless ``interval`` is given.
        interval: Seconds between two passes over the store, to run as a service.
        threshold: Smallest cosine of two names that mean the same, above 0 and up to 1.
        index: Vector index, which is brought up to date after each pass.
        encoder: Text encoder; by default the one that the graph was built with.
        checkpoint: Checkpoint whose graph embeddings are kept up to date, for v2; ``default`` for the one that the
            store remembers, or the shipped one; null for none.
    """
    from locigraph.assembly import options
    from locigraph.consolidation.merging import Merged, Merger
    from locigraph.kg.embedded_text import TextEncoder
    from locigraph.kg.store import Store
    from locigraph.kg.types import SpaceId
    from locigraph.scripts.commands.memory import second_passes

    options.check_cosine(threshold)

    def work(graph: Store, plain: TextEncoder, space: SpaceId, is_stopped: second_passes.Stopped) -> Merged:
        return Merger(graph, plain, threshold=threshold).run(space, is_stopped=is_stopped)

    target = second_passes.Target(store, index, encoder, checkpoint)
    second_passes.run("resolve", target, Merged(), work, once=once, interval=interval)

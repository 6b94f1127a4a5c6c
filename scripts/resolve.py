"""``locigraph resolve``: entities and concepts that mean the same become one."""

from __future__ import annotations

from locigraph.scripts.assembly.settings import REMEMBERED, EncoderSettings


def resolve(
    *,
    store: str = "data/graph.sqlite",
    once: bool = False,
    interval: float | None = None,
    threshold: float = 0.92,
    encoder: EncoderSettings = REMEMBERED,
) -> None:
    """Merge entities and concepts that differ in case, article and plural alone, or mean the same.

    Of each the oldest stays; the others are archived as its aliases, with what they were merged into, why, and the
    cosine. May run beside a build. SIGTERM ends it after the merge at hand.

    Args:
        store: The graph.
        once: Whether to end when everything is merged.
        interval: Otherwise, seconds between two runs over the store.
        threshold: Cosine of names from which they mean the same, between 0 and 1.
        encoder: Text encoder; by default the one that the graph was built with.
    """
    from locigraph.consolidation.merging import Merged, Merger
    from locigraph.consolidation.protocols import TextEncoder
    from locigraph.kg.errors import LocigraphError
    from locigraph.kg.store import Store
    from locigraph.kg.types import SpaceId
    from locigraph.scripts.assembly import second_passes

    if not 0 < threshold <= 1:
        raise LocigraphError(f"threshold is {threshold}; expected a cosine above 0, at most 1")

    def work(graph: Store, plain: TextEncoder, space: SpaceId, is_stopped: second_passes.Stopped) -> Merged:
        return Merger(graph, plain, threshold=threshold).run(space, is_stopped=is_stopped)

    second_passes.run("resolve", store, encoder, Merged(), work, once=once, interval=interval)


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

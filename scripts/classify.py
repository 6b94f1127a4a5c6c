"""``locigraph classify``: events and facts under categories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from locigraph.scripts.settings import EncoderSettings, LLMSettings


def classify(
    *,
    store: str = "data/graph.sqlite",
    once: bool = False,
    interval: float | None = None,
    threshold: float = 0.12,
    encoder: EncoderSettings = EncoderSettings(),
    llm: LLMSettings = LLMSettings(),
    max_tokens: int | None = None,
    max_cost: float | None = None,
) -> None:
    """Put every event and fact without a category under the one that fits, and make categories for what fits none.

    May run beside a build. SIGTERM ends it after the batch at hand.

    Args:
        store: The graph.
        once: Whether to end when everything is classified.
        interval: Otherwise, seconds between two runs over the store.
        threshold: Cosine to the mean of a category from which a node belongs to it.
        encoder: Text encoder the graph was built with.
        llm: Language model that names new categories; without one they are named by their key terms.
        max_tokens: Most tokens that the names may cost; then the command stops with code 3.
        max_cost: The same in the currency of the prices.
    """
    import signal
    import threading

    from locigraph.consolidation.classification import Classified, Classifier, LLMNamer, key_terms
    from locigraph.kg.errors import LocigraphError, UnknownNodeError, UnknownSpaceError
    from locigraph.scripts import graphs, opening
    from locigraph.scripts.language_models import clients_of

    if once == (interval is not None) or (interval is not None and not interval > 0):
        raise LocigraphError(
            f"once is {once} and interval is {interval}; give --once, or --interval with seconds above 0"
        )
    clients = clients_of(llm, max_tokens=max_tokens, max_cost=max_cost)
    namer_client = clients("category") if llm.model or llm.base_url else None
    text_encoder = opening.text_encoder(encoder)
    stop = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: stop.set())
    try:
        with opening.existing_store(store, access="write") as graph, _alone(store):
            classifier = Classifier(graph, text_encoder.without_adapter(), threshold=threshold)
            while not stop.is_set():
                done, is_whole = Classified(), True
                for space in graph.spaces():
                    if stop.is_set():
                        break
                    namer = key_terms if namer_client is None else LLMNamer(namer_client, space)
                    if namer_client is not None:
                        namer_client.ledger.bind(graph, [space])
                    try:
                        done += classifier.run(space, namer, is_stopped=stop.is_set)
                    except (UnknownNodeError, UnknownSpaceError):  # erased meanwhile
                        is_whole = False
                for each in dict.fromkeys([text_encoder.without_adapter(), text_encoder]):
                    graphs.embed_all(graph.spaces(), graph, each)
                if done.nodes or once:
                    print(f"{done.nodes} nodes classified, {done.categories} new categories, {done.waiting} nodes wait")
                if (once and is_whole) or stop.wait(interval or 0):
                    break
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _alone(store: str) -> Iterator[None]:
    """Keep a second classification of the same file away: both would make the same categories."""
    import fcntl
    from pathlib import Path

    from locigraph.kg.errors import LocigraphError

    file = store.removeprefix("sqlite:///")
    if "://" in file:
        yield  # of a store on a server nobody keeps others away
        return
    with Path(file + ".classify.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LocigraphError(f"store {store!r} is being classified by another process; let it end") from error
        yield


if __name__ == "__main__":
    from locigraph.scripts.cli import run_file

    run_file(__file__)

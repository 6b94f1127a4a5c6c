"""Runs commands that process a built graph again: once or as a service, one process of each, even during a build.

Afterwards it brings the indexes up to date, as a build does.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from locigraph.assembly import defaults, graphs, opening
from locigraph.assembly.settings import EncoderSettings, IndexSettings
from locigraph.consolidation.errors import LanguageModelError, LimitReachedError, StoppedError
from locigraph.consolidation.llm import ChatClient
from locigraph.kg.counts import Counts
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.errors import LocigraphError, UnknownNodeError, UnknownSpaceError, UnknownTurnError
from locigraph.kg.store import Store
from locigraph.kg.store.engine import file_of
from locigraph.kg.types import SpaceId
from locigraph.memory import Memory
from locigraph.retrieval.errors import IndexInUseError, RetrievalError
from locigraph.retrieval.text.text_encoder import plain_and_adapted
from locigraph.scripts.console.terminal import printable

_Done = TypeVar("_Done", bound=Counts)  # what a pass over a space did
#: Returns whether the command was told to end.
Stopped = Callable[[], bool]

_IN_USE = (
    "another process has the index open: a server or a build brings it up to date itself; after any other, run "
    "locigraph verify"
)
_STOPPED = "stopped before the indexes were brought up to date; run locigraph verify"


@dataclass(frozen=True, slots=True)
class Target:
    """What a pass processes and then brings up to date.

    Attributes:
        store: The graph.
        index: Vector index. It is open only while it is brought up to date, so that other processes can use it.
        encoder: Text encoder; by default the one that the graph was built with.
        checkpoint: Checkpoint whose graph embeddings are kept up to date; as in ``Memory.open``.
    """

    store: str
    index: IndexSettings
    encoder: EncoderSettings
    checkpoint: str | None

    def update(self) -> None:
        """Write what is due to the indexes."""
        with Memory.open(
            self.store, index=self.index, encoder=self.encoder, checkpoint=self.checkpoint, access="write"
        ) as memory:
            memory.flush()


def run(
    name: str,
    target: Target,
    nothing: _Done,
    work: Callable[[Store, TextEncoder, SpaceId, Stopped], _Done],
    *,
    once: bool = False,
    interval: float | None = None,
    client: ChatClient | None = None,
) -> None:
    """Process all spaces of a store, once or every ``interval`` seconds, and bring embeddings and indexes up to date.

    SIGTERM ends it after the current transaction, or after the reply that a language model is writing. If something
    is erased from a space meanwhile, the space is processed again. An outage of a language model or of the index ends a
    single pass with an error, once what is done is embedded; a service reports it and waits for its next pass. If
    another process has an embedded index open, the indexes are left to that process, and this is said.

    Args:
        name: Name of the command; only one process of each name may run on a store.
        target: The graph, and its embeddings and indexes.
        nothing: The counts of a pass that changes nothing, which a service does not print.
        work: Processes one space; it is given the text encoder without its adapter.
        once: States that the command ends when all spaces are done, as it does unless ``interval`` is given.
        interval: Seconds between two passes; None for a single pass.
        client: The language model that the pass calls; None if it calls none.

    Raises:
        LocigraphError: If both ``once`` and ``interval`` are given, or another process runs the command.
    """
    check(once, interval)
    once = interval is None
    opening.index_uri(
        target.index, target.store
    )  # raises now, not after the first pass, if none is named where one must be
    stop = threading.Event()

    def end(*_: object) -> None:
        stop.set()
        if client is not None:
            client.ledger.stop()  # otherwise a request would be retried until its deadline

    before = signal.signal(signal.SIGTERM, end)
    try:
        with opening.existing_store(target.store, access="write") as graph, _alone(name, target.store):
            text_encoder = opening.text_encoder(defaults.encoder_settings(target.encoder, graph, target.checkpoint))
            plain = text_encoder.without_adapter()
            is_due = True  # also before the first pass, since an earlier process may have left something
            passed = dict[SpaceId, int]()
            while not stop.is_set():
                if client is not None:
                    client.ledger.bind(graph)  # again, since other commands spend from the same limit
                done, is_whole, outage = _one_pass(graph, plain, nothing, work, stop.is_set, passed)
                for each in plain_and_adapted(text_encoder):
                    graphs.embed_all(graph.spaces(), graph, each)
                if once or done != nothing:
                    print(done)
                is_due = is_due or done != nothing or outage is not None  # what the outage ended is not counted
                try:
                    if is_due and not stop.is_set():
                        target.update()
                        is_due = False
                    elif done != nothing:
                        print(_STOPPED)
                except IndexInUseError:
                    if once or done != nothing:
                        print(_IN_USE)
                except RetrievalError as error:
                    outage = outage or error
                if client is not None and (once or done != nothing):
                    print("\n".join(client.ledger.lines()))
                if outage is not None:
                    if once or isinstance(outage, LimitReachedError):
                        raise outage
                    print(f"{printable(str(outage))}; trying again in {interval:g} s")
                if (once and is_whole) or stop.wait(interval or 0):
                    break
    finally:
        signal.signal(signal.SIGTERM, before)


def _one_pass(
    graph: Store,
    plain: TextEncoder,
    nothing: _Done,
    work: Callable[[Store, TextEncoder, SpaceId, Stopped], _Done],
    is_stopped: Stopped,
    passed: dict[SpaceId, int],
) -> tuple[_Done, bool, LanguageModelError | RetrievalError | None]:
    """(What was done, whether no space was erased meanwhile, the outage of a language model that ended the pass).

    Spaces that stand as an earlier pass has left them, with the revision in ``passed``, are passed over.
    """
    done, is_whole = nothing, True
    for space in graph.spaces():
        if is_stopped():
            break
        try:
            before = graph.revision(space)
            if passed.get(space) == before:
                continue
            done += work(graph, plain, space, is_stopped)
            if not is_stopped() and graph.revision(space) == before:  # others may have changed it meanwhile
                passed[space] = before
        except (UnknownNodeError, UnknownTurnError, UnknownSpaceError):  # erased meanwhile
            is_whole = False
        except StoppedError:
            break
        except LanguageModelError as error:
            return done, is_whole, error
    return done, is_whole, None


def first_passes(retries: bool) -> Callable[[SpaceId], bool]:
    """Whether a pass over a space is to retry what failed: a service does so in its first pass over it only."""
    passed = set[SpaceId]()

    def is_first(space: SpaceId) -> bool:
        is_new = space not in passed
        passed.add(space)
        return retries and is_new

    return is_first


def check(once: bool, interval: float | None) -> None:
    """Raise LocigraphError if both are given, or the interval is not above 0."""
    if interval is not None and (once or not interval > 0):
        raise LocigraphError(
            f"once is {once} and interval is {interval}; give either --once or --interval with seconds above 0"
        )


@contextmanager
def _alone(name: str, store: str) -> Iterator[None]:
    """Refuse a second process of the same command, since both would create the same nodes."""
    import fcntl

    file = file_of(store)
    if file is None:
        yield  # a store on a server is not guarded
        return
    with file.with_name(f"{file.name}.{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise LocigraphError(
                f"another process is running {name} on store {store!r}; wait until it ends, or stop it"
            ) from error
        yield

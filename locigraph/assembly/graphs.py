"""Builds graphs from conversations, and their views."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from threading import Lock

from tqdm import tqdm

from locigraph.assembly.build_context import HybridContext
from locigraph.assembly.exports import as_first_stored, forgotten_of
from locigraph.consolidation.extractors import EXTRACTORS, Clients
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.pipeline import Consolidator, built_by, refuse_other_extractor
from locigraph.consolidation.protocols import Extractor, MeteredExtractor
from locigraph.kg.corpora import Corpus
from locigraph.kg.counts import Spent, counted
from locigraph.kg.errors import LocigraphError
from locigraph.kg.language.redaction import redacted as redacted_text
from locigraph.kg.language.redaction import redacted_turn
from locigraph.kg.store import Store, TurnFailure
from locigraph.kg.types import ANYBODY, Scope, SpaceId, Turn, TurnId, TurnState
from locigraph.kg.views import Views
from locigraph.retrieval.query_generator import generate_queries
from locigraph.retrieval.text.node_vectors import embed_lacking
from locigraph.retrieval.text.text_encoder import CachedTextEncoder, plain_and_adapted
from locigraph.training.pseudo_questions import RULES

# For a late turn at most so many are consolidated again; in a larger space it is put between them.
_MOST_REDONE = 32
_MOST_ASKED_AGAIN = 4  # of language models, which are paid for


def extractor_for(consolidation: str, corpus: Corpus, clients: Clients) -> Extractor:
    """The extractor of a name; ``clients`` makes the clients of its language models, if it uses any."""
    return EXTRACTORS[consolidation].build(corpus.conversations, clients)


def build_graph(
    corpus: Corpus,
    extractor: Extractor,
    store: Store,
    encoder: CachedTextEncoder,
    scope: Scope = ANYBODY,
    *,
    progress: bool = True,
) -> dict[SpaceId, list[TurnFailure]]:
    """Build the graph of a corpus; turns that an earlier run has processed are skipped.

    Consolidation uses the text encoder without its adapter, so that graphs do not depend on what retrieval has learnt.
    Nodes get vectors with and without the adapter. The spaces of the conversations belong to the scope.

    Returns:
        Failed turns by space; spaces without any are left out.
    """
    turns = [turn for conversation in corpus.conversations for turn in conversation.turns]
    scoped = [(conversation.space, scope) for conversation in corpus.conversations]
    writer = GraphWriter(store, extractor, encoder.without_adapter())
    spaces = writer.append(turns, scoped=scoped)
    store.put_titles({each.space: each.title for each in corpus.conversations if each.title is not None})
    writer.consolidate(spaces, progress=progress)
    for each in plain_and_adapted(encoder):
        embed_all(spaces, store, each, checks_vectors=True, progress=progress)
    return {space: failed for space in spaces if (failed := store.failures(space))}


class GraphWriter:
    """Appends turns to a graph and consolidates them.

    Args:
        store: The graph.
        extractor: Extracts nodes and edges from turns.
        encoder: Text encoder without adapter.
        keep: The most recently used spaces with up to this many turns in all stay in memory, ready for their next turn;
            the last one always does.
        inserts_late: Whether a late turn of a space with many turns is consolidated between them, which leaves these as
            they are; otherwise all turns of its space are consolidated again, in order.
    """

    def __init__(
        self,
        store: Store,
        extractor: Extractor,
        encoder: CachedTextEncoder,
        *,
        keep: int = 0,
        inserts_late: bool = False,
    ) -> None:
        self._store = store
        self._extractor = extractor
        self._encoder = encoder
        self._keep = keep
        self._inserts_late = inserts_late
        self._kept: dict[SpaceId, Consolidator] = {}  # most recently used last
        self._lock = Lock()

    def drop(self, space: SpaceId) -> None:
        """Discard what is held in memory of a space, such as one from which something was forgotten."""
        with self._lock:
            self._kept.pop(space, None)

    def add(
        self, turns: Sequence[Turn], *, scoped: Sequence[tuple[SpaceId, Scope]] = (), progress: bool = False
    ) -> list[SpaceId]:
        """Append turns, all or none, and consolidate what is pending in their spaces.

        Args:
            turns: New turns and turns that the store already holds, of any number of spaces.
            scoped: The user and agent to which these spaces belong, as far as they are given.
            progress: Whether to show progress bars.

        Returns:
            The spaces of the turns, without those that were forgotten.

        Raises:
            ConsolidationError: If another extractor built one of the spaces; nothing is written then.
            StoreError: As in ``Store.append_turns``.
        """
        spaces = self.append(turns, scoped=scoped)
        self.consolidate(spaces, progress=progress)
        return spaces

    def append(
        self, turns: Sequence[Turn], *, scoped: Sequence[tuple[SpaceId, Scope]] = (), may_rewind: bool = True
    ) -> list[SpaceId]:
        """Append turns, all or none, without consolidating them; see ``add`` and ``Store.append_turns``."""
        store, extractor = self._store, self._extractor
        given = list(dict.fromkeys(turn.space for turn in turns))
        for space in given:
            refuse_other_extractor(store, space, extractor)
        is_replay = extractor.name in EXTRACTORS and EXTRACTORS[extractor.name].is_replay
        may_rewind = may_rewind and (not is_replay or _is_whole(store, turns))
        most_redone = _MOST_ASKED_AGAIN if isinstance(extractor, MeteredExtractor) else _MOST_REDONE
        store.append_turns(
            turns, scoped=scoped, may_rewind=may_rewind, most_redone=most_redone if self._inserts_late else None
        )
        known = store.standings(given)
        return [space for space in given if space in known]

    def is_builder_of(self, space: SpaceId) -> bool:
        """Whether this writer's extractor has built a space."""
        return built_by(self._store, space) == self._extractor.name

    def consolidate(self, spaces: Sequence[SpaceId], *, most: int | None = None, progress: bool = False) -> bool:
        """Consolidate what is pending in spaces; returns whether more is.

        An unexpected error, which is a fault of the program with a turn of one space, is raised once the other spaces
        are consolidated. Expected ones, such as a full disk or an outage, would meet the other spaces too, and stop
        the run; so does any error with language models, whose requests are paid for.

        Args:
            spaces: The spaces; those that do not exist any more are left out.
            most: Number of turns after which it stops; None for all.
            progress: Whether to show progress bars.
        """
        store, extractor = self._store, self._extractor
        if isinstance(extractor, MeteredExtractor):
            extractor.ledger.bind(store)
        with store.reading():
            known = store.standings(spaces)
            waiting = [space for space in spaces if space in known and known[space].pending]
            pending = [turn for space in waiting for turn in store.turns(space, state=TurnState.PENDING)]
        if not pending:
            return False
        is_more = most is not None and len(pending) > most
        pending = pending[:most]
        counts = Counter(turn.space for turn in pending)
        # One large batch now instead of a small one per turn.
        texts = [turn.utterance for turn in pending]
        bar_name = "encode" if progress else None
        self._encoder.encode([*texts, *extractor.expected_texts(pending)], progress=bar_name)
        with tqdm(desc="consolidate", total=len(pending), unit="turn", disable=not progress) as bar:
            consolidate = partial(self._consolidate, counts=None if most is None else counts, on_turn=bar.update)
            if isinstance(extractor, MeteredExtractor) and extractor.concurrency > 1:
                _side_by_side(consolidate, [*counts], extractor)
            else:
                faults = []
                for space in counts:
                    try:
                        consolidate(space)
                    except (LocigraphError, OSError, MemoryError):
                        raise
                    except Exception as fault:
                        faults.append(fault)
                if faults:
                    raise faults[0]
        if most is not None and store.is_on_server:  # another process may have put its turns before these
            is_more = any(standing.pending for standing in store.standings(waiting).values())
        return is_more

    def _consolidate(self, space: SpaceId, counts: Mapping[SpaceId, int] | None, on_turn: Callable[[], object]) -> None:
        with self._lock:
            consolidator = self._kept.pop(space, None)
        if consolidator is None:
            # Its context reads all vectors, and refuses damaged ones.
            embed_all([space], self._store, self._encoder, checks_vectors=True, progress=False)
            # Each space has a context of its own, since nothing that it holds is of use to another space.
            context = HybridContext(self._store, self._encoder)
            consolidator = Consolidator(self._store, self._extractor, self._encoder, context)
        with self._store.held(f"consolidate/{space}"):  # several processes would do the work of one, and redo it
            consolidator.run(space, most=None if counts is None else counts[space], on_turn=on_turn)
        with self._lock:
            self._kept[space] = consolidator
            turns = accumulate(each.turns_known for each in reversed(self._kept.values()))
            for each, total in list(zip(reversed(self._kept), turns, strict=True))[1:]:
                if total > self._keep:
                    del self._kept[each]


def _side_by_side(
    consolidate: Callable[[SpaceId], object], spaces: Sequence[SpaceId], extractor: MeteredExtractor
) -> None:
    """Consolidate several spaces concurrently, for an extractor that spends most of its time waiting for replies.

    After an error in one of them, a limit or an interruption, no further request is sent. Replies that are under way
    are awaited, since they are paid for, and every turn is done or pending when the first error is raised.
    """
    with ThreadPoolExecutor(extractor.concurrency, thread_name_prefix="consolidate") as pool:
        futures = [pool.submit(consolidate, space) for space in spaces]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            extractor.ledger.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _is_whole(store: Store, turns: Sequence[Turn]) -> bool:
    """Whether the given turns include every stored turn of their spaces, as replaying recorded extractions requires."""
    given = {(turn.space, turn.turn_id) for turn in turns}
    spaces = {turn.space for turn in turns} & {*store.spaces()}
    return all((space, turn.turn_id) in given for space in spaces for turn in store.turns(space))


def make_failed_pending(corpus: Corpus, store: Store, extractor: Extractor) -> None:
    """Mark the failed turns of a corpus as pending, so that they are consolidated again.

    Raises:
        ConsolidationError: If another extractor has built one of its spaces; then nothing is marked.
    """
    spaces = {conversation.space for conversation in corpus.conversations} & {*store.spaces()}
    for space in spaces:
        refuse_other_extractor(store, space, extractor)
    for space in spaces:
        for failure in store.failures(space):
            store.retry_turn(space, failure.turn_id)


def redacted(corpus: Corpus) -> Corpus:
    """The corpus with recognised secrets replaced in all that is said and shown."""
    conversations = [
        replace(each, turns=tuple(map(redacted_turn, each.turns)), title=each.title and redacted_text(each.title))
        for each in corpus.conversations
    ]
    return replace(corpus, conversations=tuple(conversations))


def require_buildable(corpus: Corpus, extractor: Extractor, store: Store, scope: Scope = ANYBODY) -> None:
    """Raise what a build would raise for a corpus, without writing anything.

    Raises:
        ConsolidationError, StoreError: If the build would refuse the extractor, a turn's content, or the owner.
    """
    for conversation in corpus.conversations:
        refuse_other_extractor(store, conversation.space, extractor)
    turns = [turn for conversation in corpus.conversations for turn in conversation.turns]
    store.require_appendable(turns, scoped=[(each.space, scope) for each in corpus.conversations])


def foreseen(corpus: Corpus, extractor: Extractor, store: Store | None, scope: Scope = ANYBODY) -> str:
    """What a build would do and cost, in words; no model is called and nothing is written.

    Args:
        corpus: The corpus to build from.
        extractor: The extractor to build with.
        store: The store, whose processed and forgotten turns a build skips; None if there is no store yet.
        scope: To whom the conversations are to belong.

    Raises:
        ConsolidationError, StoreError: If the build would refuse the extractor, a turn's content, or the owner.
    """
    forgotten: Mapping[SpaceId, frozenset[TurnId]] = {}
    if store is not None:
        forgotten = forgotten_of(corpus, store)
        corpus, _ = as_first_stored(corpus, store, forgotten)
        require_buildable(corpus, extractor, store, scope)
    pending, known = [], frozenset() if store is None else {*store.spaces()}
    for conversation in corpus.conversations:
        space = conversation.space
        settled = set() if store is None or space not in known else _settled(store, space)
        done = settled | forgotten.get(space, frozenset())
        pending.append([turn for turn in conversation.turns if turn.turn_id not in done])
    cost = ""
    if isinstance(extractor, MeteredExtractor):
        cost = f", about {sum((extractor.estimate(turns) for turns in pending), Spent())}; no model was called"
    undated = sum(turn.spoken_at is None for turns in pending for turn in turns)
    said = (
        f"dry run: {counted(sum(map(len, pending)), 'turn')} to consolidate by {extractor.name}{cost}. They are from "
        f"{counted(sum(map(bool, pending)), 'conversation')}; turns without a time: {undated:,}"
    )
    skipped = sum(map(len, forgotten.values()))
    return f"{said}; {counted(skipped, 'forgotten turn')} would be skipped" if skipped else said


def _settled(store: Store, space: SpaceId) -> set[TurnId]:
    """Turns of a space that were consolidated or failed, which a build skips."""
    waiting = {turn.turn_id for turn in store.turns(space, state=TurnState.PENDING)}
    return {turn.turn_id for turn in store.turns(space)} - waiting


def encoded_of(turns: Sequence[Turn], texts: Sequence[str]) -> list[str]:
    """Texts that may have been encoded because of some turns, and whose vectors a cache may therefore hold.

    What rules extract from a turn is encoded ahead, but not all of it becomes a new node: a fact or a topic may exist
    already. The search for nodes that a turn may change encodes the clauses of an utterance that begin with a question
    word. Pre-training encodes questions about facts. All of these texts are derived from the turns again.

    Args:
        turns: The turns.
        texts: Descriptions of the nodes that were derived from them.
    """
    drafts = [*(turn.utterance for turn in turns), *RuleExtractor().expected_texts(turns), *texts]
    clauses = [query.text for turn in turns for query in generate_queries(turn.utterance)]
    questions = [question for written in RULES.write(drafts) for question in written]
    return list(dict.fromkeys([*drafts, *clauses, *questions]))


def embed_all(
    spaces: Iterable[SpaceId],
    store: Store,
    encoder: CachedTextEncoder,
    *,
    checks_vectors: bool = False,
    progress: bool = True,
) -> None:
    """Add vectors to nodes that have none of this encoder, such as those of a graph built with another encoder.

    With ``checks_vectors``, damaged vectors are computed again.
    """
    embed_lacking(
        store,
        spaces,
        encoder,
        checks_vectors=checks_vectors,
        to_indexes=encoder.adapter is None,  # the index holds no vectors of adapters (see indexer_of)
        progress="embed" if progress else None,
    )


def views_of(graph: Store, encoder: CachedTextEncoder | None) -> Views:
    """Snapshots of a store's spaces, with an encoder's embeddings, or without any."""
    model = None if encoder is None else encoder.model_id
    return Views(lambda space, as_of: graph.snapshot(space, as_of=as_of, embedding_model=model), graph.last_spoken())


def require_same_turns(corpus: Corpus, store: Store) -> None:
    """Raise LocigraphError if a graph is not that of a corpus: if it has other turns, or turns with other words.

    Results would be those of another conversation, and what was learnt from could not be told by the corpus.
    """
    held = {*store.spaces()}
    for conversation in corpus.conversations:
        space = conversation.space
        given = {turn.turn_id: _said(turn) for turn in conversation.turns}
        stored = {turn.turn_id: _said(turn) for turn in store.turns(space)} if space in held else {}
        other = {turn for turn in given.keys() & stored.keys() if given[turn] != stored[turn]}
        for what, turns in (
            ("beside those of the corpus", stored.keys() - given.keys()),
            ("less than the corpus", given.keys() - stored.keys()),
            ("with other words than in the corpus", other),
        ):
            if turns:
                raise LocigraphError(
                    f"store {store.url!r}: space {space!r} has {counted(len(turns), 'turn')} {what}, such as "
                    f"{min(turns)!r}, so results would be of another conversation; name a store of this corpus alone"
                )


def _said(turn: Turn) -> tuple[object, ...]:
    return turn.speaker, turn.text, turn.image_caption


@contextmanager
def built_views(corpus: Corpus, extractor: Extractor, encoder: CachedTextEncoder, store: str) -> Iterator[Views]:
    """Views of a corpus' graphs for training inside folds; builds missing graphs, and encodes the questions ahead."""
    with Store(store) as graph:
        build_graph(corpus, extractor, graph, encoder)
        require_same_turns(corpus, graph)
        encoder.encode([q.text for q in corpus.questions], progress="encode questions")
        yield views_of(graph, encoder)

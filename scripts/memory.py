"""The public API: a memory that is appended to, asked and made to forget, turn by turn."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, NoReturn, overload

from locigraph.kg.errors import LocigraphError, StoreError, UnknownSpaceError, nearest, shortened
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, Turn, TurnId
from locigraph.retrieval.errors import RetrievalError
from locigraph.retrieval.protocols import Hit, Retriever, Timing
from locigraph.retrieval.view import DEFAULT_FOLD, ViewedRetriever
from locigraph.scripts import live, opening, options
from locigraph.scripts.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings
from locigraph.scripts.strategies import STRATEGIES, built_strategies, indexer_of, require_adapter, reranked, texts_of

if TYPE_CHECKING:
    from locigraph.kg.store.engine import Access
    from locigraph.retrieval.index.milvus import MilvusIndex
    from locigraph.retrieval.packing import Context
    from locigraph.retrieval.query_generator import QueryGenerator
    from locigraph.scripts.graphs import GraphWriter
    from locigraph.training.explanation import Explanation
    from locigraph.training.live_embeddings import LiveEmbeddings

#: Number of spaces of which a memory keeps what their next turn needs.
_SPACES_KEPT = 8


@dataclass(frozen=True, slots=True)
class Recalled(Sequence[Hit]):
    """What was found, best first: a sequence of hits with ``text``, ``turn_ids``, ``score`` and ``signals``.

    Attributes:
        hits: The hits.
        strategy: What found them.
        timing: How long that took.
        notes: What the caller should know: that another strategy answered, that turns are missing.
        context: The hits as lines for a language model; None where no budget was given.
    """

    hits: tuple[Hit, ...]
    strategy: str
    timing: Timing
    notes: tuple[str, ...] = ()
    context: Context | None = None

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, place: int | slice) -> Hit | tuple[Hit, ...]:
        return self.hits[place]

    def __len__(self) -> int:
        return len(self.hits)


@dataclass(frozen=True, slots=True)
class MemoryState:
    """How far a memory is ready to answer.

    Attributes:
        checkpoint: Version of the checkpoint with which v2 answers; None where v1 does.
        reason: Why v2 cannot answer; empty if it can.
        due_rows: Rows of nodes that the index has not taken yet.
        due_spaces: Spaces whose graph embeddings the next recall brings up to date.
    """

    checkpoint: str | None
    reason: str
    due_rows: int
    due_spaces: int


class Memory:
    """Conversations that can be added to, asked and forgotten; make one with ``Memory.open``.

    All methods may be called from several threads, one at a time being served. One process at a time may have a memory
    open: a second one is told so. What ``add`` has returned survives a crash, and the next ``recall`` finds it.

    Example:
        >>> from tempfile import mkdtemp
        >>> from locigraph import Memory
        >>> with Memory.open(f"{mkdtemp()}/memory.sqlite") as memory:  # doctest: +SKIP
        ...     turn = memory.add(space="ana", session="s1", speaker="Ana", text="I sold the blue bike to Tom.")
        ...     hits = memory.recall("Who bought the bike?", space="ana", top_k=5)
        ...     hits[0].text
        'Ana: I sold the blue bike to Tom.'
    """

    def __init__(
        self,
        graph: Store,
        *,
        index: IndexSettings = IndexSettings(),
        encoder: EncoderSettings = REMEMBERED,
        checkpoint: str | None = DEFAULT,
        is_readonly: bool = False,
    ) -> None:
        self._lock = RLock()
        self._opened = ExitStack()
        self._graph = self._opened.enter_context(graph)
        self._index_settings = index
        self._is_readonly = is_readonly
        self._settings = live.encoder_settings(encoder, graph, checkpoint)
        self._encoder = opening.text_encoder(self._settings)
        self._checkpoint = checkpoint
        self._writer: GraphWriter | None = None
        self._vectors: MilvusIndex | None = None
        self._embeddings: LiveEmbeddings | None = None
        self._no_v2 = "no checkpoint is named" if checkpoint is None else ""
        self._has_forgotten = False  # then graph embeddings are made anew, also where no space that is left has changed

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        index: IndexSettings = IndexSettings(),
        encoder: EncoderSettings = REMEMBERED,
        checkpoint: str | None = DEFAULT,
        access: Access = "create",
    ) -> Memory:
        """Open a memory, or make it where there is none.

        Args:
            path: SQLite file or SQLAlchemy URL of its store.
            index: Vector index; by default a file beside the store.
            encoder: Text encoder; by default the one that the store remembers, or the shipped one.
            checkpoint: Folder of the checkpoint that v2 uses; ``default`` for the one that the store remembers, or the
                shipped one. None leaves every answer to v1.
            access: ``create``; ``write`` for a memory that must be there; ``read`` to ask and change nothing.

        Raises:
            LocigraphError: If it cannot be opened, or another process has it open.
        """
        graph = Store(path) if access == "create" else opening.existing_store(str(path), access=access)
        try:
            memory = cls(graph, index=index, encoder=encoder, checkpoint=checkpoint, is_readonly=access == "read")
            if access == "create":
                memory._index()  # a second process hears now that it must wait
        except BaseException:
            graph.close()
            raise
        return memory

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._close()

    def close(self) -> None:
        """Bring the indexes up to date and release everything."""
        self.__exit__(None)

    def _close(self) -> None:
        with self._lock:
            self._opened.close()

    # --- writing -------------------------------------------------------------------------------------------

    def add(
        self,
        *,
        space: str,
        session: str,
        speaker: str,
        text: str,
        spoken_at: str | datetime | None = None,
        turn_id: str | None = None,
        image_caption: str | None = None,
    ) -> TurnId:
        """Remember one turn; returns its id.

        Args:
            space: Whose memory; it is made when absent.
            session: The sitting that the turn belongs to, whose turns are added in their order.
            speaker: Who speaks.
            text: What is said.
            spoken_at: When, as a time or ISO 8601; UTC where it names no zone. None where it is not known.
            turn_id: Name of the turn in its space, by which it is added once; None makes one.
            image_caption: What a shared image shows; None without image.

        Raises:
            StoreError: If a field is not one that a store takes, the id has other content, or it was forgotten.
        """
        (made,) = self.add_many(
            [
                {
                    "space": space, "session": session, "speaker": speaker, "text": text, "spoken_at": spoken_at,
                    "turn_id": turn_id, "image_caption": image_caption,
                }
            ]
        )  # fmt: skip
        if self._graph.forgotten(SpaceId(space), [made]):
            raise StoreError(
                f"space {space!r}: turn {made!r} was forgotten; give the turn another id, or restore this one first"
            )
        return made

    def add_many(self, turns: Iterable[Mapping[str, Any]]) -> list[TurnId]:
        """Remember turns, all or none; each is given as the arguments of ``add``.

        Sessions may come in any portions, and turns that are there already, or were forgotten, are passed over.

        Returns:
            The ids of all, in the order given.
        """
        made = [_turn(place, **each) for place, each in enumerate(turns)]
        with self._lock:
            self._require_writer().add(made)
        return [turn.turn_id for turn in made]

    def forget(self, *, space: str, turn_ids: Sequence[str] | None = None, whole_space: bool = False) -> int:
        """Erase turns with all that was drawn from them, or a whole space, for good.

        The store forgets first, whatever state the index is in; called again, a cut forgetting is completed.

        Args:
            space: Whose memory.
            turn_ids: The turns.
            whole_space: Whether to erase all turns of the space; then none are named.

        Returns:
            Number of nodes erased; 0 where an earlier forgetting was completed.
        """
        if (turn_ids is None) != whole_space:
            raise LocigraphError(f"space {space!r}: name the turns to erase, or say that it is the whole space")
        with self._lock:
            self._has_forgotten = True
            was_cut = self._graph.has_forgotten()
            if self._writer is not None:
                self._writer.drop(SpaceId(space))
            try:
                if turn_ids is None:
                    erased = self._graph.forget_space(SpaceId(space), going=self._encoder.forget)
                else:
                    named = [TurnId(turn) for turn in turn_ids]
                    held = {turn.turn_id for turn in self._graph.turns(SpaceId(space))}
                    is_done = was_cut and not held & {*named}
                    erased = 0 if is_done else self._graph.forget(SpaceId(space), named, going=self._encoder.forget)
            except UnknownSpaceError:
                if not was_cut:
                    raise
                erased = 0
            try:
                self._drain()
            except RetrievalError as error:
                raise LocigraphError(
                    f"{erased} nodes of {space} are erased from the store, but not yet: {error}"
                ) from error
        return erased

    def restore(self, *, space: str, turn_ids: Sequence[str] | None = None) -> int:
        """Let forgotten turns be added again, all of a space where none are named; returns how many."""
        with self._lock:
            return self._graph.restore(SpaceId(space), None if turn_ids is None else [TurnId(t) for t in turn_ids])

    def flush(self) -> None:
        """Bring the indexes up to date; ``recall`` does so by itself for the space that it asks."""
        with self._lock:
            is_due = self._has_forgotten or self._graph.outbox_size() or self._graph.changed_spaces()
            if is_due and not self._is_readonly:
                self._drain()
                if self._live() is not None:
                    self._require_live().update()
                self._has_forgotten = False

    # --- reading -------------------------------------------------------------------------------------------

    def spaces(self) -> list[SpaceId]:
        """All spaces, sorted."""
        with self._lock:
            return self._graph.spaces()

    def times(self, space: str) -> list[datetime]:
        """When the turns of a space were spoken, each time once, earliest first; undated turns have none."""
        with self._lock:
            self._graph.require_space(SpaceId(space))
            return sorted({turn.spoken_at for turn in self._graph.turns(SpaceId(space)) if turn.spoken_at is not None})

    def recall(
        self,
        question: str,
        *,
        space: str,
        top_k: int = 10,
        budget_tokens: int | None = None,
        as_of: str | datetime | None = None,
        strategy: str | None = None,
        reranker: str | None = None,
        speaker: str | Sequence[str] | None = None,
        fold: float | None = DEFAULT_FOLD,
        queries: QueryGenerator | None = None,
    ) -> Recalled:
        """What a space remembers about a question, best first.

        Args:
            question: What to look for.
            space: The space that is asked.
            top_k: Largest number of hits.
            budget_tokens: Tokens of a context for a language model; then the hits are those that fit, whatever
                ``top_k``. None for no context.
            as_of: Time whose knowledge may be used; None for now.
            strategy: One of the strategies of ``locigraph recall``; None for v2, or v1 with a note where v2 cannot be.
            reranker: Cross-encoder (hub name or folder) that scores the best hits again; None for none.
            speaker: Name of a speaker, or of several: only what is in their words is found. None for all.
            fold: Likeness, above 0 and up to 1, from which two texts of the same speakers say the same and share one
                place; the turns of the others are in ``Hit.same``. None gives each a place.
            queries: Makes the queries that the strategy is asked, such as ``generate_queries``; None leaves it its own
                way, which is rules for v1 and the question as it is for the others.

        Raises:
            UnknownSpaceError: If there is no such space.
            LocigraphError: If there is no such speaker, the strategy cannot be used, or the index fails; an outage is
                never an empty result.
        """
        from locigraph.retrieval.multi_query import asking
        from locigraph.retrieval.packing import Budget, contexts_of, hits_for

        options.check_recall(
            question, top_k=top_k, budget_tokens=budget_tokens, as_of=as_of, strategy=strategy, fold=fold
        )
        time, asked = options.time_of(as_of), SpaceId(space)
        with self._lock, self._retriever(asked, strategy, queries) as (name, found_by, notes):
            wanted = top_k if budget_tokens is None else max(top_k, hits_for(budget_tokens))
            retriever = asking(queries, self._last_day)(found_by)
            viewed = ViewedRetriever(retriever, self._graph.voices, speakers=self._speakers(asked, speaker), fold=fold)
            found = reranked(reranker)(viewed).retrieve(question, asked, as_of=time, top_k=wanted)
            hits, context = found.hits[:top_k], None
            if budget_tokens is not None:
                snapshot = self._graph.snapshot(asked, as_of=time)
                budget = Budget(tokens=budget_tokens)
                (context,) = contexts_of(retriever, question, found.hits, snapshot, [budget], as_of=time)
                kept = {line.node_id for line in context.memories}
                hits = tuple(hit for hit in found.hits if hit.node_id in kept)
            said = (*notes, *self.notes(space))
        return Recalled(hits, name, found.timing, said, context)

    def state(self) -> MemoryState:
        """How far the memory is ready to answer.

        Raises:
            LocigraphError: If it cannot: the index does not answer.
        """
        with self._lock:
            self._index().collections()
            live_embeddings = self._live()
            return MemoryState(
                checkpoint=None if live_embeddings is None else live_embeddings.version,
                reason=self._no_v2,
                due_rows=self._graph.outbox_size(),
                due_spaces=len(self._graph.changed_spaces()),
            )

    def warm_up(self) -> None:
        """Load models and checkpoint now, for which the first ``add`` and ``recall`` would wait otherwise."""
        with self._lock:
            for encoder in {self._encoder.without_adapter(), self._encoder}:
                encoder.load()
            self._live()

    def notes(self, space: str) -> list[str]:
        """What a caller should know of a space: how many of its turns are pending, or failed."""
        with self._lock:
            return opening.partial_memory(self._graph, [SpaceId(space)])

    def explain(
        self, question: str, *, space: str, top_k: int = 3, as_of: str | datetime | None = None
    ) -> list[Explanation]:
        """The scores of v2's best turns taken apart: own meaning and words, neighbours, speaker and date."""
        from locigraph.training.checkpoint import load_checkpoint
        from locigraph.training.explanation import explain
        from locigraph.training.live_embeddings import embedded_snapshot

        options.check_question(question)
        if top_k < 1:
            raise LocigraphError(f"top_k is {top_k}; at least 1 turn can be explained")
        time = options.time_of(as_of)
        with self._lock:
            self._graph.require_space(SpaceId(space))
            folder = live.checkpoint_folder(self._checkpoint or DEFAULT, self._graph)
            checkpoint = load_checkpoint(folder, text_encoder=self._encoder.model_id)
            if not self._is_readonly:
                embedded_snapshot(self._graph, SpaceId(space), self._encoder.model_id, self._encoder.encode)
            snapshot = self._graph.snapshot(SpaceId(space), as_of=time, embedding_model=self._encoder.model_id)
            return explain(checkpoint, snapshot, question, embed=self._encoder.encode, top_k=top_k, asked_at=time)

    def _speakers(self, space: SpaceId, named: str | Sequence[str] | None) -> list[str] | None:
        """The speakers of a view; raises LocigraphError for one who says nothing in the space."""
        if named is None:
            return None
        wanted, known = [named] if isinstance(named, str) else list(named), self._graph.speakers(space)
        if not wanted:
            raise LocigraphError("speaker is an empty list; name at least one speaker, or None for all")
        for name in wanted:
            if name not in known:
                raise LocigraphError(f"space {space!r} has no speaker {shortened(name)}{nearest(name, known)}")
        return wanted

    def _last_day(self, space: SpaceId) -> date | None:
        times = self.times(space)
        return times[-1].date() if times else None

    @contextmanager
    def _retriever(
        self, space: SpaceId, strategy: str | None, queries: QueryGenerator | None
    ) -> Iterator[tuple[str, Retriever, list[str]]]:
        self._graph.require_space(space)
        notes: list[str] = []
        if strategy is None:
            reason = self._fault_of_v2(space)
            strategy = "v1" if reason else "v2"
            notes += [f"v1 answers, since v2 cannot: {reason}"] if reason else []
        row = STRATEGIES[strategy]
        require_adapter([strategy], self._settings.adapter)
        # Milvus Lite lets one process at a time in: who needs no vectors need not wait for another.
        index = self._index() if row.needs_index else None
        if row.needs_index and not self._is_readonly and self._graph.outbox_size():
            self._drain()
        if row.is_claimant:
            from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever
            from locigraph.training.inference import CheckpointQueryEncoder

            embeddings = self._require_live()
            collection = embeddings.collection(space) if self._is_readonly else embeddings.current(space)
            questions = CheckpointQueryEncoder(embeddings.checkpoint, self._encoder.encode)
            found = GraphEmbeddingRetriever(collection, questions, texts_of(self._graph))
            yield strategy, found, notes
            return
        with built_strategies(
            self._graph, self._encoder, [strategy], spaces=[space], index=index, queries=queries
        ) as built:
            yield strategy, built[strategy], notes

    # --- what is opened when it is first needed --------------------------------------------------------------

    def _require_writer(self) -> GraphWriter:
        if self._writer is None:
            from locigraph.consolidation.extractors import EXTRACTORS
            from locigraph.kg.corpora import Corpus
            from locigraph.scripts.graphs import GraphWriter

            live.remember_encoder(self._graph, self._settings, self._encoder)
            extractor = EXTRACTORS["rules"].build(Corpus("jsonl", "", "", (), (), {}), _no_client)
            writer = GraphWriter(self._graph, extractor, self._encoder.without_adapter(), keep=_SPACES_KEPT)
            self._writer = self._opened.enter_context(closing(writer))
        return self._writer

    def _index(self) -> MilvusIndex:
        if self._vectors is None:
            found = opening.vector_index(self._index_settings, self._graph.url, must_exist=self._is_readonly)
            self._vectors = self._opened.enter_context(found)
        return self._vectors

    def _drain(self) -> None:
        indexer_of(self._graph, self._index(), self._encoder).drain()

    def _live(self) -> LiveEmbeddings | None:
        """The graph embeddings; None, with the reason in ``_no_v2``, where no checkpoint can be used."""
        if self._embeddings is None and not self._no_v2 and self._checkpoint is not None:
            self._embeddings, self._no_v2 = live.opened_embeddings(
                self._graph, self._index(), self._encoder, self._checkpoint
            )
        return self._embeddings

    def _fault_of_v2(self, space: SpaceId) -> str:
        """Why v2 cannot answer now; empty if it can. A writer can bring embeddings up to date, a reader cannot."""
        from locigraph.training.errors import StaleEmbeddingsError

        found = self._live()
        if found is None or not self._is_readonly:
            return self._no_v2
        try:
            found.collection(space)
        except StaleEmbeddingsError as error:
            return str(error)
        return ""

    def _require_live(self) -> LiveEmbeddings:
        found = self._live()
        if found is None:
            raise LocigraphError(f"v2 cannot be used: {self._no_v2}")
        return found


def _no_client(stage: str) -> NoReturn:
    raise LocigraphError(f"the {stage} asks a language model, and none is configured; use locigraph build --llm")


def _turn(
    place: int,
    *,
    space: str,
    session: str,
    speaker: str,
    text: str,
    spoken_at: str | datetime | None = None,
    turn_id: str | None = None,
    image_caption: str | None = None,
) -> Turn:
    time = options.time_of(spoken_at)
    if time is not None and time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    name = TurnId(uuid.uuid4().hex[:16] if turn_id is None else turn_id)
    return Turn(SpaceId(space), name, space, session, place, speaker, text, time, image_caption)

"""The parts of a memory: store, index, text encoder, graph embeddings, each opened when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from locigraph.assembly import defaults, opening
from locigraph.assembly.search_parts import SearchParts, indexer_of
from locigraph.assembly.settings import DEFAULT, EncoderSettings, IndexSettings
from locigraph.assembly.space_indexes import KeptIndexes
from locigraph.assembly.strategies import STRATEGIES, Strategy, made, require_adapter, strategy_named
from locigraph.kg.errors import InvalidVectorError, outcome
from locigraph.kg.joint import joint_name
from locigraph.kg.store import Store
from locigraph.kg.text_caches import forget_texts
from locigraph.kg.types import Node, NodeId, SpaceId
from locigraph.memory.asked_question import AskedQuestion
from locigraph.memory.asked_spaces import AskedSpaces, named_spaces
from locigraph.memory.known_nodes import KnownNode, KnownNodes
from locigraph.memory.known_turns import KnownTurns
from locigraph.retrieval.conditions import all_of, spoken_by
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.protocols import GraphVectors, Retriever
from locigraph.training.errors import CheckpointError, StaleEmbeddingsError

if TYPE_CHECKING:
    from locigraph.assembly.graphs import GraphWriter
    from locigraph.consolidation.llm import ChatClient
    from locigraph.consolidation.protocols import Extractor
    from locigraph.gnn.sketch import LexicalStatistics
    from locigraph.kg.store.standing import Standing
    from locigraph.retrieval.index.milvus import MilvusIndex
    from locigraph.retrieval.query_generator import QueryGenerator
    from locigraph.training.checkpoint import Checkpoint
    from locigraph.training.inference import CheckpointQueryEncoder
    from locigraph.training.live_embeddings import LiveEmbeddings

# Number of turns whose spaces stay in memory for the consolidation of their next turn, at some 10 KB a turn.
_TURNS_KEPT = 10_000
# v2 does not search descriptions, so it waits for their index only if more rows than this are due.
_DUE_AT_MOST = 1_000
_LIMITED_AT_MOST = 20  # spaces of which a search is limited to what a filter admits
_TRIES = 5
_Result = TypeVar("_Result")


def why_v1(reason: str) -> str:
    """The note for a caller who gets v1's answer instead of v2's."""
    return f"v1 answered, since v2 cannot be used: {reason}"


class Parts:
    """The parts of a memory; not thread-safe.

    Args:
        graph: The store, which is closed with the parts.
        index, encoder, checkpoint: As in ``Memory.open``.
        extractor: Creates the extractor; called when something is first added.
        clients: Makes the language model of a stage.
        waits_for_models: Whether the extractor waits for language models.
        is_readonly: Whether nothing may be written.

    Attributes:
        graph: The store.
        encoder: The text encoder, with its adapter if it has one.
        waits_for_models: As given.
        is_readonly: As given.
        why_no_v2: Why v2 cannot be used; empty if it can, or has not been tried yet.
        has_forgotten: Whether something was forgotten since the indexes were last brought up to date. If so, graph
            embeddings are rebuilt even if none of the remaining spaces has changed.
    """

    def __init__(
        self,
        graph: Store,
        *,
        index: IndexSettings,
        encoder: EncoderSettings,
        checkpoint: str | None,
        extractor: Callable[[], Extractor],
        clients: Callable[[str], ChatClient],
        waits_for_models: bool,
        is_readonly: bool,
    ) -> None:
        self._opened = ExitStack()
        self.graph = self._opened.enter_context(graph)
        self.waits_for_models = waits_for_models
        self.is_readonly = is_readonly
        self._extractor = extractor
        self._clients = clients
        self._index_settings = index
        self._settings = defaults.encoder_settings(encoder, graph, checkpoint)
        self.encoder = opening.text_encoder(self._settings)
        self._checkpoint = checkpoint
        self._writer: GraphWriter | None = None
        self._vectors: MilvusIndex | None = None
        self._embeddings: LiveEmbeddings | None = None
        self._kept = KeptIndexes(self.graph)
        self._known = KnownNodes(self.graph)
        self._turns = KnownTurns(self.graph)
        self._questions: CheckpointQueryEncoder | None = None
        self._loaded: Checkpoint | None = None  # where v2 is not used
        self.has_forgotten = False
        self.why_no_v2 = "no checkpoint is named" if checkpoint is None else ""

    @property
    def files(self) -> list[str]:
        """See ``Memory.files``."""
        used = self._settings
        named = used.model, used.adapter, used.cache, self._checkpoint, defaults.remembered_checkpoint(self.graph)
        return [each for each in named if each is not None]

    def close(self) -> None:
        """Release everything."""
        self._opened.close()

    @property
    def are_used(self) -> bool:
        """Whether the graph was written, or the index opened."""
        return self._writer is not None or self._vectors is not None

    def writer(self) -> GraphWriter:
        """The writer that appends turns to the graph."""
        if self._writer is None:
            from locigraph.assembly.graphs import GraphWriter

            defaults.remember_encoder(self.graph, self._settings, self.encoder)
            plain = self.encoder.without_adapter()
            self._writer = GraphWriter(self.graph, self._extractor(), plain, keep=_TURNS_KEPT, inserts_late=True)
        return self._writer

    def client(self, stage: str) -> ChatClient:
        """The language model of a stage, whose usage the store counts; raises LocigraphError if none is configured."""
        made = self._clients(stage)
        if not self.is_readonly:
            made.ledger.bind(self.graph)
        return made

    def asked(self, asking: AskedQuestion, held: Mapping[SpaceId, Standing] | None = None) -> AskedSpaces:
        """The spaces that a question searches, each as it stands; ``held`` as in ``named_spaces``."""
        standings = named_spaces(self.graph, asking.space, asking.scope, held=held)
        return AskedSpaces(self.graph, standings, self._known, is_joint=len(standings) > 1)

    def limited(
        self, retriever: Retriever, asked: AskedSpaces, asking: AskedQuestion, speakers: Sequence[str] | None
    ) -> Retriever:
        """The strategy, limited to the nodes that satisfy the question's filter and are in the words of speakers.

        Of very many spaces the hits are filtered alone, since all their turns would have to be read.
        """
        conditions = [each for each in (asking.condition, None if speakers is None else spoken_by(speakers)) if each]
        if not conditions or len(asked.spaces) > _LIMITED_AT_MOST:
            return retriever
        condition, name = all_of(conditions), f"{asking.filter_name} {speakers}"

        def satisfying(node_type: str | None) -> frozenset[NodeId]:
            found = {
                space: self._turns.satisfying(space, standing, condition, name, node_type)
                for space, standing in asked.standings.items()
            }
            if not asked.is_joint:
                return found[asked.name]
            return frozenset(joint_name(space, node) for space, nodes in found.items() for node in nodes)

        return retriever.limited_to(satisfying)

    def known(self, space: SpaceId, standing: Standing, nodes: Sequence[Node]) -> Mapping[NodeId, KnownNode]:
        """What answers show of nodes of a space that stands as given."""
        return self._known.of(space, standing, [node.id for node in nodes])

    def drop(self, spaces: Iterable[SpaceId]) -> None:
        """Discard what is held in memory of spaces from which something is forgotten."""
        spaces = [*spaces]
        self._kept.drop(spaces)
        self._known.drop(spaces)
        self._turns.drop(spaces)
        self._questions = None  # a question may quote what is forgotten
        forget_texts()
        if self._embeddings is not None:
            self._embeddings.drop(spaces)
        if self._writer is not None:
            for space in spaces:
                self._writer.drop(space)

    def index(self) -> MilvusIndex:
        """The vector index."""
        if self._vectors is None:
            found = opening.vector_index(self._index_settings, self.graph, is_reader=self.is_readonly)
            self._vectors = self._opened.enter_context(found)
        return self._vectors

    def drain(self) -> None:
        """Bring the index of descriptions up to date."""
        indexer = indexer_of(self.graph, self.index(), self.encoder)
        try:
            indexer.drain()
        except InvalidVectorError:  # the vectors of an imported store are not made yet, or are damaged
            from locigraph.assembly.graphs import embed_all

            plain = self.encoder.without_adapter()
            embed_all(self.graph.spaces(), self.graph, plain, checks_vectors=True, progress=False)
            indexer.drain()

    def flush(self) -> None:
        """Write pending updates to the indexes; does nothing if the memory is read-only."""
        if self.is_readonly:
            return
        if self.has_forgotten or self.graph.outbox_size() or (self.graph.changed_spaces() and self.live() is not None):
            self.drain()
            if self.live() is not None:
                with suppress(StaleEmbeddingsError):  # what is due stays listed for who uses the other checkpoint
                    self._with_checkpoint_in_use(lambda embeddings: embeddings.update())
            self.has_forgotten = False

    def due_spaces(self) -> int:
        """Number of spaces whose graph embeddings are due; 0 without a usable checkpoint, whatever the store lists."""
        changed = self.graph.changed_spaces()
        found = self.live() if changed else None
        return 0 if found is None else len(found.due(changed))

    def live(self) -> LiveEmbeddings | None:
        """The graph embeddings; None, with the reason in ``why_no_v2``, if no checkpoint can be used."""
        if self._embeddings is None and not self.why_no_v2 and self._checkpoint is not None:
            self._embeddings, self.why_no_v2 = defaults.opened_embeddings(
                self.graph, self.index(), self.encoder, self._checkpoint
            )
            if self._embeddings is not None and self._checkpoint != DEFAULT and not self.is_readonly:
                model = self.encoder.model_name
                defaults.remember_checkpoint(
                    self.graph, defaults.checkpoint_folder(self._checkpoint, self.graph, model), model
                )
        return self._embeddings

    def _for_v2(self, spaces: Sequence[SpaceId]) -> tuple[GraphVectors | None, str]:
        """The collection for v2 if the memory is read-only, else None; and why v2 cannot answer, empty if it can.

        A writer brings the embeddings up to date before each search; for a reader they must be up to date already.
        """

        found = self.live()
        if found is None or not self.is_readonly:
            return None, self.why_no_v2
        try:
            return found.readable(spaces), ""
        except StaleEmbeddingsError as error:
            return None, str(error)

    @property
    def questions(self) -> CheckpointQueryEncoder:
        """The query encoder of v2, which remembers the last questions."""
        found = self._questions  # which another thread may drop
        if found is None:
            from locigraph.training.inference import CheckpointQueryEncoder

            found = self._questions = CheckpointQueryEncoder(self.require_live().checkpoint, self.encoder)
        return found

    def require_live(self) -> LiveEmbeddings:
        """The graph embeddings; raises LocigraphError if no checkpoint can be used."""
        found = self.live()
        if found is None:
            raise CheckpointError(f"v2 cannot be used: {self.why_no_v2}")
        return found

    def word_statistics(self, space: SpaceId) -> LexicalStatistics | None:
        """The counts of words with which v2's vectors of a space were made; None if they are not known.

        They are in the store, so the index, which another process may have open, is not needed.
        """
        from locigraph.gnn.sketch import LexicalStatistics

        content = self.graph.word_statistics(space)
        return None if content is None else LexicalStatistics.from_bytes(content)

    def checkpoint(self) -> Checkpoint:
        """The checkpoint that v2 uses, or would use; raises CheckpointError if it cannot be read."""
        if self._embeddings is not None:
            return self._embeddings.checkpoint
        if self._loaded is None:
            from locigraph.training.checkpoint import load_checkpoint

            folder = defaults.checkpoint_folder(self._checkpoint or DEFAULT, self.graph, self.encoder.model_name)
            self._loaded = load_checkpoint(folder, text_encoder=self.encoder.model_id)
        return self._loaded

    @contextmanager
    def retriever(
        self, asked: AskedSpaces, strategy: str | None, queries: QueryGenerator | None
    ) -> Iterator[tuple[str, Retriever, list[str]]]:
        """Yield the name of the strategy, its retriever over up-to-date spaces, and notes for the caller.

        Args:
            asked: The spaces.
            strategy: A strategy of ``locigraph recall``; None for v2, or v1 with a note if v2 cannot be used.
            queries: Generates the queries of v1; None for its default rules.

        Raises:
            LocigraphError: If the strategy cannot be used, or the index fails.
        """
        row, notes, read = self._chosen(asked, strategy)
        require_adapter(row, self._settings.adapter)
        # Milvus Lite can be opened by one process at a time; strategies without vectors leave it to others.
        index = self.index() if row.needs_index else None
        self._bring_index_up_to_date(row, asked)
        with SearchParts(
            self.graph,
            self.encoder,
            spaces=asked.spaces,
            index=index,
            queries=queries,
            is_joint=asked.is_joint,
            indexes=partial(self._kept.of, asked.spaces, is_joint=asked.is_joint),
            checkpoint=None if self._checkpoint is None else self.checkpoint,
            graph_embeddings=lambda: self._v2(asked, self._embeddings_of(asked) if read is None else read),
        ) as parts:
            try:
                found = self._made(parts, row)
            except IndexMismatchError as error:
                if not self.is_readonly or row.searches_graph_embeddings:
                    raise
                parts.index = None  # the store holds all that the index lacks
                found = made(parts, row)
                notes.append(f"searched without the index, which is only read here: {error}")
            yield row.name, found, notes

    def _chosen(self, asked: AskedSpaces, strategy: str | None) -> tuple[Strategy, list[str], GraphVectors | None]:
        """The row of a strategy, by default v2's, or v1's with a note that says why; and v2's embeddings if checked."""
        if strategy is not None:
            return strategy_named(strategy), [], None
        read, reason = self._for_v2(asked.spaces)
        notes = [why_v1(reason)] if reason else []
        return STRATEGIES["v1" if reason else "v2"], notes, read

    def _bring_index_up_to_date(self, row: Strategy, asked: AskedSpaces) -> None:
        """Index the descriptions that a strategy searches; before a search of graph embeddings only if many are due."""
        if self.is_readonly:
            return
        by_graph = row.searches_graph_embeddings
        is_settled = by_graph and self._embeddings is not None and self._embeddings.are_settled(asked.standings)
        if row.needs_index and not is_settled:
            with self.graph.reading():
                room = _DUE_AT_MOST if by_graph and not self.graph.has_forgotten() else 0
                is_due = self.graph.outbox_size() > room
            if is_due:
                self.drain()
        if row.uses_adapter and not by_graph:
            from locigraph.assembly.graphs import embed_all

            # Nodes that were just added have vectors of the text encoder without its adapter only. For a reader, the
            # others are computed with each snapshot (see ``snapshot_with_vectors``).
            embed_all(asked.spaces, self.graph, self.encoder, progress=False)

    def _embeddings_of(self, asked: AskedSpaces) -> GraphVectors:
        """The graph embeddings of some spaces, up to date."""
        if self.is_readonly:
            return self.require_live().readable(asked.spaces)
        return self._with_checkpoint_in_use(lambda embeddings: embeddings.current(asked.standings))

    def _with_checkpoint_in_use(self, work: Callable[[LiveEmbeddings], _Result]) -> _Result:
        """Work with the graph embeddings; with those that another process has put in use, if no checkpoint is named.

        Raises:
            StaleEmbeddingsError: If one is named, and another is in use now.
        """

        embeddings = self.require_live()
        try:
            return work(embeddings)
        except StaleEmbeddingsError:
            if self._checkpoint != DEFAULT:
                raise
            questions, self._embeddings, self._questions = self._questions, None, None
            if self.require_live().version == embeddings.version:
                # The store does not remember the other one yet. A new object would put the old one in use again.
                self._embeddings, self._questions = embeddings, questions
                raise
        return work(self.require_live())

    def ready(self, asked: AskedSpaces) -> Retriever | None:
        """v2 over spaces that are held in memory and stand as when they were last brought up to date; else None."""
        embeddings = self._embeddings  # which another thread may replace
        if embeddings is None or self.is_readonly:
            return None
        collection = embeddings.held(asked.standings)
        return None if collection is None else self._v2(asked, collection)

    def _v2(self, asked: AskedSpaces, collection: GraphVectors) -> Retriever:
        from locigraph.retrieval.strategies.graph_embedding import GraphEmbeddingRetriever

        spaces = tuple(asked.spaces)
        together = (lambda space, as_of: spaces) if asked.is_joint else None
        return GraphEmbeddingRetriever(collection, self.questions, asked.texts, view_of=together)

    def bring_up_to_date(self, standings: Mapping[SpaceId, Standing]) -> None:
        """Bring v2's graph embeddings of some spaces up to date, if it can be used."""
        if standings and not self.is_readonly and self.live() is not None:
            self._with_checkpoint_in_use(lambda embeddings: embeddings.current(standings))

    def encode_ahead(self, questions: Sequence[tuple[str, datetime | None]]) -> None:
        """Encode questions, each with the time as of which it is asked, together, before they are searched one by one.

        What goes wrong is left to the searches.
        """
        if questions and self._embeddings is not None:
            outcome(lambda: self.questions.encode_queries(questions))

    def _made(self, parts: SearchParts, row: Strategy) -> Retriever:
        # An index that is named may be another store's own; one beside a deleted store is taken over.
        if self.is_readonly or (row.searches_graph_embeddings and self._index_settings.uri is not None):
            return made(parts, row)
        for _ in range(_TRIES):
            try:
                return made(parts, row)
            except IndexMismatchError:
                # A turn was added meanwhile, since additions that wait for models do not hold the lock; or a deleted
                # store of the same name has left its index behind.
                self.drain()
        return made(parts, row)

"""The public API: a memory to which turns are added, that answers questions about them, and that can forget them."""

from __future__ import annotations

import os
from collections import ChainMap, Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import fields, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from locigraph.assembly import opening, options
from locigraph.assembly.search_parts import named_reranker
from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings, IndexSettings, LLMSettings, ModelSettings
from locigraph.consolidation.errors import LanguageModelError
from locigraph.kg.errors import LateTurnError, LocigraphError, nearest, outcome, shortened
from locigraph.kg.language.redaction import redacted_turn
from locigraph.kg.schema import EPISODE, fact_types
from locigraph.kg.store import Store
from locigraph.kg.times import epoch
from locigraph.kg.types import ANYBODY, Scope, SpaceId, Turn, TurnId
from locigraph.memory import forgetting
from locigraph.memory.additions import (
    after_outage,
    extractor_maker,
    fault_of_added,
    mappings_of,
    new_turn_id,
    stored_all_the_same,
    turns_of,
)
from locigraph.memory.asked_question import AskedQuestion
from locigraph.memory.asked_spaces import AskedSpaces, named_spaces
from locigraph.memory.closable_lock import ClosableLock
from locigraph.memory.overview import Overview, overview_of
from locigraph.memory.parts import Parts, why_v1
from locigraph.memory.profile import Profile, profile_of
from locigraph.memory.profile import worded as worded_profile
from locigraph.memory.rebuilt_spaces import RebuiltSpaces
from locigraph.memory.recalled import MemoryState, Recalled
from locigraph.retrieval.asking_time import asking_time, day_of_asking
from locigraph.retrieval.conditions import parsed
from locigraph.retrieval.confidence import ConfidentRetriever
from locigraph.retrieval.errors import NotKeptError, RetrievalError
from locigraph.retrieval.hit_filters import DEFAULT_FOLD, FilteredRetriever, admitted, is_kept
from locigraph.retrieval.protocols import MOST_FOUND
from locigraph.retrieval.superseding import SupersedingRetriever
from locigraph.retrieval.text.node_vectors import snapshot_with_vectors
from locigraph.retrieval.text.text_encoder import plain_and_adapted
from locigraph.training.errors import CheckpointError, StaleEmbeddingsError

if TYPE_CHECKING:
    from locigraph.kg.store.engine import Access
    from locigraph.kg.store.standing import Standing
    from locigraph.retrieval.protocols import Retriever
    from locigraph.retrieval.query_generator import QueryGenerator
    from locigraph.retrieval.rerank import Reranker
    from locigraph.training.explained import Explanation


# Number of turns that are consolidated without letting another change in; questions need not wait for either.
_TURNS_A_STEP = 50
_OVERDUE = timedelta(hours=1)


class Memory:
    """A memory of conversations: turns are added, searched and forgotten. Open one with ``Memory.open``.

    Methods may be called from several threads. Changes are made one at a time; questions do not wait for them, unless a
    change of the spaces that they search has been acknowledged and not yet been indexed. Only one process at a time may
    have a memory in files open; a second one gets an error. Where store and index are on servers, several may. A turn
    whose ``add`` has returned survives a crash, and the next ``recall`` finds it.

    Example:
        >>> from tempfile import mkdtemp
        >>> from locigraph import Memory
        >>> with Memory.open(f"{mkdtemp()}/memory.sqlite") as memory:
        ...     turn = memory.add(space="ana", session="s1", speaker="Ana", text="I sold the blue bike to Tom.")
        ...     hits = memory.recall("Who bought the bike?", space="ana", top_k=5)
        ...     hits[0].text
        'Ana: I sold the blue bike to Tom.'
    """

    def __init__(self, parts: Parts, *, redact: bool = False) -> None:
        if not isinstance(parts, Parts):
            raise TypeError(f"Memory({shortened(parts)}): open a memory with Memory.open(path)")
        name = f"memory {parts.graph.url!r}"
        self._lock = ClosableLock(name)
        # Writers take this lock first. While models are called, only this one is held, so questions are still answered.
        self._writing = ClosableLock(name)
        # Questions that nothing has to be done for take only this one, which nobody holds for long.
        self._reading = ClosableLock(name)
        self._parts = parts
        self._being_added: Counter[SpaceId] = Counter()  # additions in progress
        self._counting = Lock()
        self._rebuilt = RebuiltSpaces()
        self._is_erasing = False  # whether an erasure of what has expired was begun and not ended
        self._graph, self._encoder, self._is_readonly = parts.graph, parts.encoder, parts.is_readonly
        self._redact = redact

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        index: IndexSettings = IndexSettings(),
        encoder: EncoderSettings = REMEMBERED,
        checkpoint: str | None = DEFAULT,
        consolidation: str = "rules",
        llm: ModelSettings = LLMSettings(),
        max_tokens: int | None = None,
        max_cost: float | None = None,
        redact: bool = False,
        access: Access = "create",
    ) -> Memory:
        """Open a memory, or create it if it does not exist.

        Args:
            path: SQLite file of the store, or the URL of a PostgreSQL database (``postgresql+psycopg://``).
            index: Vector index; by default a file beside the store.
            encoder: Text encoder; by default the one that the store remembers, or the shipped one.
            checkpoint: Folder of the checkpoint that v2 uses; ``default`` for the one that the store remembers, or the
                shipped one. With None v1 answers every question.
            consolidation: Extractor that builds the graph from added turns: ``rules`` or ``llm``. A
                space keeps the extractor that it was started with.
            llm: Settings of the language models of the extractor ``llm``, for which ``add`` waits, and of the one that
                words a ``profile``.
            max_tokens: Largest number of tokens that the models may read and write for this memory, earlier runs
                included; None for no limit.
            max_cost: Largest sum that the models may cost, in the currency of their prices; None for no limit.
            redact: Whether to replace what looks like a password, key or card number before anything is stored.
            access: ``create`` makes the memory where it is missing; ``write`` requires that it exists; ``read`` changes
                nothing.

        Raises:
            LocigraphError: If it cannot be opened, or another process has it open.
        """
        from locigraph.assembly.language_models import clients_of
        from locigraph.consolidation.extractors import EXTRACTORS

        if not isinstance(path, str | Path):
            raise LocigraphError(f"path is {shortened(path)}; expected that of a file, or the URL of a database")
        graph = Store(path) if access == "create" else opening.existing_store(str(path), access=access)
        try:
            clients = clients_of(llm, max_tokens=max_tokens, max_cost=max_cost)
            parts = Parts(
                graph,
                index=index,
                encoder=encoder,
                checkpoint=checkpoint,
                extractor=extractor_maker(consolidation, clients),
                waits_for_models=EXTRACTORS[consolidation].asks_models,
                clients=clients,
                is_readonly=access == "read",
            )
            if access == "create":
                parts.index()  # raises now, not at first use, if another process has the memory open
        except BaseException:
            graph.close()
            raise
        return cls(parts, redact=redact)

    @property
    def redacts(self) -> bool:
        """Whether what looks like a secret is replaced before anything is stored."""
        return self._redact

    @property
    def files(self) -> list[str]:
        """Names of models and checkpoints in use, and of those that the store remembers: folders, or names of a hub."""
        return self._parts.files

    @property
    def waits_for_models(self) -> bool:
        """Whether ``add`` waits for language models."""
        return self._parts.waits_for_models

    def __enter__(self) -> Memory:
        with self._lock:
            return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # An unused memory leaves pending updates to others, and an interrupted one does not wait for them.
        self._close(kind, flush=self._parts.are_used and (kind is None or issubclass(kind, Exception)))

    def _close(self, kind: type[BaseException] | None, *, flush: bool) -> None:
        if self._lock.is_of_another_process:  # to which all that could be closed belongs
            return
        with self._writing.lock, self._lock.lock, self._reading.lock:
            if self._lock.is_closed:
                return
            try:
                # Else what was acknowledged long ago would not be found until somebody adds to these spaces.
                if rebuilt := self._rebuilt.spaces:
                    self._parts.writer().consolidate(rebuilt)
                if flush:
                    with nullcontext() if kind is None else suppress(LocigraphError):
                        if not self._is_readonly:
                            self._forget_expired()
                        self.flush()
            finally:
                self._writing.is_closed = self._lock.is_closed = self._reading.is_closed = True
                self._rebuilt.close()
                self._parts.close()

    def close(self, *, flush: bool = True) -> None:
        """Bring the indexes up to date and release all resources; afterwards all other methods raise an error.

        Without ``flush``, what is due for the indexes stays listed in the store, for whoever opens the memory next. In
        a process that was forked after the memory was opened, nothing is done: it belongs to the other process.
        """
        self._close(None, flush=flush and self._parts.are_used)

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
        user: str | None = None,
        agent: str | None = None,
        metadata: Any = None,  # so that rows of texts can be given as keywords
        expires_at: str | datetime | None = None,
    ) -> TurnId:
        """Remember one turn; returns its ID.

        Add turns in the order of their times if you can, and old talk by one ``add_many``. A turn that is earlier than
        others of its space finds its place. If these are up to 32 (4 with language models), all are consolidated again;
        else it is consolidated between them. Then what it states is a fact of its own even if a later turn repeats it,
        and only rules see that later turns have ended it. The first time of a session whose earlier turns have none
        may move these behind others; then the whole space is consolidated again.

        Args:
            space: Name of the space; it is created if it does not exist.
            session: The session that the turn belongs to; add the turns of a session in order.
            speaker: Name of the speaker.
            text: The words of the turn; they may be empty only if there is an image caption.
            spoken_at: When the turn was spoken, as a datetime or in ISO 8601; UTC if no time zone is given. Relative
                dates in the text are resolved on the day in UTC; give local times without a time zone if days should be
                local. None if the time is unknown: such a turn counts as known since 1970, so that ``recall`` with any
                later ``as_of`` finds it.
            turn_id: ID of the turn, unique in its space, so that a repeated call adds it only once; None generates one.
            image_caption: Description of an image that the turn shares; None without an image.
            user: User to whom the space belongs, for a ``recall`` over all spaces of a user. It can be given with any
                turn and cannot be changed afterwards. None leaves it as it is.
            agent: Agent to which the space belongs, in the same way.
            metadata: Names with texts, numbers, booleans, dates or times, for the ``filter`` of ``recall``; at most 64,
                and 8,192 bytes as JSON. They cannot be changed afterwards.
            expires_at: From this time on the turn is in no answer, and it is erased by ``forget_expired``; None to keep
                it.

        Raises:
            LocigraphError: If an argument is not text, or there is neither text nor an image caption.
            StoreError: If a field is invalid, the ID exists with other content or was forgotten, or the space belongs
                to another user or agent.
            LanguageModelError: If language models fail; the turn is stored, as the message says, and so it is after any
                other error whose message says so.
        """
        self._writing.require_own_process()
        # The ID is assigned here, so that an error can tell whether the turn was stored all the same.
        turn = {
            "space": space, "session": session, "speaker": speaker, "text": text, "spoken_at": spoken_at,
            "turn_id": new_turn_id() if turn_id is None else turn_id, "image_caption": image_caption, "user": user,
            "agent": agent, "metadata": metadata, "expires_at": expires_at,
        }  # fmt: skip
        try:
            (made,) = self.add_many([turn])
        except LocigraphError as error:
            made = stored_all_the_same(self._graph, turn, error, is_new=turn_id is None)
        if fault := fault_of_added(self._graph, SpaceId(space), made):
            raise fault
        return made

    def add_each(self, turns: Sequence[Mapping[str, Any]]) -> list[TurnId | LocigraphError]:
        """Remember turns of different callers as ``add`` does: in one write if all are valid, otherwise one by one.

        Returns:
            For each turn its ID, or an error that says why it was not remembered, or not consolidated yet.

        Raises:
            LocigraphError: If the turns are not a list of mappings.
        """
        self._writing.require_own_process()
        # IDs are assigned here, so that a turn that has to be tried again is not added twice.
        given = mappings_of(turns)
        are_new = [turn.get("turn_id") is None for turn in given]
        return self._add_each(
            [
                {**turn, "turn_id": new_turn_id() if is_new else turn["turn_id"]}
                for turn, is_new in zip(given, are_new, strict=True)
            ],
            are_new,
        )

    def _add_each(self, named: Sequence[Mapping[str, Any]], are_new: Sequence[bool]) -> list[TurnId | LocigraphError]:
        """``add_each`` of turns that have IDs; ``are_new`` says which of these were made for this addition."""
        try:
            made = self.add_many(named)
        except (LanguageModelError, RetrievalError) as error:
            return after_outage(
                self._graph, [(SpaceId(turn["space"]), TurnId(turn["turn_id"])) for turn in named], error
            )
        except LocigraphError as error:
            if len(named) == 1:
                try:
                    return [stored_all_the_same(self._graph, named[0], error, is_new=are_new[0])]
                except LocigraphError as told:
                    return [told]
            alone = [([turn], [is_new]) for turn, is_new in zip(named, are_new, strict=True)]
            return [each for turns, are in alone for each in self._add_each(turns, are)]
        spaces = [SpaceId(turn["space"]) for turn in named]
        return [fault_of_added(self._graph, space, turn) or turn for space, turn in zip(spaces, made, strict=True)]

    def add_many(self, turns: Iterable[Mapping[str, Any]]) -> list[TurnId]:
        """Remember several turns, all or none; each is a mapping of the arguments of ``add``.

        A session may be split over several calls. Turns that exist already, or were forgotten, are skipped.

        Returns:
            The IDs of all turns, in the order given.

        Raises:
            LocigraphError: If an argument is unknown or missing.
            StoreError: As for ``add``, except for turns that were forgotten; nothing is written then.
            LanguageModelError: If language models fail; the turns are remembered, and consolidated by a later call.
        """
        adding = self.adding(turns)
        try:
            while True:
                next(adding)
        except StopIteration as done:
            return list(done.value)

    def adding(self, turns: Iterable[Mapping[str, Any]]) -> Generator[None, None, list[TurnId]]:
        """``add_many`` in steps, between which other changes can be made; all turns are stored in the first one.

        Where turns have to be consolidated again, questions about their spaces wait until all steps are done, so the
        thread that takes the steps must not ask any in between. ``close`` does what is left of them.
        """
        given = turns_of(turns)
        made = [redacted_turn(turn) if self._redact else turn for turn, _ in given]
        scoped = [(turn.space, scope) for turn, scope in given]
        self._refuse_if_readonly()
        with ExitStack() as doing:
            spaces = self._begun(made, scoped, doing)
            while spaces:
                with self._writing:
                    if not self._parts.writer().consolidate(spaces, most=_TURNS_A_STEP):
                        break
                yield
        return [turn.turn_id for turn in made]

    def _begun(
        self, made: Sequence[Turn], scoped: Sequence[tuple[SpaceId, Scope]], doing: ExitStack
    ) -> Sequence[SpaceId]:
        """Store turns; returns the spaces of which turns are still to be consolidated while ``doing`` lasts."""
        with self._writing:
            writer = self._parts.writer()
            spaces = [*dict.fromkeys(turn.space for turn in made)]
            standings = self._graph.standings(spaces)
            if self._forget_overdue(standings):
                standings = self._graph.standings(spaces)
            if self._parts.waits_for_models:  # for minutes, in which questions are answered from what there is
                writer.add(made, scoped=scoped)
                return ()
            try:
                self._refuse_if_unfinished(standings)
                spaces = writer.append(made, scoped=scoped, may_rewind=False)
            except LateTurnError:
                with self._lock, self._reading:  # once nobody is looking
                    doing.enter_context(self._rebuilt.rebuilding(spaces))
                spaces = writer.append(made, scoped=scoped)
            with self._counting:
                self._being_added.update(spaces)
            doing.callback(self._added, spaces)
            return spaces

    def _added(self, spaces: Sequence[SpaceId]) -> None:
        with self._counting:
            self._being_added -= Counter(spaces)

    def is_being_added(self, spaces: Iterable[str]) -> bool:
        """Whether an addition to one of some spaces is between two steps, so that another would do its work."""
        with self._counting:
            return any(self._being_added[SpaceId(space)] for space in spaces)

    def _forget_overdue(self, standings: Mapping[SpaceId, Standing]) -> int:
        """Erase what has expired in some spaces, but not for every turn: erasing takes longer than adding."""
        latest = epoch(datetime.now(UTC) - _OVERDUE)
        due = [space for space, each in standings.items() if each.expires_at is not None and each.expires_at <= latest]
        if not due:
            return 0
        with self._lock, self._reading:
            return self._forget_expired(due)

    def _refuse_if_unfinished(self, standings: Mapping[SpaceId, Standing]) -> None:
        """Raise LateTurnError if turns of a space are pending that no addition in progress will consolidate."""
        for space, standing in standings.items():
            if standing.pending and not self._being_added[space]:
                raise LateTurnError(f"space {space!r} has turns that are not consolidated yet")

    def forget(
        self,
        *,
        space: str | Sequence[str] | None = None,
        turn_ids: str | Sequence[str] | None = None,
        whole_space: bool = False,
        user: str | None = None,
        agent: str | None = None,
    ) -> int:
        """Permanently erase turns with everything that was derived from them, or whole spaces.

        They are erased from the store first, whatever state the index is in; if the call is interrupted, calling it
        again completes it. It is not an error if the turns were forgotten already.

        Args:
            space: The space; None for all spaces of the user or agent.
            turn_ids: ID of one turn of the space, or of several.
            whole_space: Whether to erase all turns of the space; then ``turn_ids`` must be None.
            user: Erase all spaces of this user, all or none.
            agent: Erase all spaces of this agent; with a user, those that belong to both.

        Returns:
            Number of nodes erased; 0 if everything named was forgotten already.

        Raises:
            UnknownSpaceError: If there is no such space.
            UnknownScopeError: If no space belongs to that user or agent.
            StoreError: If one of the turns is not in the space; nothing is erased then.
            LocigraphError: If both turns and a whole space are named, or neither; if the index fails after the store
                has forgotten; or if another reader still uses old pages of the store or the text cache.
        """
        scope = Scope(user, agent)
        named = forgetting.turns_named(space, turn_ids, whole_space, scope)
        self._refuse_if_readonly()
        with self._writing, self._lock, self._reading:
            return forgetting.forget(self._parts, space, named, scope)

    def forget_expired(self) -> int:
        """Permanently erase the turns whose time has come (``expires_at``); returns how many.

        No answer shows them in the meantime. ``add`` does the same for spaces in which this is overdue by an hour,
        ``close`` for all, and a server every ten minutes.
        """
        self._refuse_if_readonly()
        with self._reading:  # for which nobody waits long
            if not self._is_to_complete() and not self._graph.expired(datetime.now(UTC)):
                return 0
        with self._writing, self._lock, self._reading:
            return self._forget_expired()

    def _forget_expired(self, spaces: Sequence[SpaceId] | None = None) -> int:
        expired = self._graph.expired(datetime.now(UTC), spaces)
        if not expired and not self._is_to_complete():
            return 0
        self._is_erasing = True  # until index and files are rid of it, too
        count = forgetting.forget_expired(self._parts, expired)
        self._is_erasing = False
        return count

    def _is_to_complete(self) -> bool:
        """Whether index and files may still hold what an earlier call, also of another process, has erased."""
        return self._is_erasing or self._graph.has_forgotten()

    def set_retention(self, space: str, *, days: float | None) -> int:
        """Let the turns of a space expire so many days after they were spoken: those stored, and those added later.

        Turns without a time count from now, or from when they are added. A turn that expires earlier by its own
        ``expires_at`` keeps that, and nothing that a turn was given is put off by a longer time. What has expired is in
        no answer, and is erased as ``forget_expired`` says: a time that is too short loses turns.

        Forgetting the whole space, or its last turn, forgets this, too.

        Args:
            space: The space.
            days: Number of days, above 0; parts of days are allowed. None keeps turns that are added later for ever.

        Returns:
            Number of stored turns that now expire earlier.

        Raises:
            UnknownSpaceError: If there is no such space.
            LocigraphError: If ``days`` is no such number.
        """
        keep = options.keep_of(days)
        self._refuse_if_readonly()
        with self._writing, self._lock:
            return self._graph.set_retention(options.one_space(space), keep)

    def retentions(self) -> dict[SpaceId, timedelta]:
        """How long spaces keep their turns; those that keep them for ever are left out."""
        with self._lock:
            return self._graph.retentions()

    def restore(self, *, space: str, turn_ids: str | Sequence[str] | None = None) -> int:
        """Allow forgotten turns, by default all of the space, to be added again; returns how many were forgotten.

        Turns that were not forgotten are ignored.
        """
        self._refuse_if_readonly()
        with self._writing, self._lock:
            named = None if turn_ids is None else [TurnId(each) for each in options.listed(turn_ids)]
            return self._graph.restore(options.one_space(space), named)

    def _refuse_if_readonly(self) -> None:
        if self._is_readonly:
            raise LocigraphError(f"memory {self._graph.url!r} was opened for reading only; open it with access='write'")

    def flush(self) -> None:
        """Bring the indexes up to date; ``recall`` does this by itself for the spaces that it searches."""
        with self._lock:
            self._parts.flush()

    # --- reading -------------------------------------------------------------------------------------------

    @contextmanager
    def _seeing(self, space: str | Sequence[str] | None, scope: Scope = ANYBODY) -> Iterator[None]:
        """Hold the lock once none of the named spaces, or of those of a user or agent, is being rebuilt."""
        self._lock.require_own_process()
        named: str | Sequence[str] | None = space if scope == ANYBODY else None
        while True:
            if named is None and self._rebuilt.is_among(None):
                named = [*named_spaces(self._graph, space, scope)]
            self._rebuilt.wait(named)
            with self._lock:
                if not self._rebuilt.is_among(named):
                    yield
                    return

    def is_rebuilding(
        self, space: str | Sequence[str] | None = None, *, user: str | None = None, agent: str | None = None
    ) -> bool:
        """Whether questions about a space, several, or those of a user or agent wait while one is consolidated again.

        Raises:
            UnknownSpaceError, UnknownScopeError: If there is no such space, or no space of that user or agent.
        """
        with self._reading:
            if not self._rebuilt.is_among(None):
                return False
            return self._rebuilt.is_among([*named_spaces(self._graph, space, Scope(user, agent))])

    def spaces(self, *, user: str | None = None, agent: str | None = None) -> list[SpaceId]:
        """All spaces, sorted; if a user, an agent or both are named, only the spaces that belong to them."""
        options.check_text("user", user)
        options.check_text("agent", agent)
        return [space for space, scope in self.scopes().items() if Scope(user, agent).covers(scope)]

    def scopes(self) -> dict[SpaceId, Scope]:
        """All spaces, sorted, with the ``user`` and the ``agent`` to which they belong; None if never given."""
        with self._lock:
            return self._graph.scopes()

    def titles(self) -> dict[SpaceId, str]:
        """The titles of spaces that were built from an export that has titles, such as those of ChatGPT and Claude."""
        with self._lock:
            return self._graph.titles()

    def times(self, space: str) -> list[datetime]:
        """The distinct times at which turns of a space were spoken, earliest first; undated turns are left out."""
        name = options.one_space(space)
        with self._seeing(name):
            self._graph.require_space(name)
            now = datetime.now(UTC)
            turns = [turn for turn in self._graph.turns(name) if is_kept(turn, now)]
            return sorted({turn.spoken_at for turn in turns if turn.spoken_at is not None})

    def turns(
        self,
        space: str,
        *,
        filter: Mapping[str, Any] | None = None,
        turn_ids: str | Sequence[str] | None = None,
    ) -> list[Turn]:
        """The turns of a space as they were added, in the order of the conversation, without those that have expired.

        Args:
            space: The space.
            filter: Only turns that satisfy these conditions, as for ``recall``; None for all.
            turn_ids: Only these turns, of which those that are not there are left out; a string is the ID of one turn.

        Raises:
            UnknownSpaceError: If there is no such space.
            LocigraphError: If the filter is wrong.
        """
        name, condition = options.one_space(space), None if filter is None else parsed(filter)
        named = None if turn_ids is None else {*options.listed(turn_ids)}
        with self._seeing(name):
            self._graph.require_space(name)
            now = datetime.now(UTC)
            return [
                turn
                for turn in self._graph.turns(name)
                if (named is None or turn.turn_id in named)
                and admitted(turn.said, EPISODE, condition=condition, now=now)
            ]

    def overview(self, space: str, *, most_topics: int = 20) -> Overview:
        """What a space is about: its sessions, who speaks in it, and at most so many of its topics.

        Raises:
            UnknownSpaceError: If there is no such space.
            LocigraphError: If ``most_topics`` is no whole number of at least 1.
        """
        options.check_positive("most_topics", most_topics)
        name = options.one_space(space)
        with self._seeing(name):
            return overview_of(self._graph, name, most_topics=most_topics, now=datetime.now(UTC))

    def recall(
        self,
        question: str,
        *,
        space: str | Sequence[str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        top_k: int = 10,
        budget_tokens: int | None = None,
        budget_kinds: Mapping[str, int] | None = None,
        as_of: str | datetime | None = None,
        strategy: str | None = None,
        reranker: str | os.PathLike[str] | None = None,
        speaker: str | Sequence[str] | None = None,
        fold: float | None = DEFAULT_FOLD,
        include_superseded: bool = False,
        filter: Mapping[str, Any] | None = None,
        min_confidence: float | None = None,
        queries: QueryGenerator | None = None,
    ) -> Recalled:
        """Search one space, or several together, for memories that answer a question; returns them best first.

        Name a space, a user or an agent; if several are named, the spaces to which all apply are searched. Hits of
        several spaces form one ranking, and each names its ``space``.

        Args:
            question: The question, in natural language.
            space: The space to search, or several.
            user: Search all spaces of this user together.
            agent: Search all spaces of this agent together.
            top_k: Largest number of hits, at most 10,000.
            budget_tokens: Size in tokens of a context for a language model; the hits are then those that fit into it,
                whatever ``top_k`` is. None for no context.
            budget_kinds: Largest number of memories in a context by kind: ``facts`` (and events), ``reflections``,
                ``episodes`` (turns). A kind that is not named has no limit; limits of the strategy itself apply as
                well.
            as_of: Use only what was known at this time, a datetime or text in ISO 8601, of which a day alone stands for
                its beginning, in UTC; None for now.
            strategy: One of the strategies of ``locigraph recall``; None for v2, or for v1 with a note if v2 cannot be
                used.
            reranker: What reranks the best hits: ``default`` for the shipped reranker, the folder of another, or the
                Hugging Face name or folder of a cross-encoder; None for none.
            speaker: Name of one or several speakers: only memories in their words are returned. None for all speakers.
            fold: Word similarity, above 0 and up to 1, from which two texts of the same speakers count as duplicates.
                Duplicates form one hit, whose ``same`` lists the turns of the others. None folds nothing.
            include_superseded: Whether what was replaced keeps its rank. Otherwise what has replaced it comes first, if
                that is found as well; ``Hit.until`` and ``Hit.superseded_by`` tell.
            filter: Only memories in whose words each turn satisfies these conditions on its metadata, such as
                ``{"project": {"$ne": "boats"}}``; also on ``$speaker``, ``$session``, ``$turn``, ``$spoken_at`` and
                ``$type``. Operators are ``$eq $ne $in $nin $gt $gte $lt $lte $exists`` and ``$and $or $not``. None for
                no filter.
            min_confidence: Smallest probability, from 0 to 1, that what is searched holds an answer; below it the
                result is empty, with a note that says so. Only v2 knows it. None for any; ``Recalled.confidence`` tells
                it.
            queries: Function that turns the question into the queries of the strategy, such as ``generate_queries``;
                None for the strategy's default: rules for v1, the question itself for the others.

        Raises:
            UnknownSpaceError: If there is no such space.
            UnknownScopeError: If no space belongs to that user or agent.
            LocigraphError: If no space is named, there is no such speaker, the strategy cannot be used, or the index
                fails; an outage is never reported as an empty result.
        """
        asking = AskedQuestion(
            question=question, space=space, user=user, agent=agent, top_k=top_k, budget_tokens=budget_tokens,
            budget_kinds=budget_kinds, as_of=as_of, strategy=strategy, reranker=reranker, speaker=speaker, fold=fold,
            include_superseded=include_superseded, filter=filter, min_confidence=min_confidence, queries=queries,
        )  # fmt: skip
        found = self._recalled_at_once(asking)
        return self._recalled(asking) if found is None else found

    def recall_each(self, questions: Sequence[Mapping[str, Any]]) -> list[Recalled | Exception]:
        """Answer several questions as ``recall`` does; what they have in common is done once.

        Args:
            questions: For each the arguments of ``recall``.

        Returns:
            For each what was found, or the error that ``recall`` would raise.
        """
        made = _asked_questions(questions)
        at_once = self._answered_at_once(made)
        waiting = [
            asked
            for asked, found in zip(made, at_once, strict=True)
            if found is None and isinstance(asked, AskedQuestion)
        ]
        # Those that have to wait come last.
        waiting.sort(key=lambda asked: self._rebuilt.is_among(asked.space))
        held = self._brought_up_to_date([each for each in waiting if each.is_plain]) if waiting else {}
        later = {id(each): outcome(partial(self._recalled, each, held)) for each in waiting}
        return [later[id(asked)] if found is None else found for asked, found in zip(made, at_once, strict=True)]

    def _brought_up_to_date(self, waiting: Sequence[AskedQuestion]) -> dict[SpaceId, Standing]:
        """Bring v2 up to date for all spaces of some questions together, which costs less than for each.

        Returns:
            How the spaces stood, as of which they are up to date. What goes wrong each question will meet, too.
        """
        with self._lock:
            current = [each for each in waiting if not self._rebuilt.is_among(each.space)]
            named = [outcome(partial(self._parts.asked, each)) for each in current]
            found = [asked.standings for asked in named if isinstance(asked, AskedSpaces)]
            standings = dict(ChainMap(*map(dict, found)))
            done = outcome(partial(self._parts.bring_up_to_date, standings))
            is_done = not isinstance(done, Exception)
            return {space: replace(each, due=0) for space, each in standings.items()} if is_done else {}

    def recall_at_once(self, questions: Sequence[Mapping[str, Any]]) -> list[Recalled | Exception | None]:
        """Answer those among several questions for which nothing has to be brought up to date first.

        They wait for no writer, and for no update of other spaces.

        Args:
            questions: For each the arguments of ``recall``.

        Returns:
            For each what was found, the error that ``recall`` would raise, or None if ``recall`` has more to do.
        """
        return self._answered_at_once(_asked_questions(questions))

    def _answered_at_once(self, made: Sequence[AskedQuestion | Exception]) -> list[Recalled | Exception | None]:
        asked = [each for each in made if isinstance(each, AskedQuestion)]
        named = {each.space for each in asked if isinstance(each.space, str)}
        held = outcome(partial(self._standings, [*map(SpaceId, named)]))
        if isinstance(held, Exception):
            return [held if isinstance(each, AskedQuestion) else each for each in made]
        self._parts.encode_ahead([(each.question, each.time) for each in asked if each.is_plain and not each.queries])
        return [
            outcome(partial(self._recalled_at_once, each, held)) if isinstance(each, AskedQuestion) else each
            for each in made
        ]

    def _standings(self, spaces: Sequence[SpaceId]) -> dict[SpaceId, Standing]:
        with self._reading:
            return self._graph.standings(spaces)

    def _recalled_at_once(
        self, asking: AskedQuestion, held: Mapping[SpaceId, Standing] | None = None
    ) -> Recalled | None:
        """The answer of v2, if all the spaces are held in memory as they stand; else None."""
        if not asking.is_plain:
            return None
        with self._reading:
            if self._rebuilt.is_among(asking.space):
                return None
            asked = self._parts.asked(asking, held)
            retriever = self._parts.ready(asked)
            if retriever is None:
                return None
            try:
                return self._found(asking, asked, "v2", retriever, ())
            except NotKeptError:  # another thread has just dropped a space
                return None

    def _recalled(self, asking: AskedQuestion, held: Mapping[SpaceId, Standing] | None = None) -> Recalled:
        """The answer, after whatever has to be done for it; nothing if its spaces are up to date as of ``held``."""
        if held and isinstance(asking.space, str) and asking.space in held:
            found = self._recalled_at_once(asking, held)
            if found is not None:
                return found
        return self._searched(asking) if asking.reranker is None else self._reranked(asking, asking.reranker)

    def _reranked(self, asking: AskedQuestion, model: str | os.PathLike[str]) -> Recalled:
        """The answer with a reranker, for which no other question has to wait while it is loaded or reads."""
        from locigraph.retrieval.rerank import ReadAhead, UnreadError

        with self._reading:
            self._parts.asked(asking)  # raises before anything is loaded
        reranker = ReadAhead(named_reranker(model), asking.question)
        while True:
            try:
                found = self._searched(asking, reranker)
                return replace(found, timing=found.timing + reranker.timing)
            except UnreadError as unread:
                reranker.read_ahead(unread.texts)

    def _searched(self, asking: AskedQuestion, reranker: Reranker | None = None) -> Recalled:
        with self._seeing(asking.space, asking.scope):
            asked = self._parts.asked(asking)
            try:
                with self._parts.retriever(asked, asking.strategy, asking.queries) as (name, retriever, notes):
                    return self._found(asking, asked, name, retriever, notes, reranker)
            except StaleEmbeddingsError as error:  # another process has put another checkpoint in use
                if asking.strategy is not None:
                    raise
                why = why_v1(str(error))
            with self._parts.retriever(asked, "v1", asking.queries) as (name, retriever, notes):
                return self._found(asking, asked, name, retriever, [*notes, why], reranker)

    def _found(
        self,
        asking: AskedQuestion,
        asked: AskedSpaces,
        strategy: str,
        found_by: Retriever,
        notes: Sequence[str],
        reranker: Reranker | None = None,
    ) -> Recalled:
        """What a strategy finds, as it is shown."""
        from locigraph.retrieval.multi_query import with_queries
        from locigraph.retrieval.rerank import RerankedRetriever

        speakers = asked.speakers(asking.speaker)
        dated = found_by.asked_from(lambda _: self._day_of_asking(asked.spaces))
        # What confidence reads must be what may be shown; other strategies find the next ones when they are asked.
        limited = self._parts.limited(dated, asked, asking, speakers if strategy == "v2" else None)
        several = with_queries(limited, asking.queries, lambda _: self._last_day(asked.spaces))
        now = datetime.now(UTC) if asked.have_expiring else None
        condition = asking.condition
        shown = asked.speakers_of_shown(speakers=speakers, condition=condition, now=now)
        judging = ConfidentRetriever(several, shown) if strategy == "v2" else None
        if asking.min_confidence is not None and judging is None:
            raise CheckpointError(f"min_confidence needs v2, but {strategy} answers; {'; '.join(notes)}")
        viewed = FilteredRetriever(
            judging or several, asked.origins_of, speakers=speakers, condition=condition, now=now, fold=asking.fold
        )
        retriever = SupersedingRetriever(
            viewed if reranker is None else RerankedRetriever(viewed, reranker),
            asked.origins_of,
            current_first=not asking.include_superseded,
            admits=partial(admitted, condition=condition, now=now),
        )
        if asking.budget_tokens is None:
            found = retriever.retrieve(asking.question, asked.name, as_of=asking.time, top_k=asking.top_k)
            hits, context = found.hits[: asking.top_k], None
        else:
            from locigraph.retrieval.budgets import Budget
            from locigraph.retrieval.packing import retrieve_contexts

            budget = Budget(tokens=asking.budget_tokens, kinds=asking.kinds)
            found, (context,) = retrieve_contexts(
                retriever,
                asking.question,
                asked.dates(asking.time),
                [budget],
                space=asked.name,
                as_of=asking.time,
                top_k=asking.top_k,
            )
            kept = {line.node_id for line in context.memories}
            hits = tuple(hit for hit in found.hits if hit.node_id in kept)
        # What is being added at this moment nobody was told is stored, so nothing is lacking.
        stored = {
            space: replace(each, pending=0) if self._being_added[space] else each
            for space, each in asked.standings.items()
        }
        cut_off = f"only the best {MOST_FOUND:,} memories were looked at, and most of them are left out by the filter"
        lacks = viewed.is_cut_off and len(found.hits) < asking.top_k
        said = (*notes, *((cut_off,) if lacks else ()), *opening.partial_memory(self._graph, stored))
        confidence = None if judging is None else judging.confidence
        if confidence is not None and asking.min_confidence is not None and confidence < asking.min_confidence:
            unlikely = (
                f"nothing here answers this with a confidence of {asking.min_confidence:g}: it is {confidence:.2f}"
            )
            nothing = None if context is None else replace(context, lines=())
            return Recalled((), strategy, found.timing, (*said, unlikely), nothing, confidence)
        return Recalled(asked.shown(hits, asking.time), strategy, found.timing, said, context, confidence)

    def profile(
        self,
        *,
        space: str | Sequence[str] | None = None,
        user: str | None = None,
        agent: str | None = None,
        speaker: str | None = None,
        budget_tokens: int = 1_000,
        worded: bool = False,
    ) -> Profile:
        """What is known about one person: the facts that hold now and the events, with their days and source turns.

        They are grouped by the categories of ``locigraph classify``; ``str`` makes a text for a prompt of it.

        Args:
            space: The space, or several.
            user: All spaces of this user together.
            agent: All spaces of this agent together.
            speaker: The person, as named in the turns; None for the one about whom most is known. Only what somebody
                says in their own words counts as known about them.
            budget_tokens: Size of the text; what was stated last goes first.
            worded: Whether a language model (``llm`` of ``open``) joins the statements of a category to fewer
                sentences, each with the turns of all that it says. It is asked only for categories that have changed,
                since its replies are kept. A reply with numbers or names of its own is not used.

        Raises:
            UnknownSpaceError: If there is no such space.
            UnknownScopeError: If no space belongs to that user or agent.
            LocigraphError: If no space is named, there is no such speaker, or ``worded`` is set without a model.
            LanguageModelError: If the model cannot be asked, or a limit is reached.
        """
        options.check_positive("budget_tokens", budget_tokens)
        options.check_text("speaker", speaker)
        client = self._parts.client("profile") if worded else None  # raises before anything is read
        with self._seeing(space, Scope(user, agent)):
            standings = named_spaces(self._graph, space, Scope(user, agent))
            nodes = {each: self._graph.nodes(each, types=fact_types()) for each in standings}
            known = {each: self._parts.known(each, standings[each], held) for each, held in nodes.items()}
            found = profile_of(
                self._graph, known, nodes, speaker=speaker, budget_tokens=budget_tokens, now=datetime.now(UTC)
            )
        return found if client is None else worded_profile(found, client)  # questions do not wait for the model

    def state(self) -> MemoryState:
        """Whether v2 can answer, and how much is still to be indexed.

        Raises:
            LocigraphError: If the index does not answer.
        """
        with self._lock:
            self._parts.index().collections()
            live_embeddings = self._parts.live()
            return MemoryState(
                checkpoint=None if live_embeddings is None else live_embeddings.version,
                reason=self._parts.why_no_v2,
                due_rows=self._graph.outbox_size(),
                due_spaces=self._parts.due_spaces(),
            )

    def warm_up(self) -> None:
        """Load models and checkpoint now, so that the first ``add`` and ``recall`` need not wait for it."""
        with self._lock:
            for encoder in plain_and_adapted(self._encoder):
                encoder.load()
            self._parts.live()

    def notes(self, space: str) -> list[str]:
        """What a caller should know about a space: how many of its turns are pending, or have failed."""
        with self._lock:
            return opening.partial_memory(self._graph, named_spaces(self._graph, options.one_space(space), ANYBODY))

    def explain(
        self,
        question: str,
        *,
        space: str,
        top_k: int = 3,
        as_of: str | datetime | None = None,
        turn_ids: str | Sequence[str] | None = None,
    ) -> list[Explanation]:
        """Decompose the scores of v2's best turns: shares of their own meaning and words, neighbours, speaker and date.

        The best are those of the graph: what ``recall`` adds for looked-up words (signal ``looked_up``) is no part.
        Turns that are not consolidated yet are missing; ``notes`` counts them. With ``turn_ids``, these turns are
        explained instead, such as those of a hit, whatever their rank; a string is the ID of one turn.

        Raises:
            UnknownSpaceError: If there is no such space.
            CheckpointError: If no checkpoint can be read.
            LocigraphError: If the question or ``turn_ids`` is empty, the graph does not have one of ``turn_ids``, or
                the checkpoint is one of ``hgtconv``, whose scores cannot be decomposed.
        """
        options.check_question(question)
        options.check_positive("top_k", top_k)
        if turn_ids is not None and not turn_ids:
            raise LocigraphError("turn_ids is empty; name the turns to explain, or None for the best ones")
        time, name = options.time_of(as_of), options.one_space(space)
        with self._seeing(name):
            self._graph.require_space(name)
            expired = {turn for turns in self._graph.expired(datetime.now(UTC), [name]).values() for turn in turns}

            from locigraph.assembly.graphs import embed_all
            from locigraph.training.explanation import explain  # imports PyTorch

            if not self._is_readonly:
                embed_all([name], self._graph, self._encoder, progress=False)
            found = explain(
                self._parts.checkpoint(),
                snapshot_with_vectors(self._graph, name, self._encoder, as_of=time),
                question,
                encoder=self._encoder,
                top_k=top_k + len(expired),
                asked_at=asking_time(question, name, as_of=time, day_of=lambda _: self._day_of_asking([name])),
                turn_ids=None if turn_ids is None else [*map(TurnId, options.listed(turn_ids))],
                statistics=self._parts.word_statistics(name),
            )
            return self._without_expired(name, found, expired)[: top_k if turn_ids is None else len(found)]

    def _without_expired(
        self, space: SpaceId, explained: Sequence[Explanation], expired: AbstractSet[TurnId]
    ) -> list[Explanation]:
        """Explanations without turns whose time has come, and without what these turns add to others."""
        if not expired:
            return [*explained]
        origins = self._graph.origins_of(space, [each.node_id for turn in explained for each in turn.influences])
        gone = {node for node, said in origins.items() if any(each.turn_id in expired for each in said)}
        return [
            replace(turn, influences=tuple(each for each in turn.influences if each.node_id not in gone))
            for turn in explained
            if turn.turn_id not in expired
        ]

    def _day_of_asking(self, spaces: Sequence[SpaceId]) -> date:
        return day_of_asking(self._last_day(spaces), datetime.now(UTC).date())

    def _last_day(self, spaces: Sequence[SpaceId]) -> date | None:
        times = [time for time in self._graph.last_spoken(spaces).values() if time is not None]
        return max(times).date() if times else None


def _asked_questions(questions: Sequence[Mapping[str, Any]]) -> list[AskedQuestion | Exception]:
    """Questions of arguments of ``Memory.recall``, each or what is wrong with it."""
    known = [field.name for field in fields(AskedQuestion)]

    def asked_of(given: Mapping[str, Any]) -> AskedQuestion:
        if not isinstance(given, Mapping):
            raise LocigraphError(f"a question is {shortened(given)}; give each as the arguments of Memory.recall")
        if unknown := [name for name in given if name not in known]:
            raise LocigraphError(f"argument {shortened(unknown[0])} is not known{nearest(str(unknown[0]), known)}")
        if "question" not in given:
            raise LocigraphError("argument question is missing")
        return AskedQuestion(**given)

    options.check_list("questions", questions, "the arguments of Memory.recall")
    return [outcome(partial(asked_of, each)) for each in questions]

"""How a memory forgets: store and text cache first, then the index, so that an interrupted call can be completed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from locigraph.assembly import options
from locigraph.kg.counts import counted, is_or_are
from locigraph.kg.errors import LocigraphError, UnknownScopeError, UnknownSpaceError, shortened
from locigraph.kg.store import Store
from locigraph.kg.text_caches import forget_texts
from locigraph.kg.types import Scope, SpaceId, TurnId, TurnState
from locigraph.memory.asked_spaces import named_spaces
from locigraph.memory.parts import Parts
from locigraph.retrieval.errors import RetrievalError


def turns_named(
    space: str | Sequence[str] | None, turn_ids: str | Sequence[str] | None, whole_space: bool, scope: Scope
) -> Collection[TurnId] | None:
    """The turns to forget, without duplicates; None if whole spaces are to be forgotten.

    Raises:
        LocigraphError: If the arguments name both turns and whole spaces, or neither.
    """
    if turn_ids is not None and not turn_ids:
        raise LocigraphError("turn_ids is empty; name the turns to erase")
    if (turn_ids is None) != (whole_space or bool(scope)) or (turn_ids is not None and not isinstance(space, str)):
        raise LocigraphError(
            f"{scope if scope else f'space {shortened(space)}'}: name the turns to erase, all of one space, or choose "
            "the whole space; for a user or agent name no turns, since all of their spaces are erased"
        )
    return None if turn_ids is None else dict.fromkeys(map(TurnId, options.listed(turn_ids)))


def forget(parts: Parts, space: str | Sequence[str] | None, named: Collection[TurnId] | None, scope: Scope) -> int:
    """Erase the named turns of one space, or whole spaces if ``named`` is None; see ``Memory.forget``."""
    graph = parts.graph
    was_cut = graph.has_forgotten()
    try:
        gone = set() if named is None else graph.forgotten(SpaceId(str(space)), named)
        left = None if named is None else [turn for turn in named if turn not in gone]
        spaces = [] if left == [] else _left(graph, space, scope)
        erased = _erase(parts, spaces, left) if spaces else 0
    except (UnknownSpaceError, UnknownScopeError) as error:
        # Of a user whose spaces are gone the store remembers nothing.
        if isinstance(error, UnknownSpaceError) or not was_cut:
            graph.empty_log()
            raise
        erased = 0
    # Even if nothing was left to erase: an earlier call may have been interrupted after the store forgot.
    parts.has_forgotten = True
    try:
        parts.drain()
    except RetrievalError as error:
        if was_cut or erased:
            raise LocigraphError(
                f"{counted(erased, 'node')} of {space or scope} {is_or_are(erased)} erased from the store, but not "
                f"yet from the index ({error}); call forget again to complete it"
            ) from error
        parts.has_forgotten = False  # the process that has the index open brings it up to date
    graph.empty_log()
    if named is not None:
        _consolidate_again(parts, SpaceId(str(space)))
    return erased


def _left(graph: Store, space: str | Sequence[str] | None, scope: Scope) -> list[SpaceId]:
    """The spaces to forget, without the named ones that were forgotten already; raises as ``named_spaces``."""
    options.check_named(space, scope)
    names = [SpaceId(each) for each in options.listed(space or ())]
    held = graph.standings(names)
    left = [name for name in names if name in held or not graph.has_forgotten_of(name)]
    return [] if names and not left else [*named_spaces(graph, left if names else space, scope)]


def forget_expired(parts: Parts, expired: Mapping[SpaceId, Sequence[TurnId]]) -> int:
    """Erase turns of several spaces, which keep their owners; returns the number of turns.

    Without turns, what an earlier call has left of others is completed.
    """
    for space, turns in expired.items():
        with suppress(UnknownSpaceError):  # another process has forgotten it meanwhile
            _erase(parts, [space], turns, are_expired=True)
    parts.has_forgotten = True
    try:
        parts.drain()
    except RetrievalError as error:
        raise LocigraphError(
            f"what has expired is erased from the store, but not yet from the index ({error}); call forget_expired, or "
            "locigraph forget --expired, again to complete it"
        ) from error
    parts.graph.empty_log()
    for space in expired:
        _consolidate_again(parts, space)
    return sum(map(len, expired.values()))


def _consolidate_again(parts: Parts, space: SpaceId) -> None:
    """Consolidate a space whose turns are all pending, since forgetting has changed their order.

    If that takes a language model or another extractor, they stay pending until turns are added or the graph is built.
    """
    if parts.waits_for_models or space not in parts.graph.spaces():
        return
    counts = parts.graph.turn_counts(space)
    if counts[TurnState.PENDING] == counts.total() > 0 and parts.writer().is_builder_of(space):
        parts.writer().consolidate([space])


def _erase(
    parts: Parts, spaces: Sequence[SpaceId], named: Collection[TurnId] | None, *, are_expired: bool = False
) -> int:
    """Erase turns of one space, or whole spaces, from text cache and store; returns the number of nodes."""
    from locigraph.assembly.graphs import encoded_of

    parts.drop(spaces)
    held = [turn for space in spaces for turn in parts.graph.turns(space)]
    turns = held if named is None else [turn for turn in held if turn.turn_id in named]

    def drop_vectors(texts: Sequence[str]) -> None:
        parts.encoder.forget(encoded_of(turns, texts))

    try:
        if named is None:
            return parts.graph.forget_spaces(spaces, before_erasing=drop_vectors)
        return parts.graph.forget(spaces[0], list(named), before_erasing=drop_vectors, are_expired=are_expired)
    finally:
        forget_texts()  # the turns were read again, to know of which texts there may be vectors

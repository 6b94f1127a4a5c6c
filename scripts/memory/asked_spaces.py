"""Finds the spaces that ``Memory.recall`` or ``Memory.forget`` is asked about, and treats several of them as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime

from locigraph.kg.counts import counted
from locigraph.kg.errors import LocigraphError, UnknownScopeError, UnknownSpaceError, nearest, shortened
from locigraph.kg.joint import parted, read_by_space
from locigraph.kg.language.tokens import normalised
from locigraph.kg.name_list import names_in
from locigraph.kg.schema import dated_types
from locigraph.kg.store import Store
from locigraph.kg.types import NodeId, Scope, SpaceId, TurnId
from locigraph.retrieval.protocols import Hit
from locigraph.scripts.assembly import options


def named_spaces(graph: Store, space: str | Sequence[str] | None, scope: Scope) -> list[SpaceId]:
    """The spaces that match both the given names (None for all) and the scope; at least one.

    Raises:
        UnknownSpaceError: If a named space does not exist.
        UnknownScopeError: If none of the spaces belongs to the scope.
    """
    options.check_named(space, scope)
    held = graph.scopes()
    named = held if space is None else [SpaceId(name) for name in options.listed(space)]
    for name in named:
        if name not in held:
            raise UnknownSpaceError(name, held)
    found = [name for name in dict.fromkeys(named) if scope.covers(held[name])]
    if not found:
        known = {
            Scope(None if scope.user is None else each.user, None if scope.agent is None else each.agent)
            for each in (held[name] for name in named)
        }
        named_alone = space if isinstance(space, str) else None
        raise UnknownScopeError(str(scope), [str(each) for each in known if each], named_alone)
    return found


class AskedSpaces:
    """The spaces that a question searches: a single one, or several as one graph (see ``kg.joint``).

    Attributes:
        spaces: The spaces.
        is_joint: Whether strategies see them as one graph, in which IDs are prefixed with their space.
        name: Name of the space that strategies are told to search.
    """

    def __init__(self, graph: Store, spaces: Sequence[SpaceId], *, is_joint: bool) -> None:
        self._graph = graph
        self.spaces = spaces
        self.is_joint = is_joint
        self.name = SpaceId("spaces asked together") if is_joint else spaces[0]

    def speakers_of(self, space: SpaceId, ids: Sequence[NodeId]) -> Mapping[NodeId, frozenset[str]]:
        """See ``Store.speakers_of``."""
        return read_by_space(ids, self._graph.speakers_of) if self.is_joint else self._graph.speakers_of(space, ids)

    def speakers(self, named: str | Sequence[str] | None) -> list[str] | None:
        """The named speakers, None for all.

        A text is one name if somebody has it; otherwise commas separate several.

        Raises:
            LocigraphError: If one of them never speaks in the spaces.
        """
        if named is None:
            return None
        known = {normalised("NFC", speaker) for space in self.spaces for speaker in self._graph.speakers(space)}
        is_one = isinstance(named, str) and ("," not in named or normalised("NFC", named) in known)
        wanted = options.listed(named if is_one else names_in(named))
        if not wanted:
            raise LocigraphError("speaker is an empty list; name at least one speaker, or None for all")
        for name in wanted:
            if normalised("NFC", name) not in known:
                more = len(self.spaces) - 1
                where = repr(self.spaces[0]) + (f" and {counted(more, 'other')}" if more else "")
                raise LocigraphError(f"no speaker {shortened(name)} in space {where}{nearest(name, known)}")
        return wanted

    def shown(self, hits: Sequence[Hit], as_of: datetime | None) -> tuple[Hit, ...]:
        """Hits with the fields that strategies leave empty: the space, and the end of validity, as known at a time."""
        facts = [hit.node_id for hit in hits if hit.type not in dated_types()]

        def ends(space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, date]:
            nodes = self._graph.nodes(space, ids=ids, as_of=as_of)
            return {node.id: node.valid_to.date() for node in nodes if node.valid_to is not None}

        until: Mapping[NodeId, date] = {}
        if facts:
            until = read_by_space(facts, ends) if self.is_joint else ends(self.name, facts)
        return tuple(self._with_space_names(replace(hit, until=until.get(hit.node_id))) for hit in hits)

    def _with_space_names(self, hit: Hit) -> Hit:
        """The hit with its space, and with the IDs that its node and turns have within that space."""
        if not self.is_joint:
            return replace(hit, space=self.name)
        space, node = parted(hit.node_id)
        same: dict[str, list[TurnId]] = {}
        for turn in hit.same:
            other, name = parted(turn)
            same.setdefault(other, []).append(name)
        return replace(
            hit,
            space=space,
            node_id=node,
            turn_ids=tuple(parted(turn)[1] for turn in hit.turn_ids),
            same=tuple(same.pop(space, ())),
            elsewhere={other: tuple(names) for other, names in same.items()},
        )

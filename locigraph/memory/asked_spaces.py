"""Finds the spaces that ``Memory.recall`` or ``Memory.forget`` is asked about, and treats several of them as one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import partial

from locigraph.assembly import options
from locigraph.assembly.search_parts import texts_of
from locigraph.kg.counts import counted
from locigraph.kg.errors import LocigraphError, UnknownScopeError, UnknownSpaceError, nearest, shortened
from locigraph.kg.joint import parted, read_by_space
from locigraph.kg.language.tokens import normalised
from locigraph.kg.name_list import names_in
from locigraph.kg.schema import EPISODE, dated_types
from locigraph.kg.store import Store
from locigraph.kg.store.standing import Standing
from locigraph.kg.types import NodeId, Scope, SpaceId, TurnId
from locigraph.memory.known_nodes import KnownNode, KnownNodes
from locigraph.retrieval.conditions import Condition
from locigraph.retrieval.confidence import SpeakersOf
from locigraph.retrieval.hit_filters import is_shown
from locigraph.retrieval.packing import Dates, Told
from locigraph.retrieval.protocols import Hit

_EVER = datetime.min.replace(tzinfo=UTC)


def named_spaces(
    graph: Store, space: str | Sequence[str] | None, scope: Scope, *, held: Mapping[SpaceId, Standing] | None = None
) -> dict[SpaceId, Standing]:
    """The spaces that match both the given names (None for all) and the scope, and how they stand; at least one.

    Args:
        graph: The store.
        space: The names.
        scope: The scope.
        held: How a single named space stands, if that was read; None to read it.

    Raises:
        UnknownSpaceError: If a named space does not exist.
        UnknownScopeError: If none of the spaces belongs to the scope.
    """
    options.check_named(space, scope)
    named = None if space is None else list(dict.fromkeys(SpaceId(name) for name in options.listed(space)))
    if held is None or not isinstance(space, str):
        held = graph.standings(named, scope)
    for name in named or ():
        if name not in held:
            raise UnknownSpaceError(name, graph.spaces())
    held = {name: held[name] for name in named or held}  # no error may name the owners of others
    found = {name: held[name] for name in named or held if scope.covers(held[name].scope)}
    if not found:
        held = graph.standings() if named is None else held
        known = {
            Scope(None if scope.user is None else each.user, None if scope.agent is None else each.agent)
            for each in (standing.scope for standing in held.values())
        }
        named_alone = space if isinstance(space, str) else None
        raise UnknownScopeError(str(scope), [str(each) for each in known if each], named_alone)
    return found


class AskedSpaces:
    """The spaces that a question searches: a single one, or several as one graph (see ``kg.joint``).

    Args:
        graph: The store.
        standings: The spaces, and how they stand.
        known: Keeps what answers show of nodes.
        is_joint: Whether strategies see them as one graph, in which IDs are prefixed with their space.

    Attributes:
        standings: As given.
        spaces: The spaces.
        is_joint: As given.
        name: Name of the space that strategies are told to search.
    """

    def __init__(
        self,
        graph: Store,
        standings: Mapping[SpaceId, Standing],
        known: KnownNodes,
        *,
        is_joint: bool,
    ) -> None:
        self._graph = graph
        self._known = known
        self.standings = standings
        self.spaces: Sequence[SpaceId] = [*standings]
        self.is_joint = is_joint
        self.name = SpaceId("spaces asked together") if is_joint else self.spaces[0]

    @property
    def have_expiring(self) -> bool:
        """Whether some of their turns are to be forgotten one day."""
        return any(each.expires_at is not None for each in self.standings.values())

    def _nodes(self, ids: Sequence[NodeId]) -> Mapping[NodeId, KnownNode]:
        """At least these nodes, as they are now."""

        def read(space: SpaceId, own: Sequence[NodeId]) -> Mapping[NodeId, KnownNode]:
            return self._known.of(space, self.standings.get(space), own)

        def read_joint(space: SpaceId, own: Sequence[NodeId]) -> Mapping[NodeId, KnownNode]:
            known = read(space, own)
            return {node: known[node].within(space) for node in own}

        found = read_by_space(ids, read_joint) if self.is_joint else read(self.name, ids)
        if not self.have_expiring:
            return found
        now = datetime.now(UTC)
        return {node: found[node].without_expired(now) for node in ids}

    def texts(self, space: SpaceId, ids: Sequence[NodeId], as_of: datetime | None) -> Mapping[NodeId, str]:
        """Texts of nodes, as they were known at a time (None: now); those that are not active are left out."""
        if as_of is not None:
            return texts_of(self._graph, is_joint=self.is_joint)(space, ids, as_of)
        known = self._nodes(ids)
        return {node: text for node in ids if (text := known[node].text) is not None}

    def origins_of(self, space: SpaceId, ids: Sequence[NodeId]) -> Mapping[NodeId, KnownNode]:
        """Whose words nodes contain, and whether they still hold; nodes that are not stored are left out."""
        known = self._nodes(ids)
        return {node: known[node] for node in ids if known[node].speakers}

    def speakers_of_shown(
        self, *, speakers: Sequence[str] | None, condition: Condition | None, now: datetime | None
    ) -> SpeakersOf:
        """A function that reads whose words turns contain, of those that an answer may show (``FilteredRetriever``)."""
        shown = partial(is_shown, node_type=EPISODE, speakers=speakers, condition=condition, now=now)

        def read(space: SpaceId, ids: Sequence[NodeId]) -> Mapping[NodeId, frozenset[str]]:
            known = self.origins_of(space, ids)
            return {node: each.speakers for node, each in known.items() if shown(each)}

        return read

    def speakers(self, named: str | Sequence[str] | None) -> list[str] | None:
        """The named speakers, None for all.

        A text is one name if somebody has it; otherwise commas separate several.

        Raises:
            LocigraphError: If one of them never speaks in the spaces.
        """
        if named is None:
            return None
        now = datetime.now(UTC)
        known = {normalised("NFC", each) for space in self.spaces for each in self._graph.speakers(space, now=now)}
        is_many = isinstance(named, str) and "," in named and normalised("NFC", named) not in known
        wanted = options.listed(names_in(named) if is_many else named)
        if not wanted:
            raise LocigraphError("speaker is an empty list; name at least one speaker, or None for all")
        for name in wanted:
            if normalised("NFC", name) not in known:
                more = len(self.spaces) - 1
                where = repr(self.spaces[0]) + (f" and {counted(more, 'other')}" if more else "")
                raise LocigraphError(f"no speaker {shortened(name)} in space {where}{nearest(name, known)}")
        return wanted

    def shown(self, hits: Sequence[Hit], as_of: datetime | None) -> tuple[Hit, ...]:
        """Hits with the fields that strategies leave empty: space, time, and end of validity, as known at a time."""
        known, ends = self._nodes([hit.node_id for hit in hits]), self._ends(hits, as_of)
        return tuple(
            self._shown(replace(hit, until=ends.get(hit.node_id, hit.until), spoken_at=known[hit.node_id].spoken_at))
            for hit in hits
        )

    def _ends(self, hits: Sequence[Hit], as_of: datetime | None) -> Mapping[NodeId, date | None]:
        """The day on which something took the place of each fact among hits, as known at a time; see ``Dates``."""
        dated = dated_types()
        facts = [hit.node_id for hit in hits if hit.type not in dated]
        known = self._nodes(facts)
        ends = {node: known[node].until for node in facts}
        if as_of is None:
            return ends

        def past(space: SpaceId, ids: Sequence[NodeId]) -> dict[NodeId, date | None]:
            nodes = self._graph.nodes(space, ids=ids, as_of=as_of)
            return {node.id: None if node.valid_to is None else node.valid_to.date() for node in nodes}

        then = read_by_space(facts, past) if self.is_joint else past(self.name, facts)
        # What a late turn has ended may have no end yet in what was stored of it at that time.
        found = {hit.node_id: hit.until for hit in hits if hit.superseded_by}
        return {node: then.get(node) or found.get(node) if end is not None else None for node, end in ends.items()}

    def dates(self, as_of: datetime | None) -> Dates:
        """When what hits contain was said, as known at a time; spaces follow each other in the order of their begin."""
        return _AskedDates(self._graph, self, as_of)

    def _shown(self, hit: Hit) -> Hit:
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


class _AskedDates:
    """Reads the dates of what hits contain, and of nothing else, from the store."""

    def __init__(self, graph: Store, asked: AskedSpaces, as_of: datetime | None) -> None:
        self._graph, self._asked, self._as_of = graph, asked, as_of

    def of_turns(self, ids: Collection[TurnId]) -> Mapping[TurnId, Told]:
        """See ``Dates``."""
        if not self._asked.is_joint:
            return self._read(0, self._asked.name, [*ids])
        began = self._graph.first_spoken([*{parted(turn)[0] for turn in ids}])
        order = sorted(began, key=lambda space: (began[space] is None, began[space] or _EVER, space))
        return read_by_space(ids, lambda space, own: self._read(order.index(space), space, own))

    def _read(self, number: int, space: SpaceId, ids: Sequence[TurnId]) -> dict[TurnId, Told]:
        places = self._graph.places_of(space, ids)
        return {
            turn: Told((number, position), None if spoken_at is None else spoken_at.date())
            for turn, (position, spoken_at) in places.items()
            if self._as_of is None or spoken_at is None or spoken_at <= self._as_of
        }

    def ends(self, hits: Sequence[Hit]) -> Mapping[NodeId, date | None]:
        """See ``Dates``."""
        return self._asked._ends(hits, self._as_of)

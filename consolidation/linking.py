"""Links memories to their causes and to the things they name: a second pass over a graph.

The links are edges ``CAUSES`` and ``MENTIONS``. Fixed rules find them, and a language model finds more where one is
given. What is there is left as it is, and links go with the memories and entities that they join, so that running the
pass again changes nothing. MAGMA, TEMPR and HippoRAG search along these edges; v1, v2, the weighted sums and the fusion
read neither.

Source:
    Jiang et al. 2026, "MAGMA: A Multi-Graph based Agentic Memory Architecture for AI Agents", arXiv:2601.03236: the
    slow path, eq. 8 and algorithm 3. The rules are a plain stand-in for its language model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from locigraph.consolidation.errors import ReplyFormatError
from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.prompting import messages
from locigraph.consolidation.replies import Form, filled, strict_schema
from locigraph.consolidation.resolution import full_name
from locigraph.kg.counts import Counts, counted
from locigraph.kg.language.tokens import STOP_WORDS, words
from locigraph.kg.schema import answer_types
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import UNDATED, GraphChange, NewRelation, NodeId, SpaceId, TurnState

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient

#: A memory with one of these phrases is an effect of the memory before it.
CAUSAL_CUE = re.compile(
    r"\b(because|since then|that's why|that is why|therefore|as a result|so that|due to|thanks to|led to"
    r"|inspired|made me|helped me|motivated|which is why)\b"
)
# Kinds of entities whose names are names; what extractors call "other" is often no more than a noun.
_NAMED_KINDS = frozenset({"person", "organisation", "location", "product"})
_IN_TIME = ("NEXT", "PRECEDES")
_HOPS = 2  # in time, of the memories that a model is shown around one
_AROUND = 12  # memories of one request
_ENTITIES = 24  # entities of one request
_MOST_SAID = 2_000  # characters of a memory that are shown
_MOST_LINKS = 8  # of either kind in a reply


@dataclass(frozen=True, slots=True)
class Linked(Counts):
    """What a run added: links to causes and to entities; and requests whose replies were of no use."""

    causes: int = 0
    mentions: int = 0
    useless: int = 0

    def __str__(self) -> str:
        told = f"{counted(self.causes, 'link')} to causes and {self.mentions} to entities made"
        return told + (f", replies of no use: {self.useless}" if self.useless else "")


# Which values these have is known request by request, and filled in by ``strict_schema``.
_MemoryId = Annotated[str, Field(json_schema_extra={"enum": "memories"})]
_EntityId = Annotated[str, Field(json_schema_extra={"enum": "entities"})]


class CauseForm(Form):
    """A memory and what it brought about."""

    cause: _MemoryId
    effect: _MemoryId


class MentionForm(Form):
    """A memory and an entity that it speaks of."""

    memory: _MemoryId
    entity: _EntityId


class LinksForm(Form):
    """What a language model replies."""

    causes: list[CauseForm] = Field(max_length=_MOST_LINKS)
    mentions: list[MentionForm] = Field(max_length=_MOST_LINKS, default=[])


class Linker:
    """Adds the links that a space lacks; running it again changes nothing more.

    Args:
        store: The graph; links are added in few transactions, so a build may run beside it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(
        self, space: SpaceId, client: ChatClient | None = None, *, is_stopped: Callable[[], bool] = lambda: False
    ) -> Linked:
        """Add the links that rules find, and then those that a model sees, until told to stop between two requests.

        Args:
            space: The space.
            client: A language model that is asked about each turn and event that no model was asked about before; None
                for rules alone.
            is_stopped: Asked before each request.

        Raises:
            UnknownNodeError: If a node was erased meanwhile; run again.
            LanguageModelError: If the endpoint fails; what is done is kept.
        """
        seen = self._store.snapshot(space)
        kinds = {node.id: str(node.attributes.get("kind")) for node in self._store.nodes(space, types=["entity"])}
        total = self._add(seen, [*causes_of(seen), *mentions_of(seen, kinds)])
        while client is not None and not is_stopped():
            done = self._ask(space, client)
            if done is None:
                break
            total += done
        return total

    def _ask(self, space: SpaceId, client: ChatClient) -> Linked | None:
        """Ask about the next memory; None where there is none, or while turns are pending that may come after it."""
        if self._store.turn_counts(space)[TurnState.PENDING]:
            return None
        seen = self._store.snapshot(space)  # anew for each request: what was forgotten meanwhile is shown to no model
        asked_to = int(self._store.setting(_name(space)) or 0)
        waiting = np.union1d(*_in_time(seen))
        waiting = waiting[seen.keys[waiting] > asked_to]
        if not len(waiting):
            return None
        links: list[NewRelation] = []
        useless = 0
        try:
            links = _links(seen, int(waiting[0]), client)
        except ReplyFormatError:  # the replies are kept beside the cassette
            useless = 1
        done = self._add(seen, links)
        self._store.set_setting(_name(space), str(int(seen.keys[waiting[0]])))
        return done + Linked(useless=useless)

    def _add(self, seen: Snapshot, links: Iterable[NewRelation]) -> Linked:
        """Add the links that a graph has not, and count them."""
        edges = zip(seen.source.tolist(), seen.relations.tolist(), seen.target.tolist(), strict=True)
        held = {(seen.ids[source], label, seen.ids[target]) for source, label, target in edges}
        new = [link for link in dict.fromkeys(links) if (link.source, link.label, link.target) not in held]
        for known_since, batch in self._by_time(seen.space, new).items():
            self._store.commit(GraphChange(seen.space, known_since, relations=tuple(batch)))
        causes = sum(link.label == "CAUSES" for link in new)
        return Linked(causes, len(new) - causes)

    def _by_time(self, space: SpaceId, links: Iterable[NewRelation]) -> dict[datetime, list[NewRelation]]:
        """Links by the time at which they are known, which is not before both ends have the words they have now.

        The store lets no edge begin before its ends, so only ends that have changed since need a time of their own.
        """
        links = list(links)
        ends = sorted({NodeId(end) for link in links for end in (link.source, link.target)})
        changed = {
            node.id: node.update_time
            for node in self._store.nodes(space, ids=ends)
            if node.update_time > node.created_at
        }
        found: dict[datetime, list[NewRelation]] = {}
        for link in links:
            times = [changed[NodeId(end)] for end in (link.source, link.target) if end in changed]
            found.setdefault(max(times, default=UNDATED), []).append(link)
        return found


def causes_of(seen: Snapshot) -> list[NewRelation]:
    """Links by cue phrases: from the memory before, in the session or in the order of events, to one with a phrase."""
    return [
        NewRelation(seen.ids[before], "CAUSES", seen.ids[after])
        for before, after in zip(*(ends.tolist() for ends in _in_time(seen)), strict=True)
        if CAUSAL_CUE.search(seen.descriptions[after].lower())
    ]


def mentions_of(seen: Snapshot, kinds: Mapping[NodeId, str]) -> list[NewRelation]:
    """Links by names: from each turn, fact and event in which the name of an entity stands, written as it is.

    A name counts if it has a capital letter, a word that is neither a stop word nor a speaker's, and belongs to a
    person, an organisation, a location or a product. Without these conditions pronouns and common nouns, which
    extractors list as well, would have more links than names.

    Args:
        seen: The graph.
        kinds: Kinds of the entities.
    """
    speakers = sorted({*seen.speakers})
    common = {*STOP_WORDS, *(word for speaker in speakers for word in words(speaker))}
    entities: dict[str, list[tuple[NodeId, re.Pattern[str]]]] = {}  # by a word of the name
    for row in seen.active_rows(["entity"]).tolist():
        name, entity = seen.labels[row], seen.ids[row]
        telling = [word for word in words(name) if word not in common]
        is_speaker = full_name(name, speakers) in speakers
        if telling and not is_speaker and name != name.lower() and kinds.get(entity) in _NAMED_KINDS:
            whole = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
            entities.setdefault(telling[0], []).append((entity, whole))
    return [
        NewRelation(seen.ids[row], "MENTIONS", entity)
        for row in seen.active_rows(answer_types()).tolist()
        for word in sorted({*words(seen.descriptions[row])} & entities.keys())
        for entity, whole in entities[word]
        if whole.search(seen.descriptions[row])
    ]


def _links(seen: Snapshot, row: int, client: ChatClient) -> list[NewRelation]:
    """The links that a model sees between a memory, those around it in time, and the entities that they name."""
    near = _around(seen, row)
    rows = near[np.argsort(seen.first_turn_place[near], kind="stable")]
    named = seen.target[(seen.relations == "MENTIONS") & np.isin(seen.source, rows)]
    things = np.intersect1d(named, seen.active_rows(["entity"]))[:_ENTITIES]
    memories = {f"m{number}": seen.ids[each] for number, each in enumerate(rows.tolist(), start=1)}
    entities = {f"e{number}": seen.ids[each] for number, each in enumerate(things.tolist(), start=1)}
    document = {
        "memories": [
            {"id": name, "text": seen.descriptions[seen.row_of[node]][:_MOST_SAID]} for name, node in memories.items()
        ],
        "entities": [{"id": name, "name": seen.labels[seen.row_of[node]]} for name, node in entities.items()],
    }

    def shown(name: str, known: Mapping[str, NodeId]) -> NodeId:
        if name not in known:
            raise ValueError(f"id {name!r} was not shown; shown are {', '.join(known) or 'none'}")
        return known[name]

    def read(reply: Any) -> list[NewRelation]:
        form = filled(LinksForm, reply)
        for pair in form.causes:
            if pair.cause == pair.effect:
                raise ValueError(f"{pair.cause!r} is named as its own cause; a cause and its effect are two memories")
        return [
            *(NewRelation(shown(c.cause, memories), "CAUSES", shown(c.effect, memories)) for c in form.causes),
            *(NewRelation(shown(m.memory, memories), "MENTIONS", shown(m.entity, entities)) for m in form.mentions),
        ]

    return client.ask(
        messages("links", document),
        strict_schema(
            LinksForm,
            {"memories": list(memories), "entities": list(entities)},
            leave_out=() if entities else ("mentions",),
        ),
        read,
        purpose=Purpose("links", seen.space),
    )


def _around(seen: Snapshot, row: int) -> NDArray[np.int64]:
    """Rows of a memory and of those at most two steps in time away, ascending; of many those of nearest age."""
    before, after = _in_time(seen)
    rows = np.array([row])
    for _ in range(_HOPS):
        rows = np.unique(np.concatenate([rows, after[np.isin(before, rows)], before[np.isin(after, rows)]]))
    return np.sort(rows[np.argsort(np.abs(rows - row), kind="stable")[:_AROUND]])


def _in_time(seen: Snapshot) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of active memories and of those that come next in time."""
    kept = np.isin(seen.relations, _IN_TIME) & seen.active[seen.source] & seen.active[seen.target]
    return seen.source[kept], seen.target[kept]


def _name(space: SpaceId) -> str:
    return f"linked/{space}"  # is forgotten with its space

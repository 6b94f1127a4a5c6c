"""Links memories to their causes and to the entities they name: a second pass over a graph.

The links are ``CAUSES`` and ``MENTIONS`` edges. Fixed rules find them, and a language model, if given, finds more.
Existing links are left as they are, so that running the pass again changes nothing; a link is erased with either of its
ends. MAGMA, TEMPR and HippoRAG search along these edges; v1, v2, the weighted sums and the fusion read neither.

Source:
    Jiang et al. 2026, "MAGMA: A Multi-Graph based Agentic Memory Architecture for AI Agents", arXiv:2601.03236: the
    slow path, eq. 8 and algorithm 3. The rules are a simple substitute for its language model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from locigraph.consolidation.errors import ReplyFormatError
from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.prompting import ask
from locigraph.consolidation.replies import Form, named
from locigraph.consolidation.resolution import full_name, kinds_of_entities
from locigraph.kg.counts import Counts, counted
from locigraph.kg.language.tokens import STOP_WORDS, words
from locigraph.kg.schema import answer_types
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.store.remembered import of_space
from locigraph.kg.types import UNDATED, GraphChange, NewRelation, NodeId, SpaceId, TurnState

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient

#: A memory that contains one of these phrases is taken as an effect of the memory before it.
CAUSAL_CUE = re.compile(
    r"\b(because|since then|that's why|that is why|therefore|as a result|so that|due to|thanks to|led to"
    r"|inspired|made me|helped me|motivated|which is why)\b"
)
# Kinds of entities with proper names; entities of the kind "other" are often just common nouns.
_NAMED_KINDS = frozenset({"person", "organisation", "location", "product"})
_IN_TIME = ("NEXT", "PRECEDES")
# Settings of a space: key of the last memory about which a model was asked, and keys of those with unusable replies.
_ASKED_TO, _FAILED = "linked", "links_failed"
_HOPS = 2  # a model is shown the memories at most this many steps before or after the one it is asked about
_AROUND = 12  # memories shown in one request
_ENTITIES = 24  # entities shown in one request
_MOST_SAID = 2_000  # characters shown of each memory
_MOST_LINKS = 8  # links of each kind in a reply


@dataclass(frozen=True, slots=True)
class Linked(Counts):
    """Counts of a run: links to causes and to entities that were added, and requests whose replies were unusable."""

    causes: int = 0
    mentions: int = 0
    useless: int = 0

    def __str__(self) -> str:
        text = f"{counted(self.causes, 'link')} to causes and {self.mentions} to entities added"
        return text + (f", unusable replies: {self.useless} (--retry_failed true asks again)" if self.useless else "")


# The allowed values differ between requests; ``strict_schema`` fills them in.
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
        store: The graph; links are added in a few transactions, so a build may run at the same time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(
        self,
        space: SpaceId,
        client: ChatClient | None = None,
        *,
        retry_failed: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Linked:
        """Add the links that the rules find, and then those that a language model finds.

        Args:
            space: The space.
            client: A language model, which is asked about each turn and event that no earlier run asked about; None
                uses rules only.
            retry_failed: Whether to ask the model again about memories for which its replies were unusable.
            is_stopped: Called before each request; the run ends when it returns true.

        Raises:
            UnknownNodeError: If a node was erased meanwhile; run again.
            LanguageModelError: If the endpoint fails; links added so far are kept.
        """
        seen = self._store.snapshot(space)
        kinds = kinds_of_entities(self._store, space)
        total = self._add(seen, [*causes_of(seen), *mentions_of(seen, kinds)])
        for key in self._failed(space) if retry_failed else ():
            if client is None or is_stopped():
                break
            total += self._retry(space, client, key)
        while client is not None and not is_stopped():
            done = self._ask(space, client)
            if done is None:
                break
            total += done
        return total

    def _ask(self, space: SpaceId, client: ChatClient) -> Linked | None:
        """Ask about the next memory; returns None if there is none, or while turns are pending that may follow it."""
        if self._store.turn_counts(space)[TurnState.PENDING]:
            return None
        seen = self._store.snapshot(space)  # read again for each request, so that forgotten turns are never shown
        asked_to = int(self._store.setting(of_space(_ASKED_TO, space)) or 0)
        waiting = np.union1d(*_in_time(seen))
        waiting = waiting[seen.keys[waiting] > asked_to]
        if not len(waiting):
            return None
        key = int(seen.keys[waiting[0]])
        done = self._asked_about(seen, int(waiting[0]), client)
        failed = {of_space(_FAILED, space): json.dumps([*self._failed(space), key])} if done.useless else {}
        self._store.remember(failed | {of_space(_ASKED_TO, space): str(key)})
        return done

    def _retry(self, space: SpaceId, client: ChatClient, key: int) -> Linked:
        """Ask again about a memory, unless it was erased or is no longer active."""
        seen = self._store.snapshot(space)
        rows = np.flatnonzero((seen.keys == key) & seen.active).tolist()
        done = self._asked_about(seen, rows[0], client) if rows else Linked()
        if not done.useless:
            others = [other for other in self._failed(space) if other != key]
            self._store.remember({of_space(_FAILED, space): json.dumps(others)})
        return done

    def _asked_about(self, seen: Snapshot, row: int, client: ChatClient) -> Linked:
        """Add a model's links around a memory, or note that its replies are unusable; they are kept by its cassette."""
        try:
            return self._add(seen, _links(seen, row, client))
        except ReplyFormatError:
            return Linked(useless=1)

    def _failed(self, space: SpaceId) -> list[int]:
        keys: list[int] = json.loads(self._store.setting(of_space(_FAILED, space)) or "[]")
        return keys

    def _add(self, seen: Snapshot, links: Iterable[NewRelation]) -> Linked:
        """Add the links that the graph lacks, and count them."""
        edges = zip(seen.source.tolist(), seen.relations.tolist(), seen.target.tolist(), strict=True)
        present = {(seen.ids[source], label, seen.ids[target]) for source, label, target in edges}
        new = [link for link in dict.fromkeys(links) if (link.source, link.label, link.target) not in present]
        for known_since, batch in self._by_time(seen.space, new).items():
            self._store.commit(GraphChange(seen.space, known_since, relations=tuple(batch)))
        causes = sum(link.label == "CAUSES" for link in new)
        return Linked(causes, len(new) - causes)

    def _by_time(self, space: SpaceId, links: Iterable[NewRelation]) -> dict[datetime, list[NewRelation]]:
        """Groups links by the time from which they are known: not before both ends have their present wording.

        The store itself lets no edge begin before its ends were created, so only nodes changed since need a later time.
        """
        links = list(links)
        ends = sorted({NodeId(end) for link in links for end in (link.source, link.target)})
        changed = {
            node.id: node.update_time
            for node in self._store.nodes(space, ids=ends)
            if node.update_time > node.created_at
        }
        by_time: dict[datetime, list[NewRelation]] = {}
        for link in links:
            times = [changed[NodeId(end)] for end in (link.source, link.target) if end in changed]
            by_time.setdefault(max(times, default=UNDATED), []).append(link)
        return by_time


def causes_of(seen: Snapshot) -> list[NewRelation]:
    """Causal links by cue phrases: from the previous memory (NEXT or PRECEDES) to a memory with such a phrase."""
    return [
        NewRelation(seen.ids[before], "CAUSES", seen.ids[after])
        for before, after in zip(*(ends.tolist() for ends in _in_time(seen)), strict=True)
        if CAUSAL_CUE.search(seen.descriptions[after].lower())
    ]


def mentions_of(seen: Snapshot, entity_kinds: Mapping[NodeId, str]) -> list[NewRelation]:
    """Links by names: from each turn, fact and event whose text contains the name of an entity, in the same spelling.

    A name counts if it has a capital letter and a word that is neither a stop word nor part of a speaker's name, and if
    it belongs to a person, an organisation, a location or a product. Without these conditions pronouns and common
    nouns, which extractors also list, would get more links than names.

    Args:
        seen: The graph.
        entity_kinds: Kind of each entity.
    """
    speakers = sorted({*seen.speakers})
    common = {*STOP_WORDS, *(word for speaker in speakers for word in words(speaker))}
    entities: dict[str, list[tuple[NodeId, re.Pattern[str]]]] = {}  # by the first distinctive word of the name
    for row in seen.active_rows(["entity"]).tolist():
        name, entity = seen.labels[row], seen.ids[row]
        telling = [word for word in words(name) if word not in common]
        is_speaker = full_name(name, speakers) in speakers
        if telling and not is_speaker and name != name.lower() and entity_kinds.get(entity) in _NAMED_KINDS:
            whole_name = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
            entities.setdefault(telling[0], []).append((entity, whole_name))
    return [
        NewRelation(seen.ids[row], "MENTIONS", entity)
        for row in seen.active_rows(answer_types()).tolist()
        for word in sorted({*words(seen.descriptions[row])} & entities.keys())
        for entity, whole_name in entities[word]
        if whole_name.search(seen.descriptions[row])
    ]


def _links(seen: Snapshot, row: int, client: ChatClient) -> list[NewRelation]:
    """Ask a model for links among a memory, its neighbours in time, and the entities that they name."""
    near = _around(seen, row)
    rows = near[np.argsort(seen.first_turn_place[near], kind="stable")]
    mentioned = seen.target[(seen.relations == "MENTIONS") & np.isin(seen.source, rows)]
    things = np.intersect1d(mentioned, seen.active_rows(["entity"]))[:_ENTITIES]
    memories = {f"m{number}": seen.ids[shown_row] for number, shown_row in enumerate(rows.tolist(), start=1)}
    entities = {f"e{number}": seen.ids[shown_row] for number, shown_row in enumerate(things.tolist(), start=1)}
    document = {
        "memories": [
            {"id": name, "text": seen.descriptions[seen.row_of[node]][:_MOST_SAID]} for name, node in memories.items()
        ],
        "entities": [{"id": name, "name": seen.labels[seen.row_of[node]]} for name, node in entities.items()],
    }

    def read(form: LinksForm) -> list[NewRelation]:
        links = [
            *(NewRelation(named(c.cause, memories), "CAUSES", named(c.effect, memories)) for c in form.causes),
            *(NewRelation(named(m.memory, memories), "MENTIONS", named(m.entity, entities)) for m in form.mentions),
        ]
        for pair in form.causes:
            if pair.cause == pair.effect:
                raise ValueError(f"{pair.cause!r} is named as its own cause; a cause and its effect are two memories")
        return links

    enums = {"memories": list(memories), "entities": list(entities)}
    leave_out = () if entities else ("mentions",)
    return ask(client, Purpose("links", seen.space), document, LinksForm, read, enums=enums, leave_out=leave_out)


def _around(seen: Snapshot, row: int) -> NDArray[np.int64]:
    """Rows of a memory and of those at most two steps away in time, ascending; if too many, those closest in age."""
    before, after = _in_time(seen)
    rows = np.array([row])
    for _ in range(_HOPS):
        rows = np.unique(np.concatenate([rows, after[np.isin(before, rows)], before[np.isin(after, rows)]]))
    return np.sort(rows[np.argsort(np.abs(rows - row), kind="stable")[:_AROUND]])


def _in_time(seen: Snapshot) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of active memories that follow each other in time: rows of the earlier ones, rows of the later ones."""
    kept = np.isin(seen.relations, _IN_TIME) & seen.active[seen.source] & seen.active[seen.target]
    return seen.source[kept], seen.target[kept]

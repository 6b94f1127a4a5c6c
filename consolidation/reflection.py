"""Has a language model draw reflections from facts and events: a second pass over a graph.

A reflection has ``DERIVED_FROM_FACT`` edges to the facts that support it, and their source turns as its own. It is
archived when one of these facts is archived or superseded, and erased with any of its turns. Architects never see
reflections.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field

from locigraph.consolidation.errors import ReplyFormatError
from locigraph.consolidation.ledger import Purpose
from locigraph.consolidation.prompting import ask
from locigraph.consolidation.replies import Form, named, nonblank_line
from locigraph.consolidation.visibility import worded_since
from locigraph.kg.counts import Counts, counted
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import ARCHIVED_BY, SUPERSEDED_BY, fact_types
from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.store import Store
from locigraph.kg.store.remembered import of_space
from locigraph.kg.times import day_in_words, moment
from locigraph.kg.types import (
    GraphChange,
    NewNode,
    NewRelation,
    Node,
    NodeId,
    NodeStatus,
    NodeUpdate,
    SpaceId,
    TurnId,
    TurnState,
)

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient

REFLECTION = "reflection"
# Settings of a space: key of the last fact about which a model was asked, and ranges of facts with unusable replies.
_ASKED_TO, _FAILED = "reflected", "reflected_failed"
_BATCH = 24  # largest number of new facts in one request, and also of earlier facts
_KNOWN = 8  # largest number of known insights in one request
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Reflected(Counts):
    """Counts of a run: reflections made, reworded and archived, and requests whose replies were unusable."""

    made: int = 0
    reworded: int = 0
    archived: int = 0
    useless: int = 0

    def __str__(self) -> str:
        text = f"{counted(self.made, 'reflection')} made, {self.reworded} reworded, {self.archived} archived"
        return text + (f", unusable replies: {self.useless} (--retry_failed true asks again)" if self.useless else "")


_Line = AfterValidator(nonblank_line)
# The allowed values differ between requests; ``strict_schema`` fills them in.
_FactId = Annotated[str, Field(json_schema_extra={"enum": "facts"})]
_InsightId = Annotated[str, Field(json_schema_extra={"enum": "insights"})]


class InsightForm(Form):
    """One insight as a language model writes it."""

    label: Annotated[str, Field(min_length=1, max_length=80), _Line]
    text: Annotated[str, Field(min_length=1, max_length=600), _Line]
    facts: list[_FactId] = Field(min_length=2, max_length=2 * _BATCH)
    revises: _InsightId | None = None


class InsightsForm(Form):
    """What a language model replies."""

    insights: list[InsightForm] = Field(max_length=6)


@dataclass(frozen=True, slots=True)
class _Reflection:
    """An existing reflection, and the facts that support it."""

    node: Node
    facts: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A reflection to be written: a new one, or a new wording and further facts for an existing one (``revises``)."""

    label: str
    text: str
    facts: tuple[NodeId, ...]
    revises: NodeId | None = None


@dataclass(frozen=True, slots=True)
class _Facts:
    """The currently valid facts of a space, and its reflections.

    Attributes:
        seen: The graph.
        rows: Rows of the facts that are neither archived nor superseded, oldest first.
        reflections: The active reflections.
    """

    seen: Snapshot
    rows: NDArray[np.int64]
    reflections: tuple[_Reflection, ...]

    def turns(self, facts: Sequence[NodeId]) -> tuple[TurnId, ...]:
        """Source turns of the given facts, in conversation order."""
        named = {turn for fact in facts for turn in self.seen.turns_of[self.seen.row_of[fact]]}
        return tuple(turn for turn in self.seen.turn_ids if turn in named)


class Reflector:
    """Keeps the reflections of a space up to date with its facts; running it twice changes nothing more.

    Args:
        store: The graph; each change is one transaction, so a build may run at the same time.
        encoder: Text encoder whose embeddings the graph holds.
    """

    def __init__(self, store: Store, encoder: TextEncoder) -> None:
        self._store = store
        self._encoder = encoder

    def run(
        self,
        space: SpaceId,
        client: ChatClient | None,
        *,
        retry_failed: bool = False,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Reflected:
        """Bring the reflections of a space up to date.

        Args:
            space: The space.
            client: A language model, which is asked about the facts that no earlier run asked about; with None nothing
                is derived, and only what is no longer true is archived.
            retry_failed: Whether to ask the model again about facts for which its replies were unusable.
            is_stopped: Called before each change; the run ends when it returns true.

        Raises:
            UnknownNodeError: If a node was erased meanwhile; run again.
            UnknownTurnError: If a source turn of a node was forgotten meanwhile; run again.
            LanguageModelError: If the endpoint fails; changes made so far are kept.
        """
        facts = self._facts(space)
        valid = {facts.seen.ids[row] for row in facts.rows.tolist()}
        # Earlier versions made some by rules, which had a key; they were of no use.
        untrue = [
            reflection
            for reflection in facts.reflections
            if "key" in reflection.node.attributes or not reflection.facts <= valid
        ]
        total = self._archive(facts, untrue, is_stopped)
        if client is None:
            return total
        for failed in self._failed(space) if retry_failed else ():
            if is_stopped():
                break
            total += self._retry(space, client, failed)
        while not is_stopped():
            done = self._ask(space, client)
            if done is None:
                break
            total += done
        return total

    def _facts(self, space: SpaceId) -> _Facts:
        seen = self._store.snapshot(space, embedding_model=self._encoder.model_id)
        outdated = seen.source[seen.relations == SUPERSEDED_BY]
        behind: dict[NodeId, set[NodeId]] = {}
        for edge in np.flatnonzero(seen.relations == "DERIVED_FROM_FACT").tolist():
            behind.setdefault(seen.ids[seen.source[edge]], set()).add(seen.ids[seen.target[edge]])
        reflections = [
            _Reflection(node, frozenset(behind.get(node.id, ())))
            for node in self._store.nodes(space, types=[REFLECTION])
        ]
        return _Facts(seen, np.setdiff1d(seen.active_rows(fact_types()), outdated), tuple(reflections))

    def _ask(self, space: SpaceId, client: ChatClient) -> Reflected | None:
        """Ask about the next facts; returns None if there are none, or too few while turns are pending."""
        facts = self._facts(space)
        asked_to = int(self._store.setting(of_space(_ASKED_TO, space)) or 0)
        new = facts.rows[facts.seen.keys[facts.rows] > asked_to][:_BATCH]
        if not len(new) or (len(new) < _BATCH and self._store.turn_counts(space)[TurnState.PENDING]):
            return None
        last = int(facts.seen.keys[new].max())
        advanced = {of_space(_ASKED_TO, space): str(last)}
        done = self._ask_about(facts, new, client, advanced)
        if done is None:
            failed = {of_space(_FAILED, space): json.dumps([*self._failed(space), [asked_to, last]])}
            self._store.remember(failed | advanced)
            return Reflected(useless=1)
        return done

    def _retry(self, space: SpaceId, client: ChatClient, failed: list[int]) -> Reflected:
        """Ask again about facts for which a model's replies were unusable."""
        facts = self._facts(space)
        keys = facts.seen.keys[facts.rows]
        again = facts.rows[(keys > failed[0]) & (keys <= failed[1])]
        name, others = of_space(_FAILED, space), json.dumps([other for other in self._failed(space) if other != failed])
        if not len(again):  # the facts were erased, or are no longer valid
            self._store.remember({name: others})
            return Reflected()
        done = self._ask_about(facts, again, client, {name: others})
        return Reflected(useless=1) if done is None else done

    def _failed(self, space: SpaceId) -> list[list[int]]:
        """Ranges of facts for which replies were unusable, as pairs of keys: exclusive start, inclusive end."""
        ranges: list[list[int]] = json.loads(self._store.setting(of_space(_FAILED, space)) or "[]")
        return ranges

    def _ask_about(
        self, facts: _Facts, new: NDArray[np.int64], client: ChatClient, remembered: Mapping[str, str]
    ) -> Reflected | None:
        """Write a model's reflections on new facts, and settings with them; None if its replies are unusable."""
        try:
            drafts = self._insights(facts, new, client)
        except ReplyFormatError:  # the replies are kept beside the cassette
            return None
        if drafts:
            return self._write(facts, drafts, remembered)
        self._store.remember(remembered)
        return Reflected()

    def _insights(self, facts: _Facts, new: NDArray[np.int64], client: ChatClient) -> list[_Draft]:
        seen = facts.seen
        earlier = _nearest(seen, new, facts.rows[facts.rows < new.min()], _BATCH)
        by_id = {
            seen.row_of[reflection.node.id]: reflection
            for reflection in facts.reflections
            if reflection.node.id in seen.row_of
        }
        known = _nearest(seen, new, np.array(sorted(by_id), dtype=np.int64), _KNOWN)
        ids = {f"f{number}": row for number, row in enumerate([*new.tolist(), *earlier.tolist()], start=1)}
        insights = {f"i{number}": by_id[row] for number, row in enumerate(known.tolist(), start=1)}
        fresh = {name for name, row in ids.items() if row >= new.min()}

        def listed(names: Iterable[str]) -> list[dict[str, str]]:
            said = {name: int(seen.valid_from[ids[name]]) for name in names}
            return [
                {"id": name, "text": seen.descriptions[ids[name]]}
                | ({} if since == NO_TIME else {"day": day_in_words(moment(since))})
                for name, since in said.items()
            ]

        document = {
            "new_facts": listed(name for name in ids if name in fresh),
            "earlier_facts": listed(name for name in ids if name not in fresh),
            "known_insights": [
                {"id": name, "text": reflection.node.description} for name, reflection in insights.items()
            ],
        }

        def read(reply: InsightsForm) -> list[_Draft]:
            drafts: list[_Draft] = []
            for form in reply.insights:
                rows = {named(name, ids, what="fact") for name in form.facts}
                if len(rows) < 2 or not fresh & set(form.facts):
                    raise ValueError(
                        f"{form.label!r} is based on {form.facts}; name two or more facts, one of new_facts"
                    )
                revised = None if form.revises is None else named(form.revises, insights, what="insight").node.id
                behind = tuple(seen.ids[row] for row in sorted(rows))
                drafts.append(_Draft(form.label, form.text, behind, revised))
            revised_ids = [draft.revises for draft in drafts if draft.revises is not None]
            if len(set(revised_ids)) < len(revised_ids):
                raise ValueError("a known insight is revised twice; revise it once")
            return drafts

        enums = {"facts": list(ids), "insights": list(insights)}
        return ask(client, Purpose("reflection", seen.space), document, InsightsForm, read, enums=enums)

    def _write(self, facts: _Facts, drafts: Sequence[_Draft], remembered: Mapping[str, str] = _NOTHING) -> Reflected:
        """Make or reword reflections in one transaction."""
        new = [(f"reflection {number}", draft) for number, draft in enumerate(drafts) if draft.revises is None]
        old = [(draft.revises, draft) for draft in drafts if draft.revises is not None]
        vectors = self._encoder.encode([draft.text for _, draft in [*new, *old]])
        behind = {fact for draft in drafts for fact in draft.facts}
        self._store.commit(
            GraphChange(
                facts.seen.space,
                worded_since(self._store, facts.seen.space, behind),
                nodes=tuple(
                    NewNode(
                        ref, REFLECTION, draft.label, draft.text, facts.turns(draft.facts), embedding=vector
                    )
                    for (ref, draft), vector in zip(new, vectors, strict=False)
                ),
                updates=tuple(
                    NodeUpdate(
                        node_id, draft.label, draft.text, add_provenance=facts.turns(draft.facts), embedding=vector
                    )
                    for (node_id, draft), vector in zip(old, vectors[len(new) :], strict=True)
                ),
                relations=tuple(
                    NewRelation(name, "DERIVED_FROM_FACT", fact) for name, draft in [*new, *old] for fact in draft.facts
                ),
                embedding_model=self._encoder.model_id,
                remembered=remembered,
            )
        )  # fmt: skip
        return Reflected(made=len(new), reworded=len(old))

    def _archive(self, facts: _Facts, outdated: Sequence[_Reflection], is_stopped: Callable[[], bool]) -> Reflected:
        """Archive reflections, each as of the time when the last change of its facts was recorded."""
        archived = 0
        for reflection in outdated:
            if is_stopped():
                break
            behind = self._store.nodes(facts.seen.space, ids=sorted(reflection.facts), include_archived=True)
            is_end = (facts.seen.relations == SUPERSEDED_BY) & np.isin(
                facts.seen.source, [facts.seen.row_of[node.id] for node in behind]
            )
            ends = facts.seen.recorded_at[facts.seen.target[is_end]].tolist()
            times = [node.update_time for node in behind] + [moment(end) for end in ends]
            only = self._only_end(facts, reflection, is_end)
            attributes = None if only is None else {**reflection.node.attributes, ARCHIVED_BY: only}
            change = NodeUpdate(reflection.node.id, status=NodeStatus.ARCHIVED, attributes=attributes)
            latest = max(times, default=reflection.node.update_time)
            self._store.commit(GraphChange(facts.seen.space, latest, updates=(change,)))
            archived += 1
        return Reflected(archived=archived)

    def _only_end(self, facts: _Facts, reflection: _Reflection, is_end: NDArray[np.bool_]) -> TurnId | None:
        """The one turn that ended what a reflection rests on: once it is forgotten, the reflection holds again.

        Args:
            facts: The facts of the space.
            reflection: The reflection.
            is_end: Which edges of the space end its facts, bool [edges].
        """
        seen = facts.seen
        ended = {seen.ids[row] for row in seen.source[is_end]}
        lacking = reflection.facts - {seen.ids[row] for row in facts.rows}
        by = self._store.nodes(seen.space, ids=[seen.ids[row] for row in seen.target[is_end]])
        turns = {turn for node in by for turn in node.provenance}
        is_useful = "key" not in reflection.node.attributes  # those that an earlier version made by rules are not
        return turns.pop() if is_useful and lacking <= ended and len(turns) == 1 else None


def _nearest(seen: Snapshot, new: NDArray[np.int64], rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Up to ``most`` of ``rows``: those whose embeddings are closest to any of the ``new`` rows, in ascending order."""
    if len(rows) <= most:
        return rows
    cosine = (seen.embeddings[rows] @ seen.embeddings[new].T).max(axis=1)
    return np.sort(rows[np.argsort(-cosine, kind="stable")[:most]])

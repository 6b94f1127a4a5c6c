"""Consolidates the turns of a space one after another, each in one transaction.

Per turn: context -> architect -> check -> scribe -> check -> dates -> entities and concepts -> embed -> commit.
The turn itself is in the store already. A turn that cannot be consolidated is marked failed with the reason, and its
episode node is still created with the verbatim text. An outage of a language model leaves the turn pending.

Other processes may change the space at any time (``resolve``, ``forget``, a second build). The store refuses the change
of a turn that is based on an earlier revision of the space; then the space is read again and the turn is done again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from locigraph.consolidation.blueprint import Blueprint, Wording, check_blueprint, check_wording
from locigraph.consolidation.change import ChangeBuilder, merge_topics
from locigraph.consolidation.errors import ConsolidationError
from locigraph.consolidation.protocols import Context, ContextSource, Extractor, MeteredExtractor
from locigraph.consolidation.space_state import SpaceState
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.errors import OutdatedChangeError, UnknownNodeError
from locigraph.kg.schema import SUPERSEDED_BY
from locigraph.kg.store import Store
from locigraph.kg.store.remembered import of_space
from locigraph.kg.types import GraphChange, NewNode, Node, NodeId, SpaceId, Turn, TurnId, TurnState

_LOG = logging.getLogger(__name__)
_CONTEXT_NODES = 12
_RECENT_TURNS = 4
# What is raised if parts of a space that were read before and after a change by another process do not fit together.
_TORN = (KeyError, UnknownNodeError)
# Settings of a space: the extractor that builds it, and the versions of the models and prompts that it used.
_EXTRACTOR, _VERSIONS = "extractor", "extractor_versions"


def refuse_other_extractor(store: Store, space: SpaceId, extractor: Extractor) -> None:
    """Raise ConsolidationError if another extractor has built a space."""
    _refuse_other_than(built_by(store, space), space, extractor)


def _refuse_other_than(builder: str | None, space: SpaceId, extractor: Extractor) -> None:
    if builder not in (None, extractor.name):
        raise ConsolidationError(
            f"space {space!r} was built by {builder!r}, not {extractor.name!r}; a graph must not be built by two "
            f"extractors: use {builder!r}, or another store, or erase the space and build it again"
        )


def built_by(store: Store, space: SpaceId) -> str | None:
    """Name of the extractor that builds a space; None if no turn of it was consolidated yet."""
    return store.setting(of_space(_EXTRACTOR, space))


def versions_of(store: Store, space: SpaceId) -> list[str]:
    """Versions of models and prompts that consolidated turns of a space, oldest first; empty if no model was used."""
    return (store.setting(of_space(_VERSIONS, space)) or "").splitlines()


def _remember_version(store: Store, space: SpaceId, version: str) -> None:
    """Add a version of models and prompts to those of a space; logs a warning if there were others before."""
    earlier = versions_of(store, space)
    if version in earlier:
        return
    if earlier:
        _LOG.warning("space %r was built by %s so far, and is continued by %s", space, "; ".join(earlier), version)
    store.remember({of_space(_VERSIONS, space): "\n".join([*earlier, version])})


@dataclass(frozen=True, slots=True)
class _Reply:
    """What an extractor made of a turn and the context it was shown."""

    turn: Turn
    context: Context
    plan: Blueprint
    wording: Mapping[str, Wording]


class Consolidator:
    """The consolidation pipeline.

    Args:
        store: Holds the turns and the graph.
        extractor: Plans what a turn changes and writes labels and descriptions.
        encoder: Embeds descriptions.
        context: Finds the existing nodes that a turn may change.
    """

    def __init__(self, store: Store, extractor: Extractor, encoder: TextEncoder, context: ContextSource) -> None:
        self._store = store
        self._extractor = extractor
        self._encoder = encoder
        self._context = context
        self._cached_state: SpaceState | None = None  # cached state of the last space
        self._replies: dict[TurnId, _Reply] = {}  # to turns that are not committed yet

    @property
    def turns_known(self) -> int:
        """Number of turns of the last space, whose state is cached in memory for its next turn."""
        return 0 if self._cached_state is None else len(self._cached_state.turns)

    def run(self, space: SpaceId, *, most: int | None = None, on_turn: Callable[[], object] = lambda: None) -> None:
        """Consolidate the pending turns of a space, in order.

        Args:
            space: The space to consolidate.
            most: Number of turns after which it stops; None for all.
            on_turn: Called after each turn, for a progress bar.

        Raises:
            ConsolidationError: If another extractor has built the space.
        """
        with self._store.reading():
            revision = self._store.revision(space)  # read first, so that any later change makes the state out of date
            pending, builder = self._store.turns(space, state=TurnState.PENDING), built_by(self._store, space)
        if builder is None:  # of several processes that begin at the same time, the first decides
            builder = self._store.remember_first(of_space(_EXTRACTOR, space), self._extractor.name)
        _refuse_other_than(builder, space, self._extractor)
        if not pending:
            return
        if isinstance(self._extractor, MeteredExtractor):
            _remember_version(self._store, space, self._extractor.version)
        state, self._cached_state = self._cached_state, None
        if state is None or state.space != space or not state.takes_in(pending, revision):
            state, pending = self._read(space)
        state.extend(pending)
        left = len(pending) if most is None else most
        while pending and left > 0:
            turn, left = pending.pop(0), left - 1
            try:
                self._consolidate(turn, state)
            except (OutdatedChangeError, *_TORN):
                if state.revision == self._store.revision(space):
                    raise
                state, pending = self._read(space)  # others changed the space, perhaps forgot or added turns
                left = len(pending) if most is None else left + 1
            else:
                on_turn()
        self._cached_state = state  # not reached after an outage, which may leave the state incomplete

    def _read(self, space: SpaceId) -> tuple[SpaceState, list[Turn]]:
        """The state of a space and its pending turns, as they are in the store."""
        self._context.drop(space)
        revision = self._store.revision(space)
        try:
            state = SpaceState(self._store, space, self._encoder)
        except _TORN:
            if revision == self._store.revision(space):
                raise
            return self._read(space)
        pending = self._store.turns(space, state=TurnState.PENDING)
        state.extend(pending)
        left = {turn.turn_id for turn in pending}
        self._replies = {turn_id: reply for turn_id, reply in self._replies.items() if turn_id in left}
        return state, pending

    def _consolidate(self, turn: Turn, state: SpaceState) -> None:
        try:
            self._extract(turn, state)
        except ConsolidationError as error:
            # Extraction failed, but the turn is still added verbatim, so that searches can find it.
            verbatim = ChangeBuilder(turn, Blueprint(), {}, state).build()
            self._commit(turn, replace(verbatim, failure=str(error)), state)

    def _extract(self, turn: Turn, state: SpaceState) -> None:
        found = self._context.find(turn, limit=_CONTEXT_NODES)
        later = state.of_later_turns(turn, [*found.known, *found.later])
        shown = [state.planned[node_id] for node_id in found.known if not state.is_of_later_turns(node_id, turn)]
        recent = state.recent(turn, _RECENT_TURNS)
        latest = [node for node in state.planned_by(recent) if node not in shown]
        context = Context(tuple(shown), recent, tuple(latest), state.coined, tuple(later))
        plan, wording = self._plan_and_write(turn, context, state)
        change = ChangeBuilder(turn, plan, wording, state).build()
        self._commit(turn, replace(change, coined={label.name: label.description for label in plan.coined}), state)
        state.learn_labels({edge.label for edge in change.relations})

    def _commit(self, turn: Turn, change: GraphChange, state: SpaceState) -> None:
        change = merge_topics(self._embedded(change), state)
        ids = self._store.commit(replace(change, revision=state.revision))
        state.revision += 1
        self._replies.pop(turn.turn_id, None)
        state.add_source(turn.turn_id, [u.id for u in change.updates if turn.turn_id in u.add_provenance])
        amended = [u for u in change.updates if u.description is not None or u.status is not None]
        nodes = [_as_node(turn, n, ids[n.ref]) for n in change.nodes]
        nodes += [self._store.node(turn.space, u.id) for u in amended]
        if not nodes:
            return
        # Archived nodes need no vector; a blank row keeps nodes and vectors aligned.
        embeddings = [node.embedding for node in change.nodes] + [update.embedding for update in amended]
        blank = np.zeros_like(next((vector for vector in embeddings if vector is not None), np.zeros(0, np.float32)))
        vectors = np.stack([blank if vector is None else vector for vector in embeddings])
        state.learn(nodes, vectors)
        for edge in change.relations:
            if edge.label == SUPERSEDED_BY:
                state.supersede(*(ids.get(end, NodeId(end)) for end in (edge.source, edge.target)))
        self._context.observe(turn.space, nodes, vectors)

    def _embedded(self, change: GraphChange) -> GraphChange:
        reworded = [update.description for update in change.updates if update.description is not None]
        vectors = iter(self._encoder.encode([*(node.description for node in change.nodes), *reworded]))
        nodes = tuple(replace(node, embedding=next(vectors)) for node in change.nodes)
        updates = tuple(
            each if each.description is None else replace(each, embedding=next(vectors)) for each in change.updates
        )
        return replace(change, nodes=nodes, updates=updates, embedding_model=self._encoder.model_id)

    def _plan_and_write(
        self, turn: Turn, context: Context, state: SpaceState
    ) -> tuple[Blueprint, Mapping[str, Wording]]:
        # If the turn is done again and nothing that its extractor was shown has changed, its reply stands: a language
        # model need not be asked twice. All else that a change depends on is derived from the state.
        known = self._replies.get(turn.turn_id)
        if known is not None and _as_shown(known.turn, known.context) != _as_shown(turn, context):
            known = None
        plan = self._extractor.plan(turn, context) if known is None else known.plan
        labels = list(self._store.relation_labels(turn.space))
        check_blueprint(
            plan, turn_id=turn.turn_id, turns=state.index, shown=context.shown, labels=labels, later=context.later
        )
        wording = self._extractor.write(turn, plan, context) if known is None else known.wording
        check_wording(plan, wording)
        self._replies[turn.turn_id] = _Reply(turn, context, plan, wording)
        return plan, wording


def _as_shown(turn: Turn, context: Context) -> tuple[Turn, Context]:
    """A turn and its context without positions, which late turns change and no extractor is shown."""
    recent = tuple(replace(each, position=0) for each in context.recent)
    return replace(turn, position=0), replace(context, recent=recent)


def _as_node(turn: Turn, node: NewNode, node_id: NodeId) -> Node:
    return Node(
        turn.space, node_id, node.type, node.label, node.description, node.status, turn.recorded_at,
        turn.recorded_at, node.valid_from, node.valid_to, node.attributes, node.provenance,
    )  # fmt: skip

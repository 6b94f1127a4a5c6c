"""One turn after another into the graph, each in one transaction.

Per turn: context -> architect -> check -> scribe -> check -> dates -> entities and concepts -> embed -> commit.
The turn itself was written before. A failure leaves it pending or failed with its reason, and loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from locigraph.consolidation.blueprint import (
    Blueprint,
    Wording,
    check_blueprint,
    check_wording,
)
from locigraph.consolidation.change import change_of, merge_topics
from locigraph.consolidation.errors import ConsolidationError
from locigraph.consolidation.memory import SpaceMemory
from locigraph.consolidation.protocols import Context, ContextSource, Extractor, TextEncoder
from locigraph.kg.store import Store
from locigraph.kg.types import (
    NewNode,
    Node,
    NodeId,
    NodeStatus,
    SpaceId,
    Turn,
    TurnState,
)

_Made = TypeVar("_Made")

_CONTEXT_NODES = 12
_RECENT_TURNS = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run over a space did."""

    done: int
    failed: int


def claim_space(store: Store, space: SpaceId, extractor: Extractor) -> None:
    """Make a space this extractor's, before its first turn is consolidated.

    Raises:
        ConsolidationError: If another one has built it.
    """
    name = f"extractor/{space}"
    held = store.setting(name)
    if held is not None and held != extractor.name:
        raise ConsolidationError(
            f"space {space!r} was built by {held!r}, not {extractor.name!r}; two extractors must not build one graph: "
            "use another store"
        )
    if held is None:
        store.require_space(space)
        store.set_setting(name, extractor.name)


class Consolidator:
    """The pipeline.

    Args:
        store: Where turns and graph are.
        extractor: Architect and scribe.
        encoder: Embeds descriptions.
        context: Finds what a turn may change.
    """

    def __init__(self, store: Store, extractor: Extractor, encoder: TextEncoder, context: ContextSource) -> None:
        self._store = store
        self._extractor = extractor
        self._encoder = encoder
        self._context = context

    def run(self, space: SpaceId, *, on_turn: Callable[[], None] = lambda: None) -> Outcome:
        """Consolidate every pending turn of a space; what is done already is passed over.

        Args:
            space: The tenant.
            on_turn: Called after each turn, for a progress bar.

        Raises:
            ConsolidationError: If another extractor built what is there.
        """
        claim_space(self._store, space, self._extractor)
        turns = self._store.turns(space)
        pending = {turn.turn_id for turn in self._store.turns(space, state=TurnState.PENDING)}
        if not pending:
            return Outcome(0, 0)
        memory = SpaceMemory(self._store, space, turns, self._encoder)
        failed = 0
        for turn in turns:
            if turn.turn_id not in pending:
                continue
            try:
                self._consolidate(turn, memory)
            except ConsolidationError as error:
                self._store.fail_turn(space, turn.turn_id, str(error))
                failed += 1
            on_turn()
        return Outcome(len(pending) - failed, failed)

    def _consolidate(self, turn: Turn, memory: SpaceMemory) -> None:
        context = Context(tuple(self._context.find(turn, limit=_CONTEXT_NODES)), memory.recent(turn, _RECENT_TURNS))
        plan, wording = self._plan_and_write(turn, context, memory)
        change = change_of(turn, plan, wording, memory)
        texts = [node.description for node in change.nodes]
        vectors = self._encoder.encode(texts)
        nodes = tuple(replace(n, embedding=v) for n, v in zip(change.nodes, vectors, strict=True))
        change, nodes, vectors = merge_topics(change, nodes, vectors, memory)
        updates = change.updates
        rewritten = [u for u in updates if u.description is not None]
        if rewritten:
            fresh = self._encoder.encode([u.description or "" for u in rewritten])
            by_id = {u.id: replace(u, embedding=v) for u, v in zip(rewritten, fresh, strict=True)}
            updates = tuple(by_id.get(u.id, u) for u in updates)
        ids = self._store.commit(replace(change, nodes=nodes, updates=updates, embedding_model=self._encoder.model_id))
        memory.learn(turn, nodes, ids)
        made = [_as_node(turn, n, ids[n.ref]) for n in nodes]
        amended = [u for u in updates if u.description is not None or u.status is not None]
        if amended:
            # What is archived has no use for a vector; the row only keeps nodes and vectors side by side.
            rows = [np.zeros_like(vectors[0]) if u.embedding is None else u.embedding for u in amended]
            made += [self._store.node(turn.space, u.id) for u in amended]
            vectors = np.concatenate([vectors, np.stack(rows)])
        self._context.observe(turn.space, made, vectors)

    def _plan_and_write(
        self, turn: Turn, context: Context, memory: SpaceMemory
    ) -> tuple[Blueprint, Mapping[str, Wording]]:
        labels = list(self._store.relation_labels())

        def plan_once(complaint: str | None) -> Blueprint:
            plan = self._extractor.plan(turn, context, complaint=complaint)
            check_blueprint(plan, turn_id=turn.turn_id, turns=memory.index, shown=context.nodes, labels=labels)
            return plan

        plan = _with_one_repair(plan_once)

        def write_once(complaint: str | None) -> Mapping[str, Wording]:
            wording = self._extractor.write(turn, plan, context, complaint=complaint)
            check_wording(plan, wording)
            return wording

        return plan, _with_one_repair(write_once)


def _with_one_repair(attempt: Callable[[str | None], _Made]) -> _Made:
    try:
        return attempt(None)
    except ConsolidationError as error:
        return attempt(str(error))


def _as_node(turn: Turn, node: NewNode, node_id: NodeId) -> Node:
    return Node(
        turn.space, node_id, node.type, node.label, node.description, NodeStatus.ACTIVE, turn.recorded_at,
        turn.recorded_at, node.valid_from, node.valid_to, node.attributes, node.provenance,
    )  # fmt: skip

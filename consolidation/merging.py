"""Merges entities and concepts that mean the same, as a second pass over a graph.

The oldest one stays active. Each of the others is archived with an audit record: the node it was merged into
(``merged_into``), the reason (``merged_by``: spelling or meaning), and a ``SIMILAR_TO`` edge with the cosine. It then
serves as an alias by which later turns find the active node. Its edges are kept and also copied to the active node, so
that it can be reactivated if that node is forgotten (``kg.store.erase``). Edges that it got from others while it was
merged, or later, are copied by the end of the run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from locigraph.consolidation.resolution import CONCEPT_MERGE, OTHER, kinds_of_entities, merged_nodes, spelling_key
from locigraph.kg import products
from locigraph.kg.counts import Counts, counted
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import MERGED_BY, MERGED_INTO, NAMED_TYPES
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.times import moment
from locigraph.kg.types import GraphChange, NewRelation, NodeId, NodeStatus, NodeUpdate, SpaceId

_WORD_OR_NUMBER = re.compile(r"[^\W\d_]\w*|\d+")


@dataclass(frozen=True, slots=True)
class Merged(Counts):
    """Counts of a run: nodes merged into others, and merged nodes that had edges or turns which the others lacked."""

    merged: int = 0
    completed: int = 0

    def __str__(self) -> str:
        late = f", late edges of {counted(self.completed, 'merged node')} copied" if self.completed else ""
        return f"{counted(self.merged, 'node')} merged{late}"


@dataclass(frozen=True, slots=True)
class Match:
    """A pair of nodes that mean the same, as rows of a snapshot: ``row`` is to be merged into the older ``into``."""

    row: int
    into: int
    by: str
    cosine: float


class Merger:
    """Merges duplicate entities and concepts of a space; running it again changes nothing more.

    Args:
        store: The graph; each merge is one transaction, so a build may run at the same time.
        encoder: Text encoder whose embeddings the graph holds.
        threshold: Lowest cosine at which two names mean the same.
    """

    def __init__(self, store: Store, encoder: TextEncoder, *, threshold: float = CONCEPT_MERGE) -> None:
        self._store = store
        self._encoder = encoder
        self._threshold = threshold

    def run(self, space: SpaceId, *, is_stopped: Callable[[], bool] = lambda: False) -> Merged:
        """Merge all duplicates; ``is_stopped`` is asked before each merge and can end the run.

        Raises:
            UnknownNodeError: If a node was erased meanwhile; run again.
            UnknownTurnError: If a source turn of a node was forgotten meanwhile; run again.
        """
        seen = self._store.snapshot(space, embedding_model=self._encoder.model_id)
        edges = _edges_by_end(seen)
        into: dict[int, int] = {}
        for match in same_names(seen, self._threshold, kinds_of_entities(self._store, space)):
            if is_stopped():
                return Merged(len(into))
            into[match.row] = match.into
            self._merge(seen, match, edges.get(match.row, ()), into)
        # What was written since the snapshot may concern the nodes that were merged.
        return Merged(len(into), self._complete(self._store.snapshot(space) if into else seen))

    def _complete(self, seen: Snapshot) -> int:
        """Copy edges and source turns of merged nodes that the nodes that stay lack; returns for how many nodes."""
        archived = np.flatnonzero(~seen.active & np.isin(seen.types, NAMED_TYPES)).tolist()
        nodes = self._store.nodes(seen.space, ids=[seen.ids[row] for row in archived], include_archived=True)
        stays = merged_nodes(nodes).items()
        into = {seen.row_of[node_id]: seen.row_of[kept] for node_id, kept in stays if kept in seen.row_of}
        if not into:
            return 0
        edges = _edges_by_end(seen)
        completed = 0
        for row, kept in into.items():
            ends = ((seen.source[edge], seen.relations[edge], seen.target[edge]) for edge in edges.get(kept, ()))
            present = {(seen.ids[source], str(label), seen.ids[target]) for source, label, target in ends}
            moved = _moved(seen, edges.get(row, ()), into)
            lacking = [edge for edge in moved if (edge.source, edge.label, edge.target) not in present]
            known = {*seen.turns_of[kept]}
            turns = tuple(turn for turn in seen.turns_of[row] if turn not in known)
            if lacking or turns:
                update = NodeUpdate(seen.ids[kept], add_provenance=turns)
                known_since = moment(int(seen.recorded_at[row]))
                self._store.commit(GraphChange(seen.space, known_since, updates=(update,), relations=tuple(lacking)))
                completed += 1
        return completed

    def _merge(self, seen: Snapshot, match: Match, edges: Sequence[int], into: dict[int, int]) -> None:
        node = self._store.node(seen.space, seen.ids[match.row])
        kept = seen.ids[match.into]
        marks = {MERGED_INTO: kept, MERGED_BY: match.by}
        self._store.commit(
            GraphChange(
                seen.space,
                moment(int(seen.recorded_at[match.row])),
                updates=(
                    NodeUpdate(node.id, status=NodeStatus.ARCHIVED, attributes={**node.attributes, **marks}),
                    NodeUpdate(kept, add_provenance=node.provenance),
                ),
                relations=(*_moved(seen, edges, into), NewRelation(node.id, "SIMILAR_TO", kept, match.cosine)),
            )
        )


def _edges_by_end(seen: Snapshot) -> dict[int, list[int]]:
    """Indices of the edges at each row that has any."""
    edges: dict[int, list[int]] = {}
    for edge, ends in enumerate(zip(seen.source.tolist(), seen.target.tolist(), strict=True)):
        for end in ends:
            edges.setdefault(end, []).append(edge)
    return edges


def _moved(seen: Snapshot, edges: Sequence[int], into: Mapping[int, int]) -> list[NewRelation]:
    """Copies of edges in which each row in ``into`` is replaced by the one it maps to; loops are left out."""
    ends = [tuple(into.get(int(row), int(row)) for row in (seen.source[e], seen.target[e])) for e in edges]
    return [
        NewRelation(seen.ids[source], str(seen.relations[e]), seen.ids[target], float(seen.weights[e]))
        for e, (source, target) in zip(edges, ends, strict=True)
        if source != target
    ]


def same_names(seen: Snapshot, threshold: float, kinds: Mapping[NodeId, str]) -> list[Match]:
    """The active entities and concepts that mean the same as an older one of their type, oldest first.

    Two names mean the same if they differ only in case, articles and plural, or if their embeddings are close and they
    contain the same capitalised words and numbers: "hike" and "hiking", but not "Ann's house" and "Ben's house". In
    scripts without capitals every word counts, since text encoders may not tell their names apart.
    """
    matches: list[Match] = []
    for node_type in NAMED_TYPES:
        rows = seen.active_rows([node_type])
        leaders: list[int] = []
        by_key: dict[str, int] = {}
        vectors = np.zeros((len(rows), seen.embeddings.shape[1]), dtype=np.float32)  # of the leaders
        for row in rows.tolist():
            cosines = products.with_rows(vectors[: len(leaders)], seen.embeddings[row])
            key = spelling_key(seen.labels[row])
            leader = by_key.get(key)
            if leader is not None and not _is_another_thing(seen, kinds, leader, row):
                cosine = float(seen.embeddings[leader] @ seen.embeddings[row])
                matches.append(Match(row, leader, "spelling", cosine))
                continue
            nearest = int(cosines.argmax()) if leaders else -1
            if nearest >= 0 and cosines[nearest] >= threshold and _proper(seen, leaders[nearest]) == _proper(seen, row):
                matches.append(Match(row, leaders[nearest], "meaning", float(cosines[nearest])))
                continue
            vectors[len(leaders)] = seen.embeddings[row]
            leaders.append(row)
            by_key.setdefault(key, row)
    return matches


def _is_another_thing(seen: Snapshot, kinds: Mapping[NodeId, str], one: int, other: int) -> bool:
    """Whether two entities of one spelling key are of different known kinds, one with a capital: Jean and jeans."""
    found = {kinds.get(seen.ids[row], OTHER) for row in (one, other)} - {OTHER}
    return len(found) > 1 and _proper(seen, one) != _proper(seen, other)


def _proper(seen: Snapshot, row: int) -> frozenset[str]:
    """Numbers, words with a capital, and words of scripts that have none."""
    found = _WORD_OR_NUMBER.findall(seen.labels[row])
    return frozenset(word for word in found if word[0] != word[0].lower() or word[0] == word[0].upper())

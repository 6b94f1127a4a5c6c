"""Writes a change of the graph in one transaction, together with node history and outbox rows."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, insert, select, update

from locigraph.kg.errors import StoreError, UnknownNodeError, UnknownTurnError, UnknownTypeError, nearest
from locigraph.kg.schema import EPISODE, RELATION_LABELS, SUPERSEDED_BY
from locigraph.kg.store import changes, embeddings, labels, remembered, tables, turns
from locigraph.kg.store.statements import dialect_insert, insert_or_keep, rows_in
from locigraph.kg.times import epoch, moment, optional_epoch
from locigraph.kg.types import GraphChange, NodeId, NodeUpdate, TurnId, TurnState


def text_digest(text: str) -> str:
    """Sixteen hexadecimal digits that identify a description."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sanitize_label(label: str) -> str:
    """The label reduced to at most 48 lower-case ASCII letters, digits and underscores; never empty."""
    ascii_label = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", ascii_label).strip("_")[:48].rstrip("_") or "node"


class _StoredNode(NamedTuple):
    key: int
    created_at: int
    type: str


class Commit:
    """Writes one change: resolves temporary names, then writes nodes, updates, edges and the outbox.

    The rows of a table are written in one statement, since a turn makes dozens of rows and each statement costs time.
    """

    def __init__(self, connection: Connection, change: GraphChange) -> None:
        self._connection = connection
        self._change = change
        self._now = epoch(change.recorded_at)
        self._stored = self._read_stored()  # stored nodes to which the change refers, by id
        self._keys = {name: node.key for name, node in self._stored.items()}  # by id; new nodes are added by ref
        self._provenance: list[tuple[int, Sequence[TurnId], bool]] = []  # node key, turns, is the wording theirs
        self._embeddings: list[tuple[int, str, NDArray[np.float32]]] = []

    def run(self) -> dict[str, NodeId]:
        """Write everything; returns the ids given to new nodes, by ref."""
        change = self._change
        ids = self._add_nodes()
        touched = [self._keys[node.ref] for node in change.nodes]
        touched += [key for update_ in change.updates if (key := self._update_node(update_)) is not None]
        self._write_provenance()
        self._write_embeddings()
        self._write_relations()
        self._drop_relations()
        followers = self._read_with()
        embeddings.drop_in_context(self._connection, followers)
        changes.post(self._connection, change.space, touched, "upsert")
        changes.list_changed(self._connection, change.space, [*touched, *self._turns_with_other_edges(), *followers])
        changed = [*touched, *(key for key, *_ in self._provenance), *self._replaced(), *followers]
        changes.count(self._connection, change.space, changed)
        for name, value in change.remembered.items():
            remembered.put(self._connection, name, value)
        if change.turn_id is not None:
            self._finish_turn(change.turn_id)
        return ids

    def _replaced(self) -> list[int]:
        """Keys of the nodes of which something else is known now about what has replaced them."""
        change, table = self._change, tables.relations.c
        ends = [relation.source for relation in change.relations if relation.label == SUPERSEDED_BY]
        ends += [source for source, label, _ in change.dropped if label == SUPERSEDED_BY]
        new = {self._keys[node.ref] for node in change.nodes}
        reworded = sorted({key for key, _, is_worded in self._provenance if is_worded} - new)
        query = select(table.source).where(table.label == SUPERSEDED_BY)
        rows = rows_in(self._connection, query, table.target, reworded) if reworded else ()
        return [*map(self._key, ends), *(int(row.source) for row in rows)]

    def _read_with(self) -> list[int]:
        """Keys of the stored episodes that text encoders read with a new one, which is that of a late turn."""
        change = self._change
        new = {node.ref for node in change.nodes}
        late = {self._keys[r.source] for r in change.relations if r.label == "NEXT" and r.source in new}
        return embeddings.followers(self._connection, change.space, late)

    def _turns_with_other_edges(self) -> list[int]:
        """Keys of the stored episodes to which this change adds edges, or from which it drops some."""
        change = self._change
        ends = [end for relation in change.relations for end in (relation.source, relation.target)]
        ends += [end for source, _, target in change.dropped for end in (source, target)]
        stored = (self._stored[end] for end in ends if end in self._stored)
        return [node.key for node in stored if node.type == EPISODE]

    def _finish_turn(self, turn_id: TurnId) -> None:
        table = tables.turns
        is_turn = table.c.space == self._change.space, table.c.turn_id == turn_id
        state = self._connection.scalar(select(table.c.state).where(*is_turn))
        if state is None:
            raise UnknownTurnError(f"space {self._change.space!r} has no turn {turn_id!r}")
        if state == TurnState.DONE:  # else two processes that build the same store would duplicate every node
            raise StoreError(f"space {self._change.space!r}: turn {turn_id!r} is already consolidated")
        failure = self._change.failure
        outcome = TurnState.DONE if failure is None else TurnState.FAILED
        self._connection.execute(update(table).where(*is_turn).values(state=outcome, error=failure))

    def _read_stored(self) -> dict[str, _StoredNode]:
        refs = {node.ref for node in self._change.nodes}
        names = {str(update_.id) for update_ in self._change.updates}
        names.update(end for relation in self._change.relations for end in (relation.source, relation.target))
        names.update(end for source, _, target in self._change.dropped for end in (source, target))
        table = tables.nodes
        query = select(table.c.id, table.c.key, table.c.created_at, table.c.type).where(
            table.c.space == self._change.space
        )
        rows = rows_in(self._connection, query, table.c.id, sorted(names - refs))
        return {row.id: _StoredNode(int(row.key), int(row.created_at), row.type) for row in rows}

    def _add_nodes(self) -> dict[str, NodeId]:
        nodes = self._change.nodes
        known = set(self._connection.scalars(select(tables.node_types.c.name)))
        for node in nodes:
            if node.type not in known:
                raise UnknownTypeError(f"node type {node.type!r} is not in the schema{nearest(node.type, known)}")
            if not node.description.strip():
                raise StoreError(
                    f"node {node.ref!r} ({node.type}) has an empty description, so no search could find it"
                )
        refs = [node.ref for node in nodes]
        if len(set(refs)) != len(refs):
            twice = next(ref for ref in refs if refs.count(ref) > 1)
            raise StoreError(f"two new nodes of one change share the temporary id {twice!r}")
        if not nodes:
            return {}
        ids = self._unique_ids([node.label for node in nodes])
        rows = [
            {
                "space": self._change.space, "id": node_id, "type": node.type, "label": node.label,
                "description": node.description, "text_hash": text_digest(node.description),
                "status": node.status, "created_at": self._now, "update_time": self._now,
                "valid_from": optional_epoch(node.valid_from),
                "valid_to": optional_epoch(node.valid_to) if node.open_until is None else None,
                "attributes": dict(node.attributes),
            }
            for node, node_id in zip(nodes, ids, strict=True)
        ]  # fmt: skip
        keys = self._connection.scalars(
            insert(tables.nodes).returning(tables.nodes.c.key, sort_by_parameter_order=True), rows
        ).all()
        for node, row, key in zip(nodes, rows, keys, strict=True):
            self._keys[node.ref] = int(key)
            self._provenance.append((int(key), node.provenance, True))
            if node.embedding is not None:
                self._embeddings.append((int(key), str(row["text_hash"]), node.embedding))
            if node.open_until is not None:
                self._keep_version(int(key), {**row, "update_time": self._now}, until=epoch(node.open_until))
                ending = {"valid_to": optional_epoch(node.valid_to), "update_time": epoch(node.open_until)}
                self._connection.execute(update(tables.nodes).where(tables.nodes.c.key == int(key)).values(**ending))
        return dict(zip(refs, ids, strict=True))

    def _unique_ids(self, labels: Sequence[str]) -> list[NodeId]:
        time = f"{moment(self._now):%Y%m%dT%H%M%S}"
        wanted = [f"{time}_{sanitize_label(label)}" for label in labels]
        table = tables.nodes.c
        query = select(table.id).where(table.space == self._change.space)
        taken = {row.id for row in rows_in(self._connection, query, table.id, wanted)}
        ids: list[NodeId] = []
        for base in wanted:
            node_id = f"{base}_{self._free_number(base, taken)}" if base in taken else base
            taken.add(node_id)
            ids.append(NodeId(node_id))
        return ids

    def _free_number(self, base: str, taken: Container[str]) -> int:
        """A number that gives a new ID if it is put after a taken one: the next one, where all lower ones are taken.

        It is found by bisection, since all nodes of a space may have one label and time: an undated conversation in
        a script of which ``sanitize_label`` keeps nothing.
        """
        table = tables.nodes

        def is_free(number: int) -> bool:
            node_id = f"{base}_{number}"
            query = select(table.c.key).where(table.c.space == self._change.space, table.c.id == node_id)
            return node_id not in taken and self._connection.execute(query).first() is None

        free = 2
        while not is_free(free):
            free *= 2
        unknown = range(free // 2 + 1, free)
        return unknown.start + bisect_left(unknown, True, key=is_free)

    def _update_node(self, new: NodeUpdate) -> int | None:
        """Apply one update; returns the node's key if its index row must be rewritten, else None."""
        if new.id not in self._stored:
            raise UnknownNodeError(f"space {self._change.space!r} has no node {new.id!r} to update")
        key = self._stored[new.id].key
        self._provenance.append((key, new.add_provenance, new.label is not None or new.description is not None))
        values = new.changed
        if not values:
            return None  # indexes do not store the source turns of nodes with several sources
        table = tables.nodes
        old = self._connection.execute(select(table).where(table.c.key == key)).one()
        now = max(self._now, old.update_time)  # turns may arrive out of order, but history must be in order
        self._keep_version(key, dict(old._mapping), until=now)
        text_hash = old.text_hash if new.description is None else text_digest(new.description)
        if (embedding := values.pop("embedding", None)) is not None:
            self._embeddings.append((key, text_hash, embedding))
        if new.attributes is not None:
            values["attributes"] = dict(new.attributes)
        values |= {name: epoch(values[name]) for name in ("valid_from", "valid_to") if name in values}
        self._connection.execute(
            update(table).where(table.c.key == key).values(**values, update_time=now, text_hash=text_hash)
        )
        return key

    def _keep_version(self, key: int, row: Mapping[str, Any], *, until: int) -> None:
        """Keep what was known of a node until a time, in seconds since 1970."""
        versions = tables.node_versions
        version = self._connection.execute(select(func.count()).where(versions.c.key == key)).scalar_one()
        kept = {name: row[name] for name in tables.VERSIONED}
        self._connection.execute(insert(versions).values(key=key, version=version, recorded_until=until, **kept))

    def _key(self, name: str) -> int:
        if name not in self._keys:
            raise UnknownNodeError(
                f"space {self._change.space!r} has no node {name!r}, and this change does not create it"
            )
        return self._keys[name]

    def _write_provenance(self) -> None:
        named = sorted({turn_id for _, turn_ids, _ in self._provenance for turn_id in turn_ids})
        turn_keys = turns.keys_of(self._connection, self._change.space, named)
        for turn_id in named:
            if turn_id not in turn_keys:
                raise UnknownTurnError(
                    f"space {self._change.space!r}: provenance names turn {turn_id!r}, which is not stored"
                )
        rows = [
            {"node_key": key, "turn_key": turn_keys[turn_id], "recorded_at": self._now, "worded": is_worded}
            for key, turn_ids, is_worded in self._provenance
            for turn_id in turn_ids
        ]
        if rows:
            table = tables.provenance
            statement = dialect_insert(self._connection, table)
            worded = table.c.worded | statement.excluded.worded  # once set, stays: later versions may keep the words
            keys = list(table.primary_key.columns)
            self._connection.execute(
                statement.on_conflict_do_update(index_elements=keys, set_={"worded": worded}), rows
            )

    def _write_embeddings(self) -> None:
        if not self._embeddings:
            return
        if self._change.embedding_model is None:
            raise StoreError("a change with embeddings must name embedding_model")
        embeddings.put_rows(self._connection, self._change.embedding_model, self._embeddings)

    def _coin(self) -> None:
        coined = {name: text for name, text in self._change.coined.items() if name not in RELATION_LABELS}
        if coined:
            turn_id = self._change.turn_id
            keys = turns.keys_of(self._connection, self._change.space, [] if turn_id is None else [turn_id])
            labels.coin(self._connection, self._change.space, coined, None if turn_id is None else keys.get(turn_id))

    def _write_relations(self) -> None:
        if not self._change.relations:
            return
        self._coin()
        known = labels.read(self._connection, self._change.space)
        rows = []
        for relation in self._change.relations:
            if relation.label not in known:
                raise UnknownTypeError(
                    f"relation label {relation.label!r} is not in the schema{nearest(relation.label, known)}; "
                    "coin it in the same change"
                )
            if not math.isfinite(relation.weight):
                raise StoreError(
                    f"relation {relation.source!r} {relation.label} {relation.target!r} has weight {relation.weight}; "
                    "expected a finite number"
                )
            source, target = self._key(relation.source), self._key(relation.target)
            # Turns may arrive out of order, and an edge must not be visible before both of its ends.
            ends = [self._stored[end].created_at for end in (relation.source, relation.target) if end in self._stored]
            rows.append(
                {
                    "space": self._change.space, "source": source, "label": relation.label, "target": target,
                    "weight": relation.weight, "created_at": max([self._now, *ends]),
                    "turn_id": self._change.turn_id,
                }
            )  # fmt: skip
        self._connection.execute(insert_or_keep(self._connection, tables.relations), rows)

    def _drop_relations(self) -> None:
        table = tables.relations
        for source, label, target in self._change.dropped:
            ends = table.c.source == self._key(source), table.c.target == self._key(target)
            self._connection.execute(delete(table).where(*ends, table.c.label == label))

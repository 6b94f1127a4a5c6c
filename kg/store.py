"""The store: the one record of truth. Turns, the graph with its history, embeddings, and the outbox.

Every read and write names a space. One turn's changes are one transaction, which also writes the outbox rows that
an indexer later drains into the vector index; the index can always be rebuilt from here.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection, Engine, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from kg import export, migrations, tables
from kg.errors import (
    InvalidVectorError,
    StoreError,
    TurnConflictError,
    UnknownNodeError,
    UnknownSpaceError,
    UnknownTypeError,
    nearest,
)
from kg.schema import COINED_FAMILY, NODE_TYPES, RELATION_LABELS, SEARCHABLE_TYPES, RelationLabel
from kg.snapshot import Snapshot
from kg.tables import epoch, moment, optional_epoch
from kg.types import (
    GraphChange,
    Node,
    NodeId,
    NodeStatus,
    NodeUpdate,
    Relation,
    SpaceId,
    Turn,
    TurnId,
    TurnState,
)

_Item = TypeVar("_Item")

_LABEL_PATTERN = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
# SQLite allows 32,766 bound values in a statement; lists of ids are cut well below that.
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A node whose index row must be written or removed."""

    seq: int
    space: SpaceId
    node_key: int
    action: str


@dataclass(frozen=True, slots=True)
class TurnFailure:
    """A turn whose consolidation failed, and why."""

    turn_id: TurnId
    error: str


class Store:
    """A graph store over SQLAlchemy Core.

    Args:
        url: SQLAlchemy URL, or the path of an SQLite file, made when absent.

    Raises:
        StoreError: If the database cannot be opened.
        StoreVersionError: If a newer version wrote it.
    """

    def __init__(self, url: str | Path) -> None:
        text_url = str(url)
        if "://" not in text_url:
            Path(text_url).parent.mkdir(parents=True, exist_ok=True)
            text_url = f"sqlite:///{text_url}"
        self.url = text_url
        self._engine = _make_engine(text_url)
        try:
            with self._write() as connection:
                migrations.upgrade(connection, url=text_url)
                _seed_schema(connection)
        except sa.exc.DBAPIError as error:
            raise StoreError(
                f"cannot open store {text_url!r}: {error.orig}; name a database file of locigraph or a new path"
            ) from error

    def close(self) -> None:
        """Release the database's connections."""
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        with self._engine.execution_options(write=True).begin() as connection:
            yield connection

    # --- schema and settings -------------------------------------------------------------------------------

    def relation_labels(self) -> dict[str, RelationLabel]:
        """All relation labels, built-in and coined, by name."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(tables.relation_labels)).all()
        return {row.name: RelationLabel(row.name, row.kind, row.family, row.description) for row in rows}

    def node_types(self) -> dict[str, str | None]:
        """Parent of every node type, by name."""
        with self._engine.connect() as connection:
            return {r.name: r.parent for r in connection.execute(select(tables.node_types))}

    def coin_relation(self, name: str, description: str) -> None:
        """Keep a relation label that an extraction coined; the graph network sees it as ``RELATED_TO``.

        Raises:
            UnknownTypeError: If the name is not made of capitals, digits and underscores.
        """
        if not _LABEL_PATTERN.fullmatch(name):
            raise UnknownTypeError(f"relation label {name!r} is not CAPITALS_WITH_UNDERSCORES (at most 64)")
        with self._write() as connection:
            known = connection.execute(
                select(tables.relation_labels.c.name).where(tables.relation_labels.c.name == name)
            ).first()
            if known is None:
                connection.execute(
                    insert(tables.relation_labels).values(
                        name=name, kind="semantic", family=COINED_FAMILY, description=description
                    )
                )

    def setting(self, name: str) -> str | None:
        """A remembered value, such as which extractor built a space; None when never set."""
        with self._engine.connect() as connection:
            return connection.execute(select(tables.settings.c.value).where(tables.settings.c.name == name)).scalar()

    def set_setting(self, name: str, value: str) -> None:
        """Remember a value under a name."""
        with self._write() as connection:
            connection.execute(delete(tables.settings).where(tables.settings.c.name == name))
            connection.execute(insert(tables.settings).values(name=name, value=value))

    # --- turns ---------------------------------------------------------------------------------------------

    def spaces(self) -> list[SpaceId]:
        """All tenants, sorted."""
        with self._engine.connect() as connection:
            return [SpaceId(s) for s in connection.scalars(select(tables.spaces.c.space).order_by("space"))]

    def require_space(self, space: SpaceId) -> None:
        """Raise UnknownSpaceError unless the tenant exists."""
        with self._engine.connect() as connection:
            found = connection.execute(select(tables.spaces.c.space).where(tables.spaces.c.space == space)).first()
        if found is None:
            raise UnknownSpaceError(space, self.spaces())

    def append_turns(self, turns: Sequence[Turn]) -> int:
        """Write turns durably, all or none; a turn that is there already with the same content is passed over.

        Returns:
            How many were new.

        Raises:
            TurnConflictError: If an id holds other content.
        """
        with self._write() as connection:
            new = [turn for turn in turns if not self._holds_turn(connection, turn)]
            for space in sorted({turn.space for turn in new}):
                if not connection.execute(select(tables.spaces).where(tables.spaces.c.space == space)).first():
                    connection.execute(insert(tables.spaces).values(space=space))
            if new:
                connection.execute(insert(tables.turns), [_turn_row(turn) for turn in new])
        return len(new)

    @staticmethod
    def _holds_turn(connection: Connection, turn: Turn) -> bool:
        table = tables.turns
        row = connection.execute(
            select(table).where(table.c.space == turn.space, table.c.turn_id == turn.turn_id)
        ).first()
        if row is None:
            return False
        held = _turn(row)
        if _comparable(held) != _comparable(turn):
            raise TurnConflictError(
                f"space {turn.space!r}: turn {turn.turn_id!r} is stored with other content "
                f"({held.text[:40]!r} against {turn.text[:40]!r}); give the new words a new turn id"
            )
        return True

    def turns(self, space: SpaceId, *, state: TurnState | None = None) -> list[Turn]:
        """Turns of a space in conversation order, all or those in one state."""
        self.require_space(space)
        table = tables.turns
        query = select(table).where(table.c.space == space).order_by(table.c.position, table.c.key)
        if state is not None:
            query = query.where(table.c.state == state)
        with self._engine.connect() as connection:
            return [_turn(row) for row in connection.execute(query)]

    def turn_counts(self, space: SpaceId) -> dict[TurnState, int]:
        """Number of turns in each state."""
        self.require_space(space)
        table = tables.turns
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(table.c.state, func.count()).where(table.c.space == space).group_by(table.c.state)
            ).all()
        found = {row[0]: int(row[1]) for row in rows}
        return {state: found.get(state, 0) for state in TurnState}

    def fail_turn(self, space: SpaceId, turn_id: TurnId, error: str) -> None:
        """Mark a turn as failed with its reason; its words stay and it can be retried."""
        self._set_turn_state(space, turn_id, TurnState.FAILED, error)

    def retry_turn(self, space: SpaceId, turn_id: TurnId) -> None:
        """Put a failed turn back among the pending."""
        self._set_turn_state(space, turn_id, TurnState.PENDING, None)

    def _set_turn_state(self, space: SpaceId, turn_id: TurnId, state: TurnState, error: str | None) -> None:
        with self._write() as connection:
            _update_turn_state(connection, space, turn_id, state, error)

    def failures(self, space: SpaceId) -> list[TurnFailure]:
        """Turns whose consolidation failed."""
        self.require_space(space)
        table = tables.turns
        with self._engine.connect() as connection:
            rows = connection.execute(
                select(table.c.turn_id, table.c.error)
                .where(table.c.space == space, table.c.state == TurnState.FAILED)
                .order_by(table.c.position)
            ).all()
        return [TurnFailure(TurnId(row.turn_id), row.error or "") for row in rows]

    # --- the graph -----------------------------------------------------------------------------------------

    def commit(self, change: GraphChange) -> dict[str, NodeId]:
        """Apply one change in one transaction, mark its turn done, and write the outbox.

        Returns:
            The id given to each new node, by its temporary ``ref``.

        Raises:
            UnknownSpaceError, UnknownNodeError, UnknownTypeError, InvalidVectorError, StoreError: Nothing is
                changed then.
        """
        with self._write() as connection:
            if not connection.execute(select(tables.spaces).where(tables.spaces.c.space == change.space)).first():
                raise UnknownSpaceError(change.space, self.spaces())
            return _Commit(connection, change).run()

    def nodes(
        self,
        space: SpaceId,
        *,
        types: Sequence[str] | None = None,
        ids: Sequence[NodeId] | None = None,
        as_of: datetime | None = None,
        include_archived: bool = False,
    ) -> list[Node]:
        """Nodes of a space, oldest first, as they were known at ``as_of`` (None: now)."""
        self.require_space(space)
        clauses: list[str] = []
        parameters: dict[str, Any] = {"space": space, "t": _latest(as_of)}
        if types is not None:
            clauses.append("n.type IN :types")
            parameters["types"] = list(types)
        if ids is not None:
            clauses.append("n.id IN :ids")
            parameters["ids"] = list(ids)
        statement = sa.text(_NODES_AS_OF + "".join(f" AND {clause}" for clause in clauses) + " ORDER BY n.key")
        expanding: list[sa.BindParameter[Any]] = [
            sa.bindparam(name, expanding=True) for name in ("types", "ids") if name in parameters
        ]
        with self._engine.connect() as connection:
            rows = connection.execute(statement.bindparams(*expanding), parameters).all()
            sources = self._provenance(connection, space, parameters["t"])
        return [
            _node(space, row, sources.get(row.key, ()))
            for row in rows
            if include_archived or row.status == NodeStatus.ACTIVE
        ]

    def node(self, space: SpaceId, node_id: NodeId, *, as_of: datetime | None = None) -> Node:
        """One node, archived or not.

        Raises:
            UnknownNodeError: If the space does not hold the id at that time.
        """
        found = self.nodes(space, ids=[node_id], as_of=as_of, include_archived=True)
        if not found:
            raise UnknownNodeError(f"space {space!r} holds no node {node_id!r}")
        return found[0]

    def relations(self, space: SpaceId, *, as_of: datetime | None = None) -> list[Relation]:
        """Edges of a space as known at ``as_of``, in the order of their ends."""
        self.require_space(space)
        ends = tables.nodes.alias("s"), tables.nodes.alias("t")
        table = tables.relations
        query = (
            select(
                ends[0].c.id.label("source"), table.c.label, ends[1].c.id.label("target"),
                table.c.weight, table.c.valid_from, table.c.valid_to,
            )
            .join(ends[0], ends[0].c.key == table.c.source)
            .join(ends[1], ends[1].c.key == table.c.target)
            .where(table.c.space == space, table.c.created_at <= _latest(as_of))
            .order_by(table.c.source, table.c.label, table.c.target)
        )  # fmt: skip
        with self._engine.connect() as connection:
            return [
                Relation(
                    NodeId(row.source), row.label, NodeId(row.target), row.weight,
                    moment(row.valid_from), moment(row.valid_to),
                )
                for row in connection.execute(query)
            ]  # fmt: skip

    @staticmethod
    def _provenance(connection: Connection, space: SpaceId, latest: int) -> dict[int, tuple[TurnId, ...]]:
        rows = connection.execute(
            select(tables.provenance.c.node_key, tables.turns.c.turn_id)
            .join(tables.turns, tables.turns.c.key == tables.provenance.c.turn_key)
            .where(tables.turns.c.space == space, tables.provenance.c.recorded_at <= latest)
            .order_by(tables.turns.c.position)
        )
        grouped: dict[int, list[TurnId]] = {}
        for row in rows:
            grouped.setdefault(row.node_key, []).append(TurnId(row.turn_id))
        return {key: tuple(ids) for key, ids in grouped.items()}

    def forget(self, space: SpaceId, turn_ids: Sequence[TurnId]) -> int:
        """Erase turns and all that was drawn from them: the one deletion there is.

        Episodes, events, facts and reflections with any of the turns in their provenance go, since their wording
        may hold what must be forgotten; concepts and entities go when no other turn speaks of them. Relations,
        earlier versions and embeddings go with their nodes, and the outbox tells every index.

        Returns:
            Number of nodes removed.

        Raises:
            UnknownSpaceError: If there is no such tenant.
            StoreError: If a turn is not in the space; nothing is removed then.
        """
        self.require_space(space)
        with self._write() as connection:
            turn_keys = _turn_keys(connection, space, turn_ids)
            missing = sorted(set(turn_ids) - set(turn_keys))
            if missing:
                raise StoreError(f"space {space!r} holds no turn {missing[0]!r}; nothing was forgotten")
            doomed_turns = set(turn_keys.values())
            touched: dict[int, str] = {}
            for chunk in _chunks(sorted(doomed_turns)):
                touched.update(
                    (row.key, row.type)
                    for row in connection.execute(
                        select(tables.nodes.c.key, tables.nodes.c.type)
                        .join(tables.provenance, tables.provenance.c.node_key == tables.nodes.c.key)
                        .where(tables.provenance.c.turn_key.in_(chunk))
                    )
                )
            doomed = [key for key, kind in touched.items() if kind not in ("concept", "entity")]
            for key in (key for key, kind in touched.items() if kind in ("concept", "entity")):
                sources = set(
                    connection.scalars(select(tables.provenance.c.turn_key).where(tables.provenance.c.node_key == key))
                )
                if sources <= doomed_turns:
                    doomed.append(key)
            self._delete_nodes(connection, space, doomed)
            for chunk in _chunks(sorted(doomed_turns)):
                connection.execute(delete(tables.turns).where(tables.turns.c.key.in_(chunk)))
        return len(doomed)

    def forget_space(self, space: SpaceId) -> None:
        """Erase a tenant with everything it holds."""
        self.require_space(space)
        with self._write() as connection:
            keys = list(connection.scalars(select(tables.nodes.c.key).where(tables.nodes.c.space == space)))
            self._delete_nodes(connection, space, keys)
            connection.execute(delete(tables.turns).where(tables.turns.c.space == space))
            connection.execute(delete(tables.spaces).where(tables.spaces.c.space == space))

    @staticmethod
    def _delete_nodes(connection: Connection, space: SpaceId, keys: Sequence[int]) -> None:
        for chunk in _chunks(sorted(keys)):
            connection.execute(delete(tables.nodes).where(tables.nodes.c.key.in_(chunk)))
        _post(connection, space, keys, "delete")

    # --- embeddings ----------------------------------------------------------------------------------------

    def put_embeddings(self, space: SpaceId, model: str, ids: Sequence[NodeId], vectors: NDArray[np.float32]) -> None:
        """Write description embeddings of existing nodes and tell the indexes.

        Args:
            space: The tenant.
            model: Id of the text encoder.
            ids: Nodes, in the order of the rows.
            vectors: float32 [nodes, dim].

        Raises:
            InvalidVectorError: NaN, infinity, or not one row a node.
            UnknownNodeError: If the space does not hold an id.
        """
        if vectors.ndim != 2 or len(vectors) != len(ids):
            raise InvalidVectorError(f"expected {len(ids)} rows of vectors, got shape {vectors.shape}")
        with self._write() as connection:
            found: dict[str, tuple[int, str]] = {}
            for chunk in _chunks(list(ids)):
                table = tables.nodes
                found.update(
                    (row.id, (row.key, row.text_hash))
                    for row in connection.execute(
                        select(table.c.id, table.c.key, table.c.text_hash).where(
                            table.c.space == space, table.c.id.in_(chunk)
                        )
                    )
                )
            for node_id in ids:
                if node_id not in found:
                    raise UnknownNodeError(f"space {space!r} holds no node {node_id!r}")
            rows = [(*found[node_id], vector) for node_id, vector in zip(ids, vectors, strict=True)]
            _put_embeddings(connection, model, rows)
            _post(connection, space, [found[i][0] for i in ids], "upsert")

    def unembedded(self, space: SpaceId, model: str) -> list[tuple[NodeId, str]]:
        """(id, description) of the nodes without a vector of this model for their present text."""
        n, e = tables.nodes, tables.embeddings
        held = sa.and_(e.c.node_key == n.c.key, e.c.model == model, e.c.text_hash == n.c.text_hash)
        query = (
            select(n.c.id, n.c.description)
            .outerjoin(e, held)
            .where(n.c.space == space, e.c.node_key.is_(None))
            .order_by(n.c.key)
        )
        self.require_space(space)
        with self._engine.connect() as connection:
            return [(NodeId(row.id), row.description) for row in connection.execute(query)]

    # --- outbox --------------------------------------------------------------------------------------------

    def read_outbox(self, *, limit: int) -> list[OutboxRow]:
        """The oldest rows that no indexer has acknowledged."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(tables.outbox).order_by(tables.outbox.c.seq).limit(limit)).all()
        return [OutboxRow(row.seq, SpaceId(row.space), row.node_key, row.action) for row in rows]

    def acknowledge_outbox(self, up_to: int) -> None:
        """Drop the rows up to a sequence number: the index holds them durably."""
        with self._write() as connection:
            connection.execute(delete(tables.outbox).where(tables.outbox.c.seq <= up_to))

    # --- bulk export ---------------------------------------------------------------------------------------

    def snapshot(
        self, space: SpaceId, *, as_of: datetime | None = None, embedding_model: str | None = None
    ) -> Snapshot:
        """The graph of a space as arrays, as known at ``as_of`` (None: now).

        Args:
            space: The tenant.
            as_of: Nothing recorded later is visible.
            embedding_model: Whose vectors to read; None for none.

        Raises:
            UnknownSpaceError: If there is no such tenant.
            InvalidVectorError: If a node has no vector of the model.
        """
        self.require_space(space)
        parameters: dict[str, str | int] = {"space": space, "t": _latest(as_of)}
        node_table = export.read_columns(self._engine, _NODES_AS_OF + " ORDER BY n.key", parameters)
        keys = export.integers(node_table["key"])
        edges = export.read_columns(self._engine, _EDGES_AS_OF, parameters)
        turn_table = export.read_columns(self._engine, _TURNS_AS_OF, parameters)
        turn_keys = export.integers(turn_table["key"])
        pairs = export.read_columns(self._engine, _PROVENANCE_AS_OF, parameters)
        turn_order = np.argsort(turn_keys, kind="stable")
        turn_rows = turn_order[
            np.searchsorted(turn_keys, export.integers(pairs["turn_key"]), sorter=turn_order)
        ] if len(turn_keys) else np.zeros(0, dtype=np.int64)  # fmt: skip
        provenance = np.stack([np.searchsorted(keys, export.integers(pairs["node_key"])), turn_rows], axis=1).astype(
            np.int64
        )
        provenance = provenance[np.lexsort((provenance[:, 1], provenance[:, 0]))]
        return Snapshot(
            space=space,
            keys=keys,
            ids=tuple(NodeId(i) for i in export.strings(node_table["id"])),
            types=np.asarray(export.strings(node_table["type"]), dtype=np.str_),
            labels=export.strings(node_table["label"]),
            descriptions=export.strings(node_table["description"]),
            active=np.asarray(export.strings(node_table["status"]), dtype=np.str_) == NodeStatus.ACTIVE,
            recorded_at=export.integers(node_table["created_at"]),
            valid_from=export.integers(node_table["valid_from"]),
            valid_to=export.integers(node_table["valid_to"]),
            embeddings=self._embedding_matrix(node_table, parameters, embedding_model),
            source=np.searchsorted(keys, export.integers(edges["source"])),
            target=np.searchsorted(keys, export.integers(edges["target"])),
            relations=np.asarray(export.strings(edges["label"]), dtype=np.str_),
            families=np.asarray(export.strings(edges["family"]), dtype=np.str_),
            weights=edges["weight"].to_numpy().astype(np.float32),
            turn_ids=tuple(TurnId(i) for i in export.strings(turn_table["turn_id"])),
            speakers=export.strings(turn_table["speaker"]),
            session_ids=export.strings(turn_table["session_id"]),
            spoken_at=export.integers(turn_table["spoken_at"]),
            provenance=provenance,
        )

    def _embedding_matrix(
        self, node_table: pa.Table, parameters: Mapping[str, str | int], model: str | None
    ) -> NDArray[np.float32]:
        if model is None:
            return np.zeros((len(node_table), 0), dtype=np.float32)
        found = export.read_columns(self._engine, _VECTORS, {"space": parameters["space"], "model": model})
        held = pa.table({"key": node_table["key"], "text_hash": node_table["text_hash"]}).append_column(
            "row", pa.array(np.arange(len(node_table)))
        )
        joined = held.join(
            found.append_column("vector_row", pa.array(np.arange(len(found)))).drop_columns(["vector"]),
            keys=["key", "text_hash"],
            join_type="left outer",
        ).sort_by("row")
        missing = joined["vector_row"].null_count
        if missing:
            raise InvalidVectorError(
                f"space {parameters['space']!r}: {missing} of {len(node_table)} nodes have no embedding of "
                f"model {model!r}; run locigraph build with that encoder"
            )
        if len(found) == 0:
            return np.zeros((0, 0), dtype=np.float32)
        dim = len(found["vector"][0].as_py()) // 4
        return export.vectors(found["vector"], dim)[export.integers(joined["vector_row"])]

    def vectors_by_key(
        self, space: SpaceId, keys: Sequence[int], model: str
    ) -> tuple[list[Node], list[int], NDArray[np.float32]]:
        """Nodes of a space by integer key with their present vectors, for the indexer.

        Returns:
            (nodes, their keys, float32 [nodes, dim]); keys without a node or vector are left out.
        """
        n, e = tables.nodes, tables.embeddings
        held = sa.and_(e.c.node_key == n.c.key, e.c.model == model, e.c.text_hash == n.c.text_hash)
        nodes, found, blobs = [], [], []
        with self._engine.connect() as connection:
            for chunk in _chunks(list(keys)):
                query = (
                    select(n, e.c.vector).join(e, held).where(n.c.space == space, n.c.key.in_(chunk)).order_by(n.c.key)
                )
                for row in connection.execute(query):
                    nodes.append(_node(space, row, ()))
                    found.append(int(row.key))
                    blobs.append(np.frombuffer(row.vector, dtype="<f4"))
        matrix = np.stack(blobs).astype(np.float32) if blobs else np.zeros((0, 0), dtype=np.float32)
        return nodes, found, matrix

    def turns_of_nodes(self, space: SpaceId, keys: Sequence[int]) -> dict[int, tuple[TurnId, ...]]:
        """Source turns of nodes by integer key, in conversation order."""
        found: dict[int, list[TurnId]] = {}
        p, t = tables.provenance, tables.turns
        with self._engine.connect() as connection:
            for chunk in _chunks(list(keys)):
                query = (
                    select(p.c.node_key, t.c.turn_id)
                    .join(t, t.c.key == p.c.turn_key)
                    .where(t.c.space == space, p.c.node_key.in_(chunk))
                    .order_by(t.c.position)
                )
                for row in connection.execute(query):
                    found.setdefault(int(row.node_key), []).append(TurnId(row.turn_id))
        return {key: tuple(ids) for key, ids in found.items()}


# A node as known at :t is its present row, or the earlier version that was in force then.
_NODES_AS_OF = """
SELECT n.key AS key, n.id AS id, n.type AS type, n.created_at AS created_at,
       CASE WHEN v.key IS NULL THEN n.label ELSE v.label END AS label,
       CASE WHEN v.key IS NULL THEN n.description ELSE v.description END AS description,
       CASE WHEN v.key IS NULL THEN n.text_hash ELSE v.text_hash END AS text_hash,
       CASE WHEN v.key IS NULL THEN n.status ELSE v.status END AS status,
       CASE WHEN v.key IS NULL THEN n.update_time ELSE v.update_time END AS update_time,
       CASE WHEN v.key IS NULL THEN n.valid_from ELSE v.valid_from END AS valid_from,
       CASE WHEN v.key IS NULL THEN n.valid_to ELSE v.valid_to END AS valid_to,
       CASE WHEN v.key IS NULL THEN n.attributes ELSE v.attributes END AS attributes
FROM nodes n
LEFT JOIN node_versions v
  ON v.key = n.key AND n.update_time > :t AND v.update_time <= :t AND v.recorded_until > :t
WHERE n.space = :space AND n.created_at <= :t
"""
_EDGES_AS_OF = """
SELECT r.source AS source, r.target AS target, r.label AS label, l.family AS family, r.weight AS weight
FROM relations r JOIN relation_labels l ON l.name = r.label
WHERE r.space = :space AND r.created_at <= :t
ORDER BY r.source, r.label, r.target
"""
_TURNS_AS_OF = """
SELECT key, turn_id, speaker, session_id, spoken_at FROM turns
WHERE space = :space AND COALESCE(spoken_at, 0) <= :t ORDER BY position, key
"""
_PROVENANCE_AS_OF = """
SELECT p.node_key AS node_key, p.turn_key AS turn_key
FROM provenance p JOIN turns t ON t.key = p.turn_key JOIN nodes n ON n.key = p.node_key
WHERE t.space = :space AND p.recorded_at <= :t AND COALESCE(t.spoken_at, 0) <= :t AND n.created_at <= :t
"""
_VECTORS = """
SELECT e.node_key AS key, e.text_hash AS text_hash, e.vector AS vector
FROM embeddings e JOIN nodes n ON n.key = e.node_key
WHERE n.space = :space AND e.model = :model ORDER BY e.node_key
"""


class _Commit:
    """One transaction's work: resolves temporary names, writes nodes, updates, edges and the outbox.

    Rows of one table go in one statement: a turn makes dozens of them, and statements are what costs.
    """

    def __init__(self, connection: Connection, change: GraphChange) -> None:
        self._connection = connection
        self._change = change
        self._now = epoch(change.recorded_at)
        self._held = self._existing()  # (key, type) by id of the nodes that the change names
        self._keys = {name: key for name, (key, _) in self._held.items()}  # by id, and by ref once made
        self._provenance: list[tuple[int, Sequence[TurnId]]] = []
        self._embeddings: list[tuple[int, str, NDArray[np.float32]]] = []

    def run(self) -> dict[str, NodeId]:
        change = self._change
        ids = self._add_nodes()
        touched = [self._keys[node.ref] for node in change.nodes]
        touched += [key for update_ in change.updates if (key := self._update_node(update_)) is not None]
        self._write_provenance()
        self._write_embeddings()
        self._write_relations()
        _post(self._connection, change.space, touched, "upsert")
        if change.turn_id is not None:
            _update_turn_state(self._connection, change.space, change.turn_id, TurnState.DONE, None)
        return ids

    def _existing(self) -> dict[str, tuple[int, str]]:
        refs = {node.ref for node in self._change.nodes}
        names = {str(update_.id) for update_ in self._change.updates}
        names.update(end for relation in self._change.relations for end in (relation.source, relation.target))
        table = tables.nodes
        found: dict[str, tuple[int, str]] = {}
        for chunk in _chunks(sorted(names - refs)):
            rows = self._connection.execute(
                select(table.c.id, table.c.key, table.c.type).where(
                    table.c.space == self._change.space, table.c.id.in_(chunk)
                )
            )
            found.update((row.id, (int(row.key), row.type)) for row in rows)
        return found

    def _add_nodes(self) -> dict[str, NodeId]:
        nodes = self._change.nodes
        for node in nodes:
            if node.type not in _KNOWN_TYPES:
                raise UnknownTypeError(
                    f"node type {node.type!r} is not in the schema{nearest(node.type, _KNOWN_TYPES)}"
                )
            if not node.description.strip():
                raise StoreError(f"node {node.ref!r} ({node.type}) has an empty description; nothing could find it")
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
                "status": NodeStatus.ACTIVE, "created_at": self._now, "update_time": self._now,
                "valid_from": optional_epoch(node.valid_from), "valid_to": optional_epoch(node.valid_to),
                "attributes": dict(node.attributes),
            }
            for node, node_id in zip(nodes, ids, strict=True)
        ]  # fmt: skip
        keys = self._connection.scalars(
            insert(tables.nodes).returning(tables.nodes.c.key, sort_by_parameter_order=True), rows
        ).all()
        for node, row, key in zip(nodes, rows, keys, strict=True):
            self._keys[node.ref] = int(key)
            self._provenance.append((int(key), node.provenance))
            if node.embedding is not None:
                self._embeddings.append((int(key), str(row["text_hash"]), node.embedding))
        return dict(zip(refs, ids, strict=True))

    def _unique_ids(self, labels: Sequence[str]) -> list[NodeId]:
        moment_ = f"{datetime.fromtimestamp(self._now, UTC):%Y%m%dT%H%M%S}"
        wanted = [f"{moment_}_{sanitize_label(label)}" for label in labels]
        table = tables.nodes
        ids: list[NodeId] = []
        taken: set[str] = set()
        for chunk in _chunks(wanted):
            taken.update(
                self._connection.scalars(
                    select(table.c.id).where(table.c.space == self._change.space, table.c.id.in_(chunk))
                )
            )
        for base in wanted:
            candidate, number = base, 1
            while candidate in taken or (number > 1 and self._is_taken(candidate)):
                number += 1
                candidate = f"{base}_{number}"
            taken.add(candidate)
            ids.append(NodeId(candidate))
        return ids

    def _is_taken(self, node_id: str) -> bool:
        table = tables.nodes
        query = select(table.c.key).where(table.c.space == self._change.space, table.c.id == node_id)
        return self._connection.execute(query).first() is not None

    def _update_node(self, new: NodeUpdate) -> int | None:
        """Apply one update; the node's key when indexes must hear of it."""
        key = self._key(new.id)
        self._provenance.append((key, new.add_provenance))
        if new.only_adds_provenance:
            # Only what a search may return is counted by its turns, so no index needs to know of the others.
            return key if self._held[new.id][1] in SEARCHABLE_TYPES else None
        table = tables.nodes
        old = self._connection.execute(select(table).where(table.c.key == key)).one()
        now = max(self._now, old.update_time)  # turns may come out of order; history must not
        version = self._connection.execute(select(func.count()).where(tables.node_versions.c.key == key)).scalar_one()
        kept = ("label", "description", "text_hash", "status", "update_time", "valid_from", "valid_to", "attributes")
        self._connection.execute(
            insert(tables.node_versions).values(
                key=key, version=version, recorded_until=now, **{name: getattr(old, name) for name in kept}
            )
        )
        given: dict[str, Any] = {
            "label": new.label, "description": new.description, "status": new.status,
            "valid_from": optional_epoch(new.valid_from), "valid_to": optional_epoch(new.valid_to),
            "attributes": None if new.attributes is None else dict(new.attributes),
        }  # fmt: skip
        values = {name: value for name, value in given.items() if value is not None}
        text_hash = old.text_hash if new.description is None else text_digest(new.description)
        self._connection.execute(
            update(table).where(table.c.key == key).values(update_time=now, text_hash=text_hash, **values)
        )
        if new.embedding is not None:
            self._embeddings.append((key, text_hash, new.embedding))
        return key

    def _key(self, name: str) -> int:
        if name not in self._keys:
            raise UnknownNodeError(f"space {self._change.space!r} holds no node {name!r}, nor does this change make it")
        return self._keys[name]

    def _write_provenance(self) -> None:
        named = sorted({turn_id for _, turn_ids in self._provenance for turn_id in turn_ids})
        turn_keys = _turn_keys(self._connection, self._change.space, named)
        for turn_id in named:
            if turn_id not in turn_keys:
                raise StoreError(
                    f"space {self._change.space!r}: provenance names turn {turn_id!r}, which is not stored"
                )
        rows = [
            {"node_key": key, "turn_key": turn_keys[turn_id], "recorded_at": self._now}
            for key, turn_ids in self._provenance
            for turn_id in turn_ids
        ]
        if rows:
            self._connection.execute(_insert_or_keep(self._connection, tables.provenance), rows)

    def _write_embeddings(self) -> None:
        if not self._embeddings:
            return
        if self._change.embedding_model is None:
            raise StoreError("a change with embeddings must name embedding_model")
        _put_embeddings(self._connection, self._change.embedding_model, self._embeddings)

    def _write_relations(self) -> None:
        if not self._change.relations:
            return
        labels = set(self._connection.scalars(select(tables.relation_labels.c.name)))
        rows = []
        for relation in self._change.relations:
            if relation.label not in labels:
                raise UnknownTypeError(
                    f"relation label {relation.label!r} is not in the schema{nearest(relation.label, labels)}; "
                    "coin it first"
                )
            rows.append(
                {
                    "space": self._change.space, "source": self._key(relation.source), "label": relation.label,
                    "target": self._key(relation.target), "weight": relation.weight, "created_at": self._now,
                    "turn_id": self._change.turn_id, "valid_from": optional_epoch(relation.valid_from),
                    "valid_to": optional_epoch(relation.valid_to),
                }
            )  # fmt: skip
        self._connection.execute(_insert_or_keep(self._connection, tables.relations), rows)


_KNOWN_TYPES = frozenset(node_type.name for node_type in NODE_TYPES)


def text_digest(text: str) -> str:
    """Sixteen hexadecimal digits that name a description."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sanitize_label(label: str) -> str:
    """Lower-case ASCII letters, digits and underscores, at most 48, never empty."""
    ascii_label = unicodedata.normalize("NFKD", label).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "_", ascii_label).strip("_")[:48].rstrip("_") or "node"


def _make_engine(url: str) -> Engine:
    try:
        engine = sa.create_engine(url)
    except (sa.exc.ArgumentError, ModuleNotFoundError) as error:
        raise StoreError(f"store URL {url!r} cannot be used: {error}") from error
    if engine.dialect.name != "sqlite":
        return engine

    # pysqlite opens transactions late and only for some statements; this hands control to us, so that a writer
    # takes the lock at once and its reads and writes are one transaction.
    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, record: object) -> None:
        connection.isolation_level = None
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
            connection.execute(f"PRAGMA {pragma}")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writing = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def _seed_schema(connection: Connection) -> None:
    held = set(connection.scalars(select(tables.node_types.c.name)))
    for node_type in NODE_TYPES:
        if node_type.name not in held:
            connection.execute(
                insert(tables.node_types).values(
                    name=node_type.name, parent=node_type.parent, description=node_type.description
                )
            )
    held = set(connection.scalars(select(tables.relation_labels.c.name)))
    for label in RELATION_LABELS:
        if label.name not in held:
            connection.execute(
                insert(tables.relation_labels).values(
                    name=label.name, kind=label.kind, family=label.family, description=label.description
                )
            )


def _latest(as_of: datetime | None) -> int:
    return np.iinfo(np.int64).max if as_of is None else epoch(as_of)


def _chunks(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def _turn_row(turn: Turn) -> dict[str, Any]:
    return {
        "space": turn.space, "turn_id": turn.turn_id, "conversation_id": turn.conversation_id,
        "session_id": turn.session_id, "position": turn.position, "speaker": turn.speaker, "text": turn.text,
        "image_caption": turn.image_caption, "spoken_at": optional_epoch(turn.spoken_at),
        "state": TurnState.PENDING, "error": None,
    }  # fmt: skip


def _turn(row: Any) -> Turn:
    return Turn(
        SpaceId(row.space), TurnId(row.turn_id), row.conversation_id, row.session_id, row.position, row.speaker,
        row.text, moment(row.spoken_at), row.image_caption,
    )  # fmt: skip


def _comparable(turn: Turn) -> tuple[object, ...]:
    return (
        turn.conversation_id, turn.session_id, turn.position, turn.speaker, turn.text, turn.image_caption,
        optional_epoch(turn.spoken_at),
    )  # fmt: skip


def _node(space: SpaceId, row: Any, sources: tuple[TurnId, ...]) -> Node:
    attributes = row.attributes
    if isinstance(attributes, str):  # a textual query returns JSON undecoded
        attributes = json.loads(attributes)
    created, updated = moment(row.created_at), moment(row.update_time)
    assert created is not None
    assert updated is not None
    return Node(
        space, NodeId(row.id), row.type, row.label, row.description, NodeStatus(row.status), created, updated,
        moment(row.valid_from), moment(row.valid_to), attributes, sources,
    )  # fmt: skip


def _turn_keys(connection: Connection, space: SpaceId, turn_ids: Sequence[TurnId]) -> dict[TurnId, int]:
    table = tables.turns
    found: dict[TurnId, int] = {}
    for chunk in _chunks(list(turn_ids)):
        rows = connection.execute(
            select(table.c.turn_id, table.c.key).where(table.c.space == space, table.c.turn_id.in_(chunk))
        )
        found.update((TurnId(row.turn_id), int(row.key)) for row in rows)
    return found


def _update_turn_state(
    connection: Connection, space: SpaceId, turn_id: TurnId, state: TurnState, error: str | None
) -> None:
    table = tables.turns
    result = connection.execute(
        update(table).where(table.c.space == space, table.c.turn_id == turn_id).values(state=state, error=error)
    )
    if result.rowcount != 1:
        raise StoreError(f"space {space!r} holds no turn {turn_id!r}")


def _put_embeddings(connection: Connection, model: str, rows: Sequence[tuple[int, str, NDArray[np.float32]]]) -> None:
    """Write (node key, text hash, vector) rows; the same text by the same model is written over."""
    for key, _, vector in rows:
        if vector.ndim != 1 or not np.isfinite(vector).all():
            raise InvalidVectorError(
                f"embedding of node key {key} by {model!r} has shape {vector.shape} and "
                f"{int((~np.isfinite(vector)).sum())} NaN or infinite values; nothing was written"
            )
    table = tables.embeddings
    statement = _dialect_insert(connection, table)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=list(table.primary_key.columns), set_={"vector": statement.excluded.vector}
        ),
        [
            {"node_key": key, "model": model, "text_hash": digest, "vector": vector.astype("<f4").tobytes()}
            for key, digest, vector in rows
        ],
    )


def _dialect_insert(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    # "On conflict" is not in the SQL standard; SQLite and PostgreSQL share its syntax.
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def _insert_or_keep(connection: Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    return _dialect_insert(connection, table).on_conflict_do_nothing()


def _post(connection: Connection, space: SpaceId, keys: Sequence[int], action: str) -> None:
    if keys:
        connection.execute(insert(tables.outbox), [{"space": space, "node_key": key, "action": action} for key in keys])

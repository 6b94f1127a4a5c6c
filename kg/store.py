"""The store: the one record of truth. Turns, the graph with its history, embeddings, and the outbox.

Every read and write names a space. One turn's changes are one transaction, which also writes the outbox rows that
an indexer later drains into the vector index; the index can always be rebuilt from here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, insert, select

from kg import as_of as as_of_sql
from kg import erase, export, migrations, tables
from kg.commit import Commit, chunks, post, put_embeddings, set_turn_state
from kg.engine import make_engine, seed_schema
from kg.errors import (
    InvalidVectorError,
    StoreError,
    UnknownNodeError,
    UnknownSpaceError,
    UnknownTypeError,
)
from kg.rows import node_of, require_same, turn_of, turn_row
from kg.schema import COINED_FAMILY, RelationLabel
from kg.snapshot import Snapshot
from kg.tables import epoch, moment
from kg.types import (
    MAX_NAME_BYTES,
    GraphChange,
    Node,
    NodeId,
    NodeStatus,
    Relation,
    SpaceId,
    Turn,
    TurnId,
    TurnState,
    is_name,
)

_LABEL_PATTERN = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


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
            try:
                Path(text_url).parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"cannot make a folder for store {text_url!r}: {error.strerror}") from error
            text_url = f"sqlite:///{text_url}"
        self.url = text_url
        self._engine = make_engine(text_url)
        try:
            with self._write() as connection:
                migrations.upgrade(connection, url=text_url)
                seed_schema(connection)
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
            return {row.name: row.parent for row in connection.execute(select(tables.node_types))}

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
        """Remember a value under a name; one named ``<what>/<space>`` is forgotten with its space."""
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
            StoreError: If a space or turn has a name that no index could hold.
        """
        with self._write() as connection:
            unique: dict[tuple[SpaceId, TurnId], Turn] = {}
            for turn in turns:
                for name in (turn.space, turn.turn_id):
                    if not is_name(name):
                        raise StoreError(
                            f"name {name[:60]!r} of a space or turn is empty, longer than {MAX_NAME_BYTES} bytes, "
                            "or has control characters"
                        )
                twin = unique.setdefault((turn.space, turn.turn_id), turn)
                require_same(twin, turn)
            new = [turn for turn in unique.values() if not self._holds_turn(connection, turn)]
            for space in sorted({turn.space for turn in new}):
                if not connection.execute(select(tables.spaces).where(tables.spaces.c.space == space)).first():
                    connection.execute(insert(tables.spaces).values(space=space))
            if new:
                connection.execute(insert(tables.turns), [turn_row(turn) for turn in new])
        return len(new)

    @staticmethod
    def _holds_turn(connection: Connection, turn: Turn) -> bool:
        table = tables.turns
        row = connection.execute(
            select(table).where(table.c.space == turn.space, table.c.turn_id == turn.turn_id)
        ).first()
        if row is None:
            return False
        require_same(turn_of(row), turn)
        return True

    def turns(self, space: SpaceId, *, state: TurnState | None = None) -> list[Turn]:
        """Turns of a space in conversation order, all or those in one state."""
        self.require_space(space)
        table = tables.turns
        query = select(table).where(table.c.space == space).order_by(table.c.position, table.c.key)
        if state is not None:
            query = query.where(table.c.state == state)
        with self._engine.connect() as connection:
            return [turn_of(row) for row in connection.execute(query)]

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
        """Put a failed turn back among the pending.

        Raises:
            StoreError: If the turn did not fail; consolidating a turn twice would double its nodes.
        """
        if turn_id not in {failure.turn_id for failure in self.failures(space)}:
            raise StoreError(f"space {space!r} holds no failed turn {turn_id!r}; only failed turns are retried")
        self._set_turn_state(space, turn_id, TurnState.PENDING, None)

    def _set_turn_state(self, space: SpaceId, turn_id: TurnId, state: TurnState, error: str | None) -> None:
        with self._write() as connection:
            set_turn_state(connection, space, turn_id, state, error)

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
            return Commit(connection, change).run()

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
        statement = sa.text(as_of_sql.NODES + "".join(f" AND {clause}" for clause in clauses) + " ORDER BY n.key")
        expanding: list[sa.BindParameter[Any]] = [
            sa.bindparam(name, expanding=True) for name in ("types", "ids") if name in parameters
        ]
        with self._engine.connect() as connection:
            rows = connection.execute(statement.bindparams(*expanding), parameters).all()
            sources = self._provenance(connection, space, parameters["t"])
        return [
            node_of(space, row, sources.get(row.key, ()))
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
            return erase.turns(connection, space, turn_ids)

    def forget_space(self, space: SpaceId) -> None:
        """Erase a tenant with everything it holds."""
        self.require_space(space)
        with self._write() as connection:
            erase.space(connection, space)

    # --- embeddings ----------------------------------------------------------------------------------------

    def put_embeddings(
        self,
        space: SpaceId,
        model: str,
        ids: Sequence[NodeId],
        vectors: NDArray[np.float32],
        *,
        to_indexes: bool = True,
    ) -> None:
        """Write description embeddings of existing nodes.

        Args:
            space: The tenant.
            model: Id of the text encoder.
            ids: Nodes, in the order of the rows.
            vectors: float32 [nodes, dim].
            to_indexes: Whether the indexes are told; not needed for vectors that none of them holds.

        Raises:
            InvalidVectorError: NaN, infinity, or not one row a node.
            UnknownNodeError: If the space does not hold an id.
        """
        if vectors.ndim != 2 or len(vectors) != len(ids):
            raise InvalidVectorError(f"expected {len(ids)} rows of vectors, got shape {vectors.shape}")
        with self._write() as connection:
            found: dict[str, tuple[int, str]] = {}
            for chunk in chunks(list(ids)):
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
            put_embeddings(connection, model, rows)
            if to_indexes:
                post(connection, space, [found[i][0] for i in ids], "upsert")

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

    def relist_outbox(self) -> int:
        """List every node that the outbox does not list, as if it had just been written: for an index made anew.

        Returns:
            Number of nodes that were not listed.
        """
        nodes, listed = tables.nodes.c, select(tables.outbox.c.node_key)
        unlisted = (
            select(nodes.space, nodes.key, sa.literal("upsert")).where(nodes.key.not_in(listed)).order_by(nodes.key)
        )
        with self._write() as connection:
            return connection.execute(
                insert(tables.outbox).from_select(["space", "node_key", "action"], unlisted)
            ).rowcount

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
        with export.one_moment(self._engine) as connection:
            return export.read_snapshot(connection, space, _latest(as_of), embedding_model)

    def vectors_by_key(
        self, space: SpaceId, keys: Sequence[int], model: str
    ) -> tuple[list[Node], list[int], NDArray[np.float32]]:
        """Nodes of a space by integer key with their present vectors, for the indexer.

        Returns:
            (nodes, their keys, float32 [nodes, dim]); keys without a node are left out.

        Raises:
            InvalidVectorError: If an active node has no vector of this model.
        """
        n, e = tables.nodes, tables.embeddings
        held = sa.and_(e.c.node_key == n.c.key, e.c.model == model, e.c.text_hash == n.c.text_hash)
        nodes, found, blobs = [], [], []
        with self._engine.connect() as connection:
            for chunk in chunks(list(keys)):
                query = (
                    select(n, e.c.vector)
                    .join(e, held, isouter=True)
                    .where(n.c.space == space, n.c.key.in_(chunk))
                    .order_by(n.c.key)
                )
                for row in connection.execute(query):
                    if row.vector is None:
                        if row.status == NodeStatus.ACTIVE:
                            raise InvalidVectorError(
                                f"node {row.id!r} of space {space!r} has no vector of {model!r}; run locigraph build "
                                "with that text encoder"
                            )
                        continue
                    nodes.append(node_of(space, row, ()))
                    found.append(int(row.key))
                    blobs.append(np.frombuffer(row.vector, dtype="<f4"))
        matrix = np.stack(blobs).astype(np.float32) if blobs else np.zeros((0, 0), dtype=np.float32)
        return nodes, found, matrix

    def turns_of_nodes(self, space: SpaceId, keys: Sequence[int]) -> dict[int, tuple[TurnId, ...]]:
        """Source turns of nodes by integer key, in conversation order."""
        found: dict[int, list[TurnId]] = {}
        p, t = tables.provenance, tables.turns
        with self._engine.connect() as connection:
            for chunk in chunks(list(keys)):
                query = (
                    select(p.c.node_key, t.c.turn_id)
                    .join(t, t.c.key == p.c.turn_key)
                    .where(t.c.space == space, p.c.node_key.in_(chunk))
                    .order_by(t.c.position)
                )
                for row in connection.execute(query):
                    found.setdefault(int(row.node_key), []).append(TurnId(row.turn_id))
        return {key: tuple(ids) for key, ids in found.items()}


def _latest(as_of: datetime | None) -> int:
    return np.iinfo(np.int64).max if as_of is None else epoch(as_of)

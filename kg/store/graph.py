"""The store, which is the source of truth: turns, the graph with its history, embeddings, and the outbox.

Turns and nodes are read and written by space. All changes of one turn are one transaction, which also writes outbox
rows; an indexer later applies these to the vector index. The index can always be rebuilt from the store.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy import func, select

from locigraph.kg.counts import STORED_NAMES, Spent
from locigraph.kg.errors import OutdatedChangeError, UnknownNodeError, UnknownSpaceError, shortened
from locigraph.kg.schema import RelationLabel
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import as_of as as_of_sql
from locigraph.kg.store import (
    changes,
    embeddings,
    erase,
    expenses,
    export,
    labels,
    neighbourhood,
    portable,
    remembered,
    tables,
)
from locigraph.kg.store import turns as turns_
from locigraph.kg.store.commit import Commit
from locigraph.kg.store.conversations import Conversations
from locigraph.kg.store.embeddings import NodeText
from locigraph.kg.store.neighbourhood import Neighbourhood
from locigraph.kg.store.queues import Queues
from locigraph.kg.store.remembered import IDENTITY
from locigraph.kg.store.rows import node_of
from locigraph.kg.store.statements import chunks
from locigraph.kg.times import epoch
from locigraph.kg.types import GraphChange, Node, NodeId, NodeStatus, Relation, SpaceId, TurnId


class Store(Conversations, Queues):
    """A graph store on SQLAlchemy Core: settings, the graph, embeddings, and bulk export.

    Its base classes add turns and spaces (``Conversations``) and work for indexers (``Queues``). See ``Database`` for
    the constructor's arguments and errors.
    """

    _identity: str | None = None

    # --- schema and settings -------------------------------------------------------------------------------

    def relation_labels(self, space: SpaceId) -> dict[str, RelationLabel]:
        """Relation labels by name: the built-in ones, and those that the space coined, with its turns' descriptions."""
        with self._read() as connection:
            return labels.read(connection, space)

    def setting(self, name: str) -> str | None:
        """A stored setting, such as the extractor that built a space; None if it was never set."""
        with self._read() as connection:
            return remembered.get(connection, name)

    def remember(self, settings: Mapping[str, str]) -> None:
        """Store settings, all or none; one with a name by ``remembered.of_space`` is erased with that space."""
        with self._write(*settings) as connection:
            for name, value in settings.items():
                remembered.put(connection, name, value)

    def remember_first(self, name: str, value: str) -> str:
        """Store a setting unless it has a value already; returns the value that it has then."""
        held = self.setting(name)
        if held is None:
            with self._write(name) as connection:
                held = remembered.put_first(connection, name, value)
        return held

    def identity(self) -> str:
        """Random identifier of this store; the first call generates and writes it."""
        found = self.known_identity()
        if found is None:
            found = self._identity = self.remember_first(IDENTITY, secrets.token_hex(32))
        return found

    def known_identity(self) -> str | None:
        """The same; None if it was not generated yet."""
        if self._identity is None:
            self._identity = self.setting(IDENTITY)
        return self._identity

    def spent(self, space: SpaceId) -> dict[tuple[str, str], Spent]:
        """Usage of language models by turn and stage; usage for no turn, or for forgotten turns, is under ``""``."""
        with self._read() as connection:
            return expenses.read(connection, space)

    def spent_by_stage(self) -> dict[str, Spent]:
        """Usage of language models by stage, summed over all spaces."""
        stage = tables.spent.c.stage
        sums = [func.sum(tables.spent.c[name]).label(name) for name in STORED_NAMES]
        with self._read() as connection:
            rows = connection.execute(select(stage, *sums).group_by(stage).order_by(stage))
            return {row.stage: Spent.of_stored(row._mapping) for row in rows}

    def add_spent(self, space: SpaceId, turn_id: str, stage: str, spent: Spent) -> None:
        """Add to the stored usage of language models; ``turn_id`` is ``""`` if it is for no turn.

        Raises:
            UnknownSpaceError: If there is no such space, perhaps since it was forgotten while a model replied.
        """
        self.require_space(space)
        with self._write(space) as connection:
            expenses.add(connection, space, turn_id, stage, spent)

    # --- the graph -----------------------------------------------------------------------------------------

    def commit(self, change: GraphChange) -> dict[str, NodeId]:
        """Apply one change in one transaction, mark its turn done or failed, and write the outbox.

        Returns:
            The id given to each new node, by its temporary ``ref``.

        Raises:
            UnknownSpaceError: If there is no such space.
            OutdatedChangeError: If the change names a revision, and the space has another one.
            UnknownNodeError: If an update, an edge or a dropped edge refers to a node that is neither in the space nor
                in the change.
            UnknownTypeError: If a node type or relation label is neither in the schema nor coined by the change.
            InvalidVectorError: If an embedding is not finite, or has another dimension than the others of its model.
            StoreError: If the turn is consolidated already, a description is empty, a weight is not finite, or a source
                turn is not stored. After any of these errors nothing is changed.
        """
        with self._write(change.space) as connection:
            spaces = tables.spaces.c
            revision = connection.scalar(select(spaces.revision).where(spaces.space == change.space))
            if revision is None:
                raise UnknownSpaceError(change.space, self.spaces())
            if change.revision not in (None, revision):
                raise OutdatedChangeError(
                    f"space {change.space!r} has revision {revision}, and the change is based on {change.revision}: "
                    "another writer has changed the space meanwhile; read it again and derive the change anew"
                )
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
        latest = _latest(as_of)
        rows: list[Any] = []
        with self._read() as connection:
            self._require(connection, space)
            for chunk in [None] if ids is None else chunks(list(ids)):
                wanted = {name: value for name, value in (("type", types), ("id", chunk)) if value is not None}
                statement = sa.text(
                    as_of_sql.nodes() + "".join(f" AND n.{name} IN :{name}s" for name in wanted) + " ORDER BY n.key"
                ).bindparams(*(sa.bindparam(f"{name}s", expanding=True) for name in wanted))
                values = {f"{name}s": list(value) for name, value in wanted.items()}
                rows += connection.execute(statement, {"space": space, "t": latest, **values}).all()
            rows = sorted(
                (row for row in rows if include_archived or row.status == NodeStatus.ACTIVE), key=lambda row: row.key
            )
            sources = turns_.of_nodes(connection, space, [row.key for row in rows], latest=latest)
        return [node_of(space, row, sources.get(row.key, ())) for row in rows]

    def node_counts(self, space: SpaceId) -> Counter[str]:
        """Number of active nodes of each type, as they are now."""
        table = tables.nodes
        query = (
            select(table.c.type, func.count())
            .where(table.c.space == space, table.c.status == NodeStatus.ACTIVE)
            .group_by(table.c.type)
        )
        with self._read() as connection:
            self._require(connection, space)
            return Counter({node_type: int(count) for node_type, count in connection.execute(query)})

    def count_of_type(self, space: SpaceId, node_type: str) -> int:
        """Number of nodes of a type in a space, archived ones included; 0 for a space that does not exist.

        It reads an index alone, so it is fast in large spaces, too.
        """
        n = tables.nodes.c
        query = select(func.count()).where(n.space == space, n.type == node_type)
        with self._read() as connection:
            return int(connection.scalar(query) or 0)

    def counts_of_type(self, node_type: str) -> Counter[SpaceId]:
        """Number of active nodes of one type in each space that has any, as they are now."""
        table = tables.nodes.c
        of_type = table.type == node_type, table.status == NodeStatus.ACTIVE
        query = select(table.space, func.count()).where(*of_type).group_by(table.space)
        with self._read() as connection:
            return Counter({SpaceId(space): int(count) for space, count in connection.execute(query)})

    def node(self, space: SpaceId, node_id: NodeId, *, as_of: datetime | None = None) -> Node:
        """One node, archived or not.

        Raises:
            UnknownNodeError: If the space does not hold the id at that time.
        """
        found = self.nodes(space, ids=[node_id], as_of=as_of, include_archived=True)
        if not found:
            raise UnknownNodeError(f"space {space!r} has no node {shortened(node_id)}")
        return found[0]

    def used_labels(self, space: SpaceId) -> set[str]:
        """Labels of the edges of a space."""
        table = tables.relations.c
        with self._read() as connection:
            self._require(connection, space)
            return set(connection.scalars(select(table.label).where(table.space == space).distinct()))

    def topics_of(self, space: SpaceId, *, now: datetime, most: int) -> dict[str, int]:
        """Labels of topics of at least two unexpired turns, with the numbers of these; the most frequent first."""
        edges, turns, sources = tables.relations.c, tables.turns.c, tables.provenance.c
        topic = tables.nodes.alias("topic")
        number = func.count(sa.distinct(turns.key))
        query = (
            select(topic.c.label, number)
            .select_from(tables.relations)
            .join(topic, topic.c.key == edges.target)
            .join(tables.provenance, sources.node_key == edges.source)
            .join(tables.turns, turns.key == sources.turn_key)
            .where(
                edges.space == space,
                edges.label == "HAS_CONCEPT",
                topic.c.status == NodeStatus.ACTIVE,
                sa.or_(turns.expires_at.is_(None), turns.expires_at > epoch(now)),
            )
            .group_by(topic.c.key, topic.c.label)
            .having(number > 1)
            .order_by(number.desc(), topic.c.label)
            .limit(most)
        )
        with self._read() as connection:
            self._require(connection, space)
            return {row[0]: int(row[1]) for row in connection.execute(query)}

    def relations(self, space: SpaceId, *, node: NodeId | None = None, as_of: datetime | None = None) -> list[Relation]:
        """Edges of a space, or of one node, as known at ``as_of`` (None: now), sorted by source, label and target."""
        ends = tables.nodes.alias("s"), tables.nodes.alias("t")
        table = tables.relations
        query = (
            select(ends[0].c.id.label("source"), table.c.label, ends[1].c.id.label("target"), table.c.weight)
            .join(ends[0], ends[0].c.key == table.c.source)
            .join(ends[1], ends[1].c.key == table.c.target)
            .where(table.c.space == space, table.c.created_at <= _latest(as_of))
            .order_by(table.c.source, table.c.label, table.c.target)
        )
        if node is not None:
            query = query.where((ends[0].c.id == node) | (ends[1].c.id == node))
        with self._read() as connection:
            self._require(connection, space)
            return [
                Relation(NodeId(row.source), row.label, NodeId(row.target), row.weight)
                for row in connection.execute(query)
            ]

    def forget(
        self,
        space: SpaceId,
        turn_ids: Sequence[TurnId],
        *,
        before_erasing: erase.Listener = lambda texts: None,
        are_expired: bool = False,
    ) -> int:
        """Erase turns and everything derived from them.

        The turns stay forgotten: the store keeps keyed digests of them and skips them if they are appended again.
        Episodes, events, facts and reflections are erased if their wording may come from any of the turns; nodes that
        the turns only repeated stay, without the turns as sources. Concepts and entities are erased unless a remaining
        turn contains their words. Relations, earlier versions and embeddings are erased with their nodes, and outbox
        rows tell every index.

        A session without times that had begun after a forgotten turn may move before other sessions. Then all nodes of
        the space are removed and its turns are pending again, as in ``append_turns``.

        Args:
            space: The space of the turns.
            turn_ids: The turns.
            before_erasing: Called with the texts that are about to be erased, so that caches can drop them; if it
                fails, nothing is erased.
            are_expired: Whether the turns are some that have expired: those that are gone already are passed over, and
                the space and its owner stay even if none of its turns is left.

        Returns:
            Number of nodes erased.

        Raises:
            UnknownSpaceError: If there is no such space.
            StoreError: If a turn is not in the space; then nothing is erased. Also if the turns were erased but
                another reader keeps old pages in use; see ``empty_log``.
        """
        self.require_space(space)
        with self._write(space) as connection:
            erased = erase.erase_turns(connection, space, turn_ids, before_erasing, are_expired=are_expired)
        self.empty_log()
        return erased

    def forget_spaces(self, spaces: Sequence[SpaceId], *, before_erasing: erase.Listener = lambda texts: None) -> int:
        """Erase spaces, all or none, and everything in them, as ``forget`` does; returns the number of nodes erased."""
        for space in spaces:
            self.require_space(space)
        with self._write(*spaces) as connection:
            erased = erase.erase_spaces(connection, spaces, before_erasing)
        self.empty_log()
        return erased

    # --- embeddings ----------------------------------------------------------------------------------------

    def put_embeddings(
        self,
        space: SpaceId,
        model: str,
        texts: Sequence[NodeText],
        vectors: NDArray[np.float32],
        *,
        to_indexes: bool = True,
    ) -> None:
        """Write description embeddings of existing nodes.

        A node that was reworded since its text was read keeps the vector for that earlier wording. Vectors of nodes
        that were erased since, and of turns whose text in context has changed since, are left out.

        Args:
            space: The space of the nodes.
            model: Id of the text encoder.
            texts: What was embedded, in the order of the rows.
            vectors: float32 [texts, dim].
            to_indexes: Whether to post outbox rows; not needed for vectors that no index holds.

        Raises:
            InvalidVectorError: If a vector has NaN or infinity, or there is not one row for each text.
        """
        with self._write(space) as connection:
            keys = embeddings.put(connection, space, model, texts, vectors)
            if to_indexes:
                changes.post(connection, space, keys, "upsert")

    def unembedded(
        self, space: SpaceId, model: str, *, checks_vectors: bool = False, keys: Collection[int] | None = None
    ) -> list[NodeText]:
        """Texts of a space's nodes, present and earlier ones, that have no vector of this model.

        Earlier texts are listed because snapshots of earlier times need their vectors.

        Args:
            space: The space.
            model: Id of the text encoder.
            checks_vectors: Whether damaged vectors count as missing, which requires reading every vector. Methods that
                read vectors raise an error for damaged ones in any case.
            keys: Keys of the nodes to look at; None for all.
        """
        with self._read() as connection:
            self._require(connection, space)
            return embeddings.lacking(connection, space, model, checks_vectors=checks_vectors, keys=keys)

    def vectors_by_key(
        self, space: SpaceId, keys: Sequence[int], model: str
    ) -> tuple[list[Node], list[int], NDArray[np.float32]]:
        """Nodes of a space with the given integer keys, and their current vectors, for the indexer.

        Returns:
            (nodes, their keys, float32 [nodes, dim]); keys without a node are left out.

        Raises:
            InvalidVectorError: If an active node has no valid vector of this model.
        """
        with self._read() as connection:
            return embeddings.by_key(connection, space, keys, model)

    def turns_of_nodes(self, space: SpaceId, keys: Sequence[int]) -> dict[int, tuple[TurnId, ...]]:
        """Source turns of nodes by integer key, in conversation order."""
        with self._read() as connection:
            return turns_.of_nodes(connection, space, keys, latest=_latest(None))

    # --- bulk export ---------------------------------------------------------------------------------------

    def snapshot(
        self,
        space: SpaceId,
        *,
        as_of: datetime | None = None,
        embedding_model: str | None = None,
        part: Neighbourhood | None = None,
    ) -> Snapshot:
        """The graph of a space, or a part of it, as arrays, as known at ``as_of`` (None: now).

        Args:
            space: The space to read.
            as_of: Nothing recorded later is visible.
            embedding_model: Id of the text encoder whose vectors are read; None reads none.
            part: The part to read, as ``neighbourhood`` found it; None reads everything.

        Raises:
            UnknownSpaceError: If there is no such space.
            InvalidVectorError: If a node has no valid vector of the model.
        """
        with self._mapped_errors(), export.consistent_read(self._engine) as connection:
            self._require(connection, space)
            return export.read_snapshot(connection, space, _latest(as_of), embedding_model, part)

    def neighbourhood(
        self, space: SpaceId, changed: Collection[int], *, families: Collection[str], hops: int, most: int
    ) -> Neighbourhood | None:
        """The part of a space that changes of some nodes can reach; see ``neighbourhood.around``.

        Raises:
            UnknownSpaceError: If there is no such space.
        """
        with self._mapped_errors(), export.consistent_read(self._engine) as connection:
            self._require(connection, space)
            return neighbourhood.around(connection, space, changed, families=families, hops=hops, most=most)

    def names_since(self, space: SpaceId, revision: int) -> tuple[frozenset[NodeId], frozenset[TurnId]] | None:
        """IDs of the nodes that have changed since a revision of a space, and of the turns whose words they contain.

        A node counts as changed, too, if what has replaced it has. See ``part_since`` for None.
        """
        with self._read() as connection:
            return changes.names_since(connection, space, revision)

    def part_since(
        self, space: SpaceId, revision: int, *, types: Collection[str] | None = None
    ) -> Neighbourhood | None:
        """The nodes that have changed since a revision of a space, with the turns that they were taken from.

        None if anything else may have changed as well, or the revision is of an earlier space of that name.

        Args:
            space: The space.
            revision: The revision.
            types: Leaves out nodes of other types, such as the entity of a speaker, which each turn of his changes.
        """
        with self._mapped_errors(), export.consistent_read(self._engine) as connection:
            return changes.part_since(connection, space, revision, types)

    def exported(self) -> Iterator[tuple[int, str]]:
        """All that the store holds as the lines of an export (see ``portable``), each with the number of all rows."""
        with self._mapped_errors(), export.consistent_read(self._engine) as connection:
            count = portable.count(connection)
            for line in portable.lines(connection):
                yield count, line

    def import_lines(self, lines: Iterable[str]) -> int:
        """Write the lines of an export into this store, all or none; returns the number of rows.

        A store that was made of the same lines stays as it is, which counts as 0 rows.

        Raises:
            StoreError: If the store holds anything else, or the lines are no whole, sound export.
        """
        with self._write("schema") as connection:
            return portable.read(connection, lines)


def _latest(as_of: datetime | None) -> int:
    return np.iinfo(np.int64).max if as_of is None else epoch(as_of)

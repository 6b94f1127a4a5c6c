"""The vector index: Milvus through pymilvus. A path is Milvus Lite; a URL is a server.

Milvus Lite's traps that this adapter closes (measured on 3.2.2): any index name is accepted, so names are
allow-listed; NaN is accepted, so vectors are checked; unflushed rows are searched by a slow loop, so bulk writes
flush; a space that owns few rows is found poorly by HNSW without a partition key, so the space always is one;
collection properties are not kept, so each collection describes itself in a row of its own; pymilvus's iterator writes
the last primary key unescaped into its next filter, so primary keys are hashes; deleted rows stay in the files, so what
must be erased is erased by making the index anew.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pymilvus import DataType, MilvusClient

from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.schema import searchable_types
from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.filters import filter_expression, quote
from locigraph.retrieval.index.milvus_client import GuardedClient
from locigraph.retrieval.protocols import SearchScope, VectorMatch

IndexType = Literal["FLAT", "HNSW"]
Metric = Literal["COSINE", "IP"]

# Below this number of rows exact search is as fast and never misses.
FLAT_BELOW = 50_000
_HNSW = {"M": 16, "efConstruction": 200}
_HNSW_EF = 256
_BATCH = 1_000
_MOST = 16_384  # a server returns no more, and Milvus Lite sets aside room for all that it is asked for
_SELF = "self"  # primary key of the row in which a collection describes itself, in a space that no search can name
_NO_SPACE = ""
_UNFINISHED = "making_"  # how the name of a collection begins until it describes itself
_ROW_FIELDS = ["space", "node_key", "node_id", "type", "recorded_at", "turns"]
_SEPARATOR = "\x1f"
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """What a collection holds; two parties that disagree on any field must not work together.

    Attributes:
        dim: Width of the vectors.
        metric: ``COSINE`` or ``IP`` (inner product).
        version: ID of the model that made the vectors: of a text encoder, or of a checkpoint.
        schema: ``kg.schema.schema_hash()``.
        index: ``FLAT`` (exact search) or ``HNSW`` (approximate search).
        store: Identity of the store whose nodes these are; empty in collections that serve one comparison, and in those
            of an earlier version.
    """

    dim: int
    metric: Metric
    version: str
    schema: str
    index: IndexType = "FLAT"
    store: str = ""


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The row of a node. ``space`` is the node's space or a view of it."""

    space: str
    node_key: int
    node_id: NodeId
    type: str
    recorded_at: int
    turn_ids: tuple[TurnId, ...]


class MilvusIndex:
    """A connection to Milvus.

    Args:
        uri: File path (Milvus Lite; one process at a time) or URL of a server.
        token: Credentials for a server; empty for none.
        is_reader: Whether nothing will be written.

    Raises:
        IndexUnavailableError: If no connection can be made.
    """

    def __init__(self, uri: str, *, token: str = "", is_reader: bool = False) -> None:
        self.uri = uri
        self._client = GuardedClient(uri, token, is_reader=is_reader)
        # Of an embedded index, which no other process can change; emptied by whatever makes or renames a collection.
        self._opened: dict[str, Collection] = {}

    @property
    def is_embedded(self) -> bool:
        """Whether it is a file of Milvus Lite, not a server."""
        return self._client.is_embedded

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def __enter__(self) -> MilvusIndex:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def collections(self) -> list[str]:
        """Names of the collections, sorted, without aliases and unfinished ones."""
        return sorted(name for name in self._client.list_collections() if not name.startswith(_UNFINISHED))

    def create(self, name: str, spec: CollectionSpec) -> Collection:
        """Make an empty collection; one of the same name is dropped first.

        It gets its name only when it holds the row that describes it, so a collection of this name is always whole.
        """
        if spec.index not in ("FLAT", "HNSW") or spec.metric not in ("COSINE", "IP"):
            raise IndexMismatchError(
                f"index {spec.index!r} with metric {spec.metric!r} is not FLAT or HNSW with COSINE or IP"
            )
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("pk", DataType.VARCHAR, max_length=64, is_primary=True)
        schema.add_field("space", DataType.VARCHAR, max_length=256, is_partition_key=True)
        schema.add_field("node_key", DataType.INT64)
        schema.add_field("node_id", DataType.VARCHAR, max_length=256)
        schema.add_field("type", DataType.VARCHAR, max_length=64)
        schema.add_field("recorded_at", DataType.INT64)
        schema.add_field("turns", DataType.VARCHAR, max_length=65_535)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=spec.dim)
        index = MilvusClient.prepare_index_params()
        parameters = _HNSW if spec.index == "HNSW" else {}
        index.add_index("vector", index_type=spec.index, metric_type=spec.metric, params=parameters)
        unfinished = _UNFINISHED + name
        self._opened.clear()
        self.drop(unfinished)
        self._client.create_collection(unfinished, schema=schema, consistency_level="Session")
        # Not waited for: pymilvus would sleep for half a second before it asks, and there is no row to index yet.
        self._client.create_index(unfinished, index, sync=False)
        Collection(self._client, unfinished, spec).describe_itself()
        self.drop(name)
        self._client.rename_collection(unfinished, name)
        self._client.load_collection(name)
        return Collection(self._client, name, spec)

    def open_or_create(self, name: str, spec: CollectionSpec) -> Collection:
        """Open a collection that only this project names so, or make it; one of an earlier version is made anew."""
        if self.has(name):
            try:
                return self.open(name)
            except IndexMismatchError:
                pass
        return self.create(name, spec)

    def owned(self, names: str, store: str) -> list[str]:
        """Names of a store's collections, and of those that name no store, sorted.

        On a server other software may have collections of the same name; these do not describe themselves as ours do.

        Args:
            names: Regular expression for the whole name.
            store: Identity of the store.
        """
        found = []
        for name in self.collections():
            if re.fullmatch(names, name):
                try:
                    is_owned = self.open(name).spec.store in ("", store)
                except IndexMismatchError:
                    is_owned = False
                if is_owned:
                    found.append(name)
        return found

    def clear(self, names: str, store: str) -> None:
        """Remove a store's collections with all that was deleted from them.

        An embedded index is emptied altogether, whatever state it is in.

        Args:
            names: Regular expression for the whole names of the collections that are removed from a server.
            store: Identity of the store; see ``owned``.
        """
        self._opened.clear()
        if self.is_embedded:
            self._client.clear()
            return
        for name in self.owned(names, store):
            for alias in self._client.list_aliases(name).get("aliases", []):
                self._client.drop_alias(alias)
            self._client.drop_collection(name)

    def open(self, name: str) -> Collection:
        """Open the collection of that name, or the one that an alias of that name points at.

        Of an embedded index it is the same object as long as no collection was made, dropped or pointed at since.

        Raises:
            IndexMismatchError: If there is none, or it is not one of ours.
        """
        if name in self._opened:
            return self._opened[name]
        if not self.has(name):
            raise IndexMismatchError(
                f"index {self.uri!r} holds no collection {name!r}; run locigraph build or refresh first"
            )
        try:
            spec = self._own_description(name)
        except (IndexError, TypeError, ValueError) as error:
            cure = "run locigraph verify --rebuild true (and then refresh), or name another index with --index.uri"
            if not self.is_embedded:  # where it is left alone
                cure = "name another index with --index.uri, or remove the collection from the server"
            raise IndexMismatchError(
                f"collection {name!r} of index {self.uri!r} does not describe itself: an earlier version or other "
                f"software made it; {cure}"
            ) from error
        found = Collection(self._client, name, spec)
        if self.is_embedded:
            self._opened[name] = found
        return found

    def _own_description(self, name: str) -> CollectionSpec:
        fields = {field["name"] for field in self._client.describe_collection(name)["fields"]}
        if not fields.issuperset(_ROW_FIELDS):  # such a collection cannot be asked for the row
            raise ValueError(f"its fields are {sorted(fields)}")
        self._client.load_collection(name)
        rows = self._client.query(name, filter=f"pk == {quote(_SELF)}", output_fields=["turns"], limit=1)
        return CollectionSpec(**json.loads(rows[0]["turns"]))

    def has(self, name: str) -> bool:
        """Whether a collection or alias of that name exists."""
        return name in self._opened or bool(self._client.has_collection(name))

    def drop(self, name: str) -> None:
        """Remove a collection if it is there; by its own name only, since Milvus would follow an alias to another."""
        self._opened.clear()
        if name in self._client.list_collections():
            self._client.drop_collection(name)

    def alias_target(self, alias: str) -> str | None:
        """Collection that an alias points at; None when there is no such alias."""
        for name in self.collections():
            if alias in self._client.list_aliases(name).get("aliases", []):
                return name
        return None

    def point(self, alias: str, name: str) -> None:
        """Make an alias point at a collection; readers see the old or the new, never neither."""
        self._opened.clear()
        if self.alias_target(alias) is None:
            self._client.create_alias(name, alias)
        else:
            self._client.alter_alias(name, alias)


class Collection:
    """One collection of an index; made by ``MilvusIndex.create`` or ``open``."""

    def __init__(self, client: GuardedClient, name: str, spec: CollectionSpec) -> None:
        self._client = client
        self.name = name
        self.spec = spec

    def require(self, *, version: str, schema: str) -> None:
        """Check that the collection is what its user expects.

        Raises:
            IndexMismatchError: If it is not; names the difference and the command that mends it.
        """
        for name, held, needed in (("version", self.spec.version, version), ("schema", self.spec.schema, schema)):
            if held != needed:
                raise IndexMismatchError(
                    f"collection {self.name!r} of index {self._client.uri!r} has {name} {held!r} but {needed!r} "
                    "is needed; run locigraph refresh (graph embeddings) or verify --rebuild true (descriptions)"
                )

    def describe_itself(self) -> None:
        """Write the row that holds the collection's own description."""
        vector = np.zeros(self.spec.dim, dtype=np.float32)
        vector[0] = 1.0  # COSINE has no meaning for a zero vector
        row = {
            "pk": _SELF, "space": _NO_SPACE, "node_key": -1, "node_id": _SELF, "type": _SELF, "recorded_at": 0,
            "turns": json.dumps(asdict(self.spec)), "vector": vector,
        }  # fmt: skip
        self._client.upsert(self.name, [row])

    def upsert(self, rows: Sequence[IndexRow], vectors: NDArray[np.float32]) -> None:
        """Write rows; a row of the same node and space is replaced.

        Args:
            rows: Rows of the nodes.
            vectors: Embeddings of the nodes, float32 [rows, dim].

        Raises:
            InvalidVectorError: If a vector holds NaN or infinity or the shape is wrong; nothing is written then.
        """
        if vectors.shape != (len(rows), self.spec.dim):
            raise InvalidVectorError(
                f"collection {self.name!r} needs vectors of shape ({len(rows)}, {self.spec.dim}), got {vectors.shape}"
            )
        broken = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
        if len(broken):
            raise InvalidVectorError(
                f"vector of node {rows[broken[0]].node_id!r} holds NaN or infinity ({len(broken)} such rows); "
                "nothing was written"
            )
        for batch in _batches(list(zip(rows, vectors, strict=True)), _BATCH):
            written = [
                {
                    "pk": _primary_key(row.space, row.node_key), "space": row.space, "node_key": row.node_key,
                    "node_id": row.node_id, "type": row.type, "recorded_at": row.recorded_at,
                    "turns": _turns_of(row), "vector": vector,
                }
                for row, vector in batch
            ]  # fmt: skip
            self._client.upsert(self.name, written)

    def delete_nodes(self, space: str, node_keys: Iterable[int]) -> None:
        """Remove nodes of a space, but not from views of it."""
        for batch in _batches([_primary_key(space, key) for key in node_keys], _BATCH):
            self._client.delete(self.name, filter=_among("pk", batch))

    def flush(self) -> None:
        """Build the index over what was written; until then those rows are searched by a slow loop."""
        self._client.flush(self.name)

    def count(self, space: str | None = None) -> int:
        """Number of rows of a space; None counts those of all spaces."""
        where = f"pk != {quote(_SELF)}" if space is None else f"space == {quote(space)}"
        return int(self._client.query(self.name, filter=where, output_fields=["count(*)"])[0]["count(*)"])

    def node_keys(self, space: str) -> list[int]:
        """Keys of the nodes that a space has here, sorted."""
        return sorted(int(row["node_key"]) for row in self._all(["node_key"], f"space == {quote(space)}"))

    def rows(self, space: str) -> dict[int, IndexRow]:
        """Rows of a space by node key."""
        return {
            row["node_key"]: IndexRow(
                row["space"], row["node_key"], NodeId(row["node_id"]), row["type"], row["recorded_at"],
                _turn_ids(row["turns"]),
            )
            for row in self._all(_ROW_FIELDS, f"space == {quote(space)}")
        }  # fmt: skip

    def spaces(self) -> list[str]:
        """Spaces, and views of them, that have rows here, sorted; reads every row."""
        return sorted({row["space"] for row in self._all(["space"], f"pk != {quote(_SELF)}")})

    def _all(self, fields: list[str], where: str) -> Iterator[dict[str, Any]]:
        iterator = self._client.query_iterator(self.name, batch_size=_BATCH, filter=where, output_fields=fields)
        read = self._client.guarded("read", iterator.next)
        while rows := read():
            yield from rows
        iterator.close()

    def vectors(self, space: str, node_keys: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Stored vectors by node key; absent nodes are left out."""
        found: dict[int, NDArray[np.float32]] = {}
        for batch in _batches(node_keys, 200):
            where = _among("pk", [_primary_key(space, key) for key in batch])
            rows = self._client.query(self.name, filter=where, output_fields=["node_key", "vector"])
            found.update((int(row["node_key"]), np.asarray(row["vector"], dtype=np.float32)) for row in rows)
        return found

    def search(self, vector: NDArray[np.float32], scope: SearchScope, *, top_k: int) -> list[VectorMatch]:
        """Nearest rows of the scope's spaces, best first; ties by node ID. There are never more than 16,384.

        Raises:
            InvalidVectorError: If the vector holds NaN or infinity or has the wrong width.
            FilterError: If the scope names no space.
            IndexUnavailableError: If the search fails.
        """
        if vector.shape != (self.spec.dim,) or not np.isfinite(vector).all():
            raise InvalidVectorError(
                f"query vector for collection {self.name!r} must be {self.spec.dim} finite numbers, got shape "
                f"{vector.shape}"
            )
        limit = min(top_k, _MOST)
        parameters: dict[str, Any] = {"metric_type": self.spec.metric}
        if self.spec.index == "HNSW":
            parameters["params"] = {"ef": max(_HNSW_EF, limit)}
        found = self._client.search(
            self.name,
            data=[vector],
            limit=limit,
            filter=filter_expression(scope),
            search_params=parameters,
            output_fields=["space", "node_id", "type", "turns"],
        )
        matches = []
        for hit in found[0]:
            row = hit["entity"]
            match = VectorMatch(NodeId(row["node_id"]), row["type"], _turn_ids(row["turns"]), float(hit["distance"]))
            matches.append(match if isinstance(scope.space, str) else match.named_in(row["space"]))
        return sorted(matches, key=lambda match: (-match.score, match.node_id))


def _batches(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def _primary_key(space: str, node_key: int) -> str:
    return hashlib.sha256(f"{space}/{node_key}".encode()).hexdigest()


def _among(field: str, values: Sequence[str]) -> str:
    return f"{field} in [{', '.join(quote(value) for value in values)}]"


def _turns_of(row: IndexRow) -> str:
    # Structure stands for no turn, and a name that thousands of turns mention would not fit the field.
    return _SEPARATOR.join(row.turn_ids) if row.type in searchable_types() else ""


def _turn_ids(turns: str) -> tuple[TurnId, ...]:
    return tuple(TurnId(turn) for turn in turns.split(_SEPARATOR) if turn)

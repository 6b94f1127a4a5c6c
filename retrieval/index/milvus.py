"""The vector index: Milvus through pymilvus. A path is Milvus Lite; a URL is a server.

Milvus Lite's traps that this adapter closes (measured on 3.2.2): any index name is accepted, so names are
allow-listed; NaN is accepted, so vectors are checked; unflushed rows are searched by a slow loop, so bulk writes
flush; a tenant that owns few rows is found poorly by HNSW without a partition key, so the tenant always is one;
collection properties are not kept, so each collection describes itself in a row of its own.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pymilvus import DataType, MilvusClient
from pymilvus.exceptions import MilvusException
from tqdm import tqdm

from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.schema import SEARCHABLE_TYPES
from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.errors import IndexMismatchError, IndexUnavailableError
from locigraph.retrieval.index.filters import filter_expression, quote
from locigraph.retrieval.protocols import SearchScope, VectorMatch

IndexType = Literal["FLAT", "HNSW"]
Metric = Literal["COSINE", "IP"]

# Below this number of rows exact search is as fast and never misses.
FLAT_BELOW = 50_000
_HNSW = {"M": 16, "efConstruction": 200}
_HNSW_EF = 256
_INSERT_BATCH = 1_000
# pymilvus pings an idle server every 10 seconds; Milvus Lite, idle while a model trains, takes that for an attack.
_GRPC = {"grpc.keepalive_permit_without_calls": False}
_SELF = "locigraph:self"  # primary key and tenant of the row in which a collection describes itself
_SEPARATOR = "\x1f"
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """What a collection holds; two parties that disagree on any field must not work together.

    Attributes:
        dim: Width of the vectors.
        metric: ``COSINE`` or ``IP``.
        version: Id of the model that made the vectors: a text encoder's, or a checkpoint's.
        schema: ``kg.schema.schema_hash()``.
        index: ``FLAT`` (exact) or ``HNSW``.
    """

    dim: int
    metric: Metric
    version: str
    schema: str
    index: IndexType = "FLAT"


@dataclass(frozen=True, slots=True)
class IndexRow:
    """A node's row. ``space`` is the tenant or a view of one."""

    space: str
    node_key: int
    node_id: NodeId
    type: str
    recorded_at: int
    turn_ids: tuple[TurnId, ...]

    @property
    def primary_key(self) -> str:
        """Unique in the collection."""
        return f"{self.space}/{self.node_key}"


class MilvusIndex:
    """A connection to Milvus.

    Args:
        uri: File path (Milvus Lite; one process at a time) or URL of a server.
        token: Credentials of a server; empty for none.

    Raises:
        IndexUnavailableError: If there is no connection.
    """

    def __init__(self, uri: str, *, token: str = "") -> None:
        self.uri = uri
        if "://" not in uri:
            self._call("make its folder", lambda: Path(uri).parent.mkdir(parents=True, exist_ok=True))
        self._client: MilvusClient = self._call("connect", lambda: MilvusClient(uri, token=token, grpc_options=_GRPC))

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def __enter__(self) -> MilvusIndex:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def collections(self) -> list[str]:
        """Names of the collections, sorted; aliases not among them."""
        return sorted(self._call("list collections", self._client.list_collections))

    def create(self, name: str, spec: CollectionSpec) -> Collection:
        """Make an empty collection, in place of one that may be there."""
        if spec.index not in ("FLAT", "HNSW") or spec.metric not in ("COSINE", "IP"):
            raise IndexMismatchError(
                f"index {spec.index!r} with metric {spec.metric!r} is not FLAT or HNSW with COSINE or IP"
            )
        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("pk", DataType.VARCHAR, max_length=512, is_primary=True)
        schema.add_field("space", DataType.VARCHAR, max_length=256, is_partition_key=True)
        schema.add_field("node_key", DataType.INT64)
        schema.add_field("node_id", DataType.VARCHAR, max_length=256)
        schema.add_field("type", DataType.VARCHAR, max_length=64)
        schema.add_field("recorded_at", DataType.INT64)
        schema.add_field("turns", DataType.VARCHAR, max_length=65_535)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=spec.dim)
        index = MilvusClient.prepare_index_params()
        index.add_index(
            "vector",
            index_type=spec.index,
            metric_type=spec.metric,
            params=_HNSW if spec.index == "HNSW" else {},
        )
        self.drop(name)
        self._call(
            f"create collection {name!r}",
            lambda: self._client.create_collection(
                name, schema=schema, index_params=index, consistency_level="Session"
            ),
        )
        collection = Collection(self, name, spec)
        collection.describe_itself()
        return collection

    def open_or_create(self, name: str, spec: CollectionSpec) -> Collection:
        """Open a collection of this project's own naming, or make it; one whose making was interrupted is made anew."""
        if self.has(name):
            try:
                return self.open(name)
            except IndexMismatchError:
                pass  # it does not describe itself: a crash came between making and describing it
        return self.create(name, spec)

    def open(self, name: str) -> Collection:
        """Open a collection, or what an alias points at.

        Raises:
            IndexMismatchError: If there is none, or it is not one of ours.
        """
        if not self._call("look up a collection", lambda: self._client.has_collection(name)):
            raise IndexMismatchError(
                f"index {self.uri!r} holds no collection {name!r}; run locigraph build or refresh first"
            )
        self._call("load", lambda: self._client.load_collection(name))
        rows = self._call(
            "read",
            lambda: self._client.query(name, filter=f"pk == {quote(_SELF)}", output_fields=["turns"], limit=1),
        )
        if not rows:
            raise IndexMismatchError(
                f"collection {name!r} of index {self.uri!r} does not describe itself: its making was cut, or other "
                "software made it; run locigraph verify --rebuild true, or name another index"
            )
        return Collection(self, name, CollectionSpec(**json.loads(rows[0]["turns"])))

    def has(self, name: str) -> bool:
        """Whether a collection or alias of that name exists."""
        return bool(self._call("look up a collection", lambda: self._client.has_collection(name)))

    def drop(self, name: str) -> None:
        """Remove a collection if it is there; by its own name only, since Milvus would follow an alias to another."""
        if name in self.collections():
            self._call(f"drop {name!r}", lambda: self._client.drop_collection(name))

    def alias_target(self, alias: str) -> str | None:
        """Collection that an alias points at; None when there is no such alias."""
        for name in self.collections():
            found = self._call("list aliases", functools.partial(self._client.list_aliases, name))
            if alias in found.get("aliases", []):
                return name
        return None

    def point(self, alias: str, name: str) -> None:
        """Make an alias point at a collection; readers see the old or the new, never neither."""
        if self.alias_target(alias) is None:
            self._call("create alias", lambda: self._client.create_alias(name, alias))
        else:
            self._call("alter alias", lambda: self._client.alter_alias(name, alias))

    def _call(self, what: str, action: Callable[[], _T]) -> _T:
        # pymilvus raises its own error for refusals and builtin ones for broken connections and locked files.
        try:
            return action()
        except (MilvusException, OSError, RuntimeError, ConnectionError) as error:
            raise IndexUnavailableError(
                f"index {self.uri!r}: cannot {what}: {str(error)[:300]}; check that the server runs, or that no other "
                "process has the file open"
            ) from error


class Collection:
    """One collection of an index; made by ``MilvusIndex.create`` or ``open``."""

    def __init__(self, index: MilvusIndex, name: str, spec: CollectionSpec) -> None:
        self._index = index
        self._client = index._client
        self.name = name
        self.spec = spec

    def require(self, *, dim: int | None = None, version: str, schema: str) -> None:
        """Check that the collection is what its user expects.

        Raises:
            IndexMismatchError: Names the difference and the command that mends it.
        """
        expected = {"version": version, "schema": schema} | ({} if dim is None else {"dim": dim})
        held = asdict(self.spec)
        for name, value in expected.items():
            if held[name] != value:
                raise IndexMismatchError(
                    f"collection {self.name!r} of index {self._index.uri!r} has {name} {held[name]!r} but {value!r} "
                    "is needed; run locigraph refresh (graph embeddings) or verify --rebuild true (descriptions)"
                )

    def describe_itself(self) -> None:
        """Write the row that holds the collection's own description."""
        vector = np.zeros(self.spec.dim, dtype=np.float32)
        vector[0] = 1.0  # COSINE has no meaning for a zero vector
        row = {
            "pk": _SELF, "space": _SELF, "node_key": -1, "node_id": _SELF, "type": _SELF, "recorded_at": 0,
            "turns": json.dumps(asdict(self.spec)), "vector": vector,
        }  # fmt: skip
        self._index._call("write", lambda: self._client.upsert(self.name, [row]))

    def upsert(self, rows: Sequence[IndexRow], vectors: NDArray[np.float32], *, progress: str | None = None) -> None:
        """Write rows, replacing those of the same primary key.

        Args:
            rows: Nodes.
            vectors: float32 [rows, dim].
            progress: Name on a progress bar; None shows none.

        Raises:
            InvalidVectorError: NaN, infinity or wrong shape; nothing is written then.
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
        with tqdm(total=len(rows), desc=progress, unit="node", disable=progress is None) as bar:
            for start in range(0, len(rows), _INSERT_BATCH):
                batch = [
                    {
                        "pk": row.primary_key, "space": row.space, "node_key": row.node_key, "node_id": row.node_id,
                        "type": row.type, "recorded_at": row.recorded_at, "turns": _turns_of(row),
                        "vector": vector,
                    }
                    for row, vector in zip(
                        rows[start : start + _INSERT_BATCH], vectors[start : start + _INSERT_BATCH], strict=True
                    )
                ]  # fmt: skip
                self._index._call("write", functools.partial(self._client.upsert, self.name, batch))
                bar.update(len(batch))

    def delete_nodes(self, space: str, node_keys: Iterable[int]) -> None:
        """Remove nodes of a tenant; not from views of it, see ``forget_nodes``."""
        self._delete([f"{space}/{key}" for key in node_keys])

    def forget_nodes(self, space: str, node_keys: Sequence[int]) -> None:
        """Remove nodes of a tenant, in every view of it (``space@time``)."""
        held: list[str] = []
        for start in range(0, len(node_keys), _INSERT_BATCH):
            where = f"node_key in {[int(key) for key in node_keys[start : start + _INSERT_BATCH]]}"
            query = functools.partial(self._client.query, self.name, filter=where, output_fields=["pk", "space"])
            held += [
                row["pk"]
                for row in self._index._call("read", query)
                if row["space"] == space or row["space"].startswith(f"{space}@")
            ]
        self._delete(held)

    def _delete(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), _INSERT_BATCH):
            part = keys[start : start + _INSERT_BATCH]
            where = _among("pk", part)
            self._index._call("delete", functools.partial(self._client.delete, self.name, filter=where))

    def flush(self) -> None:
        """Build the index over what was written; until then those rows are searched by a slow loop."""
        self._index._call("flush", lambda: self._client.flush(self.name))

    def count(self, space: str | None = None) -> int:
        """Rows of a tenant, or of all."""
        where = f"pk != {quote(_SELF)}" if space is None else f"space == {quote(space)}"
        rows = self._index._call(
            "count", lambda: self._client.query(self.name, filter=where, output_fields=["count(*)"])
        )
        return int(rows[0]["count(*)"])

    def node_keys(self, space: str) -> list[int]:
        """Integer names of the nodes that a tenant has here, sorted."""
        return sorted(int(key) for key in self._column("node_key", f"space == {quote(space)}"))

    def spaces(self) -> list[str]:
        """Tenants, and views of them, that have rows here, sorted; reads every row."""
        return sorted(set(self._column("space", f"pk != {quote(_SELF)}")))

    def _column(self, name: str, where: str) -> list[Any]:
        values: list[Any] = []
        iterator = self._index._call(
            "read",
            lambda: self._client.query_iterator(self.name, batch_size=1_000, filter=where, output_fields=[name]),
        )
        while batch := self._index._call("read", iterator.next):
            values += [row[name] for row in batch]
        iterator.close()
        return values

    def vectors(self, space: str, node_keys: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Stored vectors by node key; absent nodes are left out."""
        found: dict[int, NDArray[np.float32]] = {}
        for start in range(0, len(node_keys), 200):
            ids = [f"{space}/{key}" for key in node_keys[start : start + 200]]
            rows = self._index._call(
                "read",
                functools.partial(
                    self._client.query, self.name, filter=_among("pk", ids), output_fields=["node_key", "vector"]
                ),
            )
            found.update((int(row["node_key"]), np.asarray(row["vector"], dtype=np.float32)) for row in rows)
        return found

    def search(self, vector: NDArray[np.float32], scope: SearchScope, *, top_k: int) -> list[VectorMatch]:
        """Nearest rows of one tenant, best first; ties by node id.

        Raises:
            InvalidVectorError: NaN, infinity or wrong width.
            FilterError: If the scope names no tenant.
            IndexUnavailableError: If the search fails.
        """
        if vector.shape != (self.spec.dim,) or not np.isfinite(vector).all():
            raise InvalidVectorError(
                f"query vector for collection {self.name!r} must be {self.spec.dim} finite numbers, got shape "
                f"{vector.shape}"
            )
        expression = filter_expression(scope)
        parameters: dict[str, Any] = {"metric_type": self.spec.metric}
        if self.spec.index == "HNSW":
            parameters["params"] = {"ef": max(_HNSW_EF, top_k)}
        found = self._index._call(
            "search",
            lambda: self._client.search(
                self.name,
                data=[vector],
                limit=top_k,
                filter=expression,
                search_params=parameters,
                output_fields=["node_id", "type", "turns"],
            ),
        )
        matches = [
            VectorMatch(
                NodeId(hit["entity"]["node_id"]),
                hit["entity"]["type"],
                tuple(TurnId(t) for t in hit["entity"]["turns"].split(_SEPARATOR) if t),
                float(hit["distance"]),
            )
            for hit in found[0]
        ]
        return sorted(matches, key=lambda match: (-match.score, match.node_id))


def _among(field: str, values: Sequence[str]) -> str:
    # pymilvus's own ``ids=`` puts string keys between quotes unescaped: a tenant's name could delete another's rows.
    return f"{field} in [{', '.join(quote(value) for value in values)}]"


def _turns_of(row: IndexRow) -> str:
    # Structure stands for no turn, and a name that thousands of turns mention would not fit the field.
    return _SEPARATOR.join(row.turn_ids) if row.type in SEARCHABLE_TYPES else ""

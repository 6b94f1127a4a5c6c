"""One collection of the vector index: its rows, and the row in which it describes itself."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pymilvus import CollectionSchema, DataType, MilvusClient
from pymilvus.milvus_client import IndexParams

from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.schema import searchable_types
from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.filters import MOST_NAMED, filter_expression, quote
from locigraph.retrieval.index.milvus_client import GuardedClient
from locigraph.retrieval.protocols import MOST_FOUND, SearchFilter, VectorMatch

IndexType = Literal["FLAT", "HNSW"]
Metric = Literal["COSINE", "IP"]

# Below this number of rows exact search is as fast as HNSW and never misses a row.
FLAT_BELOW = 50_000
_HNSW = {"M": 16, "efConstruction": 200}
_HNSW_EF = 256
_GROWTH = 4  # how many more rows are asked for where most are left out
#: Rows in one request.
BATCH = 1_000
_REMEMBERED = 20_000
#: Primary key of the row in which a collection describes itself, in a space that no search can name.
SELF = "self"
_NO_SPACE = ""
_ROW_FIELDS = ["space", "node_key", "node_id", "type", "recorded_at", "turns"]
_SEPARATOR = "\x1f"
_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class CollectionSpec:
    """Describes the content of a collection; its writer and its readers must agree on every field.

    Attributes:
        dim: Width of the vectors.
        metric: ``COSINE`` or ``IP`` (inner product).
        version: ID of the model that made the vectors: of a text encoder, or of a checkpoint.
        schema: ``kg.schema.schema_hash()``.
        index: ``FLAT`` (exact search) or ``HNSW`` (approximate search).
        store: Identity of the store that the nodes come from; empty in collections made for one comparison only, and in
            those of an earlier version.
    """

    dim: int
    metric: Metric
    version: str
    schema: str
    index: IndexType = "FLAT"
    store: str = ""

    def may_be_of(self, store: str | None) -> bool:
        """Whether its nodes come from the store of this identity, as far as the collection says."""
        return self.store in ("", store)


@dataclass(frozen=True, slots=True)
class IndexRow:
    """The row of a node. ``space`` is the node's space or a view of it."""

    space: str
    node_key: int
    node_id: NodeId
    type: str
    recorded_at: int
    turn_ids: tuple[TurnId, ...]


class Collection:
    """One collection of an index; made by ``MilvusIndex.create`` or ``open``.

    This one is of Milvus Lite; ``ServerCollection`` is one on a server.
    """

    def __init__(self, client: GuardedClient, name: str, spec: CollectionSpec, *, namespace: str = "") -> None:
        self._client = client
        self.name = name
        self.spec = spec
        self._full = namespace + name
        self._last_written: dict[tuple[str, int], None] = {}  # in the order in which they were written

    @property
    def version(self) -> str:
        """Version of the model that made the vectors."""
        return self.spec.version

    def require(self, *, version: str, schema: str) -> None:
        """Check that the collection is what its user expects.

        Raises:
            IndexMismatchError: If it is not; names the difference and the command that repairs the descriptions.
        """
        for name, recorded, needed in (("version", self.spec.version, version), ("schema", self.spec.schema, schema)):
            if recorded != needed:
                raise IndexMismatchError(
                    f"collection {self.name!r} of index {self._client.uri!r} has {name} {recorded!r} but {needed!r} "
                    "is needed; run locigraph verify --rebuild true"
                )

    def describe_itself(self) -> None:
        """Write the row that holds the collection's own description."""
        vector = np.zeros(self.spec.dim, dtype=np.float32)
        vector[0] = 1.0  # COSINE has no meaning for a zero vector
        row = {
            "pk": SELF, "space": _NO_SPACE, "node_key": -1, "node_id": SELF, "type": SELF, "recorded_at": 0,
            "turns": json.dumps(asdict(self.spec)), "vector": vector,
        }  # fmt: skip
        self._client.insert(self._full, [row])

    def upsert(self, rows: Sequence[IndexRow], vectors: NDArray[np.float32], *, are_new: bool = False) -> None:
        """Write rows; a row of the same node and space is replaced.

        Args:
            rows: Rows of the nodes.
            vectors: Embeddings of the nodes, float32 [rows, dim].
            are_new: Whether there certainly is no row of these nodes yet, so that a server need not look for one.

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
        for batch in batches(list(zip(rows, vectors, strict=True)), BATCH):
            written = [
                {
                    "pk": primary_key(row.space, row.node_key), "space": row.space, "node_key": row.node_key,
                    "node_id": row.node_id, "type": row.type, "recorded_at": row.recorded_at,
                    "turns": _turns_of(row), "vector": vector,
                }
                for row, vector in batch
            ]  # fmt: skip
            self._write(written, are_new=are_new)
        self._remember((row.space, row.node_key) for row in rows)

    def _remember(self, nodes: Iterable[tuple[str, int]]) -> None:
        self._last_written.update(dict.fromkeys(nodes))
        for node in list(itertools.islice(self._last_written, max(0, len(self._last_written) - _REMEMBERED))):
            del self._last_written[node]

    def has_written(self, nodes: Iterable[tuple[str, int]]) -> bool:
        """Whether nodes, by space and key, are among the last 20,000 of which this object wrote or deleted a row."""
        return all(node in self._last_written for node in nodes)

    def _write(self, rows: Sequence[dict[str, Any]], *, are_new: bool) -> None:
        self._client.upsert(self._full, rows)

    def delete_nodes(self, space: str, node_keys: Iterable[int]) -> None:
        """Remove nodes of a space, but not from views of it."""
        keys = list(node_keys)
        for batch in batches([primary_key(space, key) for key in keys], BATCH):
            self._client.delete(self._full, filter=among(batch))
        self._remember((space, key) for key in keys)

    def delete_space(self, space: str) -> None:
        """Remove all rows of a space, but not of views of it."""
        self._client.delete(self._full, filter=f"space == {quote(space)}")

    def flush(self) -> None:
        """Build the index over what was written; until then Milvus Lite searches those rows by a slow loop."""
        self._client.flush(self._full)

    def synchronise(self) -> None:
        """Let later reads see everything that other processes have written; there are none with an embedded index."""

    def count(self, space: str | None = None) -> int:
        """Number of rows of a space; None counts those of all spaces."""
        where = f"pk != {quote(SELF)}" if space is None else f"space == {quote(space)}"
        return int(self._query(where, ["count(*)"])[0]["count(*)"])

    def node_keys(self, space: str) -> list[int]:
        """Keys of the nodes that a space has here, sorted."""
        return sorted(int(row["node_key"]) for row in self._all(["node_key"], f"space == {quote(space)}"))

    def rows(self, space: str) -> dict[int, IndexRow]:
        """Rows of a space by node key."""
        return {row["node_key"]: _row_of(row) for row in self._all(_ROW_FIELDS, f"space == {quote(space)}")}

    def contents(self, spaces: Sequence[str]) -> dict[str, list[tuple[IndexRow, NDArray[np.float32]]]]:
        """All rows of some spaces with their vectors, by space; read in one pass over an embedded index."""
        found: dict[str, list[tuple[IndexRow, NDArray[np.float32]]]] = {space: [] for space in spaces}
        for row in self._all([*_ROW_FIELDS, "vector"], f"space in [{', '.join(map(quote, spaces))}]"):
            found[row["space"]].append((_row_of(row), np.asarray(row["vector"], dtype=np.float32)))
        return found

    def counts(self) -> Counter[str]:
        """Number of rows of each space, and view of a space, that has any; reads every row once."""
        return Counter(row["space"] for row in self._all(["space"], f"pk != {quote(SELF)}"))

    def _all(self, fields: list[str], where: str) -> Iterator[dict[str, Any]]:
        iterator = self._client.query_iterator(self._full, batch_size=BATCH, filter=where, output_fields=fields)
        read = self._client.guarded("read", iterator.next)
        while rows := read():
            yield from rows
        iterator.close()

    def _query(self, where: str, fields: list[str], **options: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.query(self._full, filter=where, output_fields=fields, **options)
        return found

    def vectors(self, space: str, node_keys: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Stored vectors by node key; absent nodes are left out."""
        vectors: dict[int, NDArray[np.float32]] = {}
        for batch in batches(node_keys, 200):
            where = among([primary_key(space, key) for key in batch])
            rows = self._query(where, ["node_key", "vector"])
            vectors.update((int(row["node_key"]), np.asarray(row["vector"], dtype=np.float32)) for row in rows)
        return vectors

    def search(self, vector: NDArray[np.float32], scope: SearchFilter, *, top_k: int) -> list[VectorMatch]:
        """The nearest rows of the scope's spaces, best first; ties by node ID. At most 16,384 are returned.

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
        if scope.only is not None and not scope.only:
            return []
        limit = min(top_k, MOST_FOUND)
        # An expression names few nodes; where there are more, others are left out here.
        only = scope.only if scope.only is not None and len(scope.only) > MOST_NAMED else None
        asked = limit if only is None else min(_GROWTH * limit, MOST_FOUND)
        while True:
            found = self._found(vector, scope, asked)
            matches = found if only is None else [match for match in found if match.node_id in only]
            if len(matches) >= limit or len(found) < asked or asked == MOST_FOUND:
                return sorted(matches, key=lambda match: (-match.score, match.node_id))[:limit]
            asked = min(_GROWTH * asked, MOST_FOUND)

    def _found(self, vector: NDArray[np.float32], scope: SearchFilter, limit: int) -> list[VectorMatch]:
        parameters: dict[str, Any] = {"metric_type": self.spec.metric}
        if self.spec.index == "HNSW":
            parameters["params"] = {"ef": max(_HNSW_EF, limit)}
        hits = self._nearest(
            limit,
            data=[vector],
            filter=filter_expression(scope),
            search_params=parameters,
            output_fields=["space", "node_id", "type", "turns"],
        )
        matches = []
        for hit in hits:
            row = hit["entity"]
            match = VectorMatch(NodeId(row["node_id"]), row["type"], _turn_ids(row["turns"]), float(hit["distance"]))
            matches.append(match if isinstance(scope.space, str) else match.named_in(row["space"]))
        return matches

    def _nearest(self, limit: int, **asked: Any) -> list[dict[str, Any]]:
        """The nearest rows, at most so many, one for each node."""
        found: list[dict[str, Any]] = self._client.search(self._full, limit=limit, **asked)[0]
        return found


def schema_of(spec: CollectionSpec) -> CollectionSchema:
    """The fields of a row."""
    schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
    schema.add_field("pk", DataType.VARCHAR, max_length=64, is_primary=True)
    schema.add_field("space", DataType.VARCHAR, max_length=256, is_partition_key=True)
    schema.add_field("node_key", DataType.INT64)
    schema.add_field("node_id", DataType.VARCHAR, max_length=256)
    schema.add_field("type", DataType.VARCHAR, max_length=64)
    schema.add_field("recorded_at", DataType.INT64)
    schema.add_field("turns", DataType.VARCHAR, max_length=65_535)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=spec.dim)
    return schema


def index_of(spec: CollectionSpec) -> IndexParams:
    """Parameters of the index over the vectors."""
    index = MilvusClient.prepare_index_params()
    parameters = _HNSW if spec.index == "HNSW" else {}
    index.add_index("vector", index_type=spec.index, metric_type=spec.metric, params=parameters)
    return index


def described(client: GuardedClient, name: str) -> CollectionSpec:
    """Read a collection's self-description; raises IndexError, TypeError or ValueError if it is not one of ours."""
    fields = {field["name"] for field in client.describe_collection(name)["fields"]}
    if not fields.issuperset(_ROW_FIELDS):  # such a collection cannot be queried for the row
        raise ValueError(f"its fields are {sorted(fields)}")
    client.load_collection(name)
    # A server that was just started answers before it has read everything, unless it is asked to wait.
    waiting = {} if client.is_embedded else {"consistency_level": "Strong"}
    rows = client.query(name, filter=f"pk == {quote(SELF)}", output_fields=["turns"], limit=1, **waiting)
    return CollectionSpec(**json.loads(rows[0]["turns"]))


def batches(items: Sequence[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """The items in portions of at most so many."""
    return (items[start : start + size] for start in range(0, len(items), size))


def primary_key(space: str, node_key: int) -> str:
    """Primary key of the row of a node, 64 hexadecimal digits."""
    return hashlib.sha256(f"{space}/{node_key}".encode()).hexdigest()


def among(primary_keys: Sequence[str]) -> str:
    """Filter for the rows with these primary keys."""
    return f"pk in [{', '.join(map(quote, primary_keys))}]"


def _row_of(row: Mapping[str, Any]) -> IndexRow:
    return IndexRow(
        row["space"], row["node_key"], NodeId(row["node_id"]), row["type"], row["recorded_at"], _turn_ids(row["turns"])
    )


def _turns_of(row: IndexRow) -> str:
    # Other types stand for no turn, and the IDs of thousands of turns that mention an entity would not fit the field.
    return _SEPARATOR.join(row.turn_ids) if row.type in searchable_types() else ""


def _turn_ids(turns: str) -> tuple[TurnId, ...]:
    return tuple(TurnId(turn) for turn in turns.split(_SEPARATOR) if turn)

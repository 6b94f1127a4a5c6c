"""A collection on a Milvus server, which other processes read and write at the same time.

What differs from Milvus Lite, measured on Milvus 2.3.5 with pymilvus 3.0.2:

- An upsert into a collection with a partition key puts rows into wrong partitions; an insertion is right. So a row is
  replaced by inserting a new one under another primary key and then deleting the old one. In this order a reader finds
  one of the two at any time, and after a crash between the two steps there is one row too many, never one too few.
- A read at the level *Session* sees this process's own insertions at once, but its deletions, and what other processes
  wrote, only some time later. At the level *Strong* it sees everything, and takes up to 0.4 seconds. What one such read
  has seen, all later reads see (``synchronise``).
- A server that was just started answers before it has read everything: a process that has written nothing would get
  incomplete results at the level *Session*. At the level *Bounded* it waits until no more than the last five seconds
  are lacking. So reads use *Session* shortly after a write, and *Bounded* later; both take milliseconds.
- The iterator of pymilvus takes the time up to which it reads from the clock of this machine, which may be behind that
  of the server, and may return short pages. So pages are read here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from locigraph.retrieval.index.filters import quote
from locigraph.retrieval.index.milvus_collection import BATCH, SELF, Collection, IndexRow, among, batches
from locigraph.retrieval.protocols import MOST_FOUND

# A server searches what it has acknowledged at once. Sealing it takes seconds and leaves a file for each turn, and it
# seals large parts by itself; it is asked to after so many rows, so that they are indexed.
_SEALED_FROM = 5_000
# Seconds after a write in which reads are asked to see it; Bounded reads see what is five seconds old.
_RECENT_S = 4.0
_AGE = 16  # digits at the end of a primary key that tell when the row was written
_NAMED = 200  # keys in one filter


class ServerCollection(Collection):
    """A collection on a server; made by ``MilvusIndex``.

    Several processes may write it as long as each row is written by one at a time. Who takes over rows that another
    process may have written calls ``synchronise`` first.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._unsealed = 0  # rows written since the last flush
        self._wrote_at = -math.inf
        self._has_replaced = False  # since the last synchronisation: old rows may still be counted
        self._has_deleted = False  # since then: deleted rows may still be found

    def synchronise(self) -> None:
        """Let later reads see everything that any process has written or deleted until now."""
        where = f"pk == {quote(SELF)}"
        self._client.query(self._full, filter=where, output_fields=["pk"], consistency_level="Strong")
        self._has_replaced = self._has_deleted = False

    def flush(self) -> None:
        """Have the rows that were written sealed and indexed, if there are many."""
        if self._unsealed >= _SEALED_FROM:
            self._client.flush(self._full)
            self._unsealed = 0

    def _write(self, rows: Sequence[dict[str, Any]], *, are_new: bool) -> None:
        old = [] if are_new else self._written(rows)
        age = f"{time.time_ns():0{_AGE}x}"
        self._client.insert(self._full, [{**row, "pk": row["pk"][:-_AGE] + age} for row in rows])
        self._wrote_at = time.monotonic()
        self._unsealed += len(rows)
        self._delete(old)
        self._has_replaced |= bool(old)

    def _written(self, rows: Sequence[dict[str, Any]]) -> list[str]:
        """Primary keys of the present rows of the same nodes and spaces."""
        spaces: dict[str, list[int]] = {}
        for row in rows:
            spaces.setdefault(row["space"], []).append(row["node_key"])
        return [pk for space, keys in spaces.items() for pk in self._primary_keys(space, keys)]

    def _primary_keys(self, space: str, node_keys: Iterable[int]) -> list[str]:
        found = (self._among_nodes(space, chunk, ["pk"]) for chunk in batches(list(node_keys), _NAMED))
        return [row["pk"] for rows in found for row in rows]

    def _among_nodes(self, space: str, node_keys: Sequence[int], fields: list[str]) -> list[dict[str, Any]]:
        return self._query(f"space == {quote(space)} and node_key in [{', '.join(map(str, node_keys))}]", fields)

    def delete_nodes(self, space: str, node_keys: Iterable[int]) -> None:
        """Remove nodes of a space, but not from views of it."""
        gone = self._primary_keys(space, node_keys)
        self._delete(gone)
        self._has_deleted |= bool(gone)

    def delete_space(self, space: str) -> None:
        """Remove all rows of a space, but not of views of it."""
        gone = [row["pk"] for row in self._all(["pk"], f"space == {quote(space)}")]
        self._delete(gone)
        self._has_deleted |= bool(gone)

    def _delete(self, primary_keys: Sequence[str]) -> None:
        for batch in batches(primary_keys, BATCH):
            self._client.delete(self._full, filter=among(batch))

    def count(self, space: str | None = None) -> int:
        """Number of rows of a space; None counts those of all spaces."""
        if self._has_replaced:
            self.synchronise()
        return super().count(space)

    def _all(self, fields: list[str], where: str) -> Iterator[dict[str, Any]]:
        if self._has_replaced:
            self.synchronise()
        last = ""
        while rows := self._query(f"({where}) and pk > {quote(last)}", ["pk", *fields], limit=BATCH):
            yield from rows
            last = max(row["pk"] for row in rows)

    def vectors(self, space: str, node_keys: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Stored vectors by node key; absent nodes are left out."""
        vectors: dict[int, NDArray[np.float32]] = {}
        for batch in batches(node_keys, _NAMED):
            rows = self._among_nodes(space, batch, ["pk", "node_key", "vector"])
            for row in sorted(rows, key=lambda row: str(row["pk"])[-_AGE:]):  # the later one of two of a node counts
                vectors[int(row["node_key"])] = np.asarray(row["vector"], dtype=np.float32)
        return vectors

    def contents(self, spaces: Sequence[str]) -> dict[str, list[tuple[IndexRow, NDArray[np.float32]]]]:
        """See ``Collection.contents``; a row that is being replaced may be there twice, so vectors are read apart."""
        found = {}
        for space in spaces:
            rows = self.rows(space)
            vectors = self.vectors(space, [*rows])
            found[space] = [(rows[key], vector) for key, vector in vectors.items()]
        return found

    def _query(self, where: str, fields: list[str], **options: Any) -> list[dict[str, Any]]:
        self._see_deletions()
        return super()._query(where, fields, consistency_level=self._level(), **options)

    def _level(self) -> str:
        return "Session" if time.monotonic() - self._wrote_at < _RECENT_S else "Bounded"

    def _see_deletions(self) -> None:
        if self._has_deleted:
            self.synchronise()

    def _nearest(self, limit: int, **asked: Any) -> list[dict[str, Any]]:
        self._see_deletions()
        asked |= {"output_fields": [*asked["output_fields"], "node_key"], "consistency_level": self._level()}
        more = limit
        while True:
            hits = super()._nearest(more, **asked)
            newest: dict[tuple[str, int], dict[str, Any]] = {}
            for hit in sorted(hits, key=lambda hit: str(hit["id"])[-_AGE:]):
                newest[hit["entity"]["space"], hit["entity"]["node_key"]] = hit
            if len(newest) >= limit or len(hits) < more or more == MOST_FOUND:
                return list(newest.values())
            more = min(2 * more, MOST_FOUND)  # some of the hits were old rows of nodes that are being replaced
            parameters = asked["search_params"]
            if "params" in parameters:  # HNSW looks at no fewer rows than it returns
                ef = max(more, parameters["params"]["ef"])
                asked["search_params"] = parameters | {"params": parameters["params"] | {"ef": ef}}

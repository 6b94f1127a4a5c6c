"""The vector index: Milvus through pymilvus. A path opens Milvus Lite; a URL opens a server.

Pitfalls of Milvus Lite that this adapter avoids (measured on 3.2.2): it accepts any index type, so types are
allow-listed; it accepts NaN, so vectors are checked; it searches unflushed rows by a slow loop, so bulk writes flush;
without a partition key, HNSW has poor recall for spaces with few rows, so the space is always the partition key;
collection properties are not kept, so each collection describes itself in a row of its own; pymilvus's iterator writes
the last primary key unescaped into its next filter, so primary keys are hashes; deleted rows stay in the files, so data
that must be erased is erased by rebuilding the index.
"""

from __future__ import annotations

import re

from locigraph.retrieval.errors import IndexMismatchError
from locigraph.retrieval.index.milvus_client import GuardedClient
from locigraph.retrieval.index.milvus_collection import (
    Collection,
    CollectionSpec,
    described,
    index_of,
    schema_of,
)
from locigraph.retrieval.index.milvus_server import ServerAccess
from locigraph.retrieval.index.milvus_server_collection import ServerCollection

_UNFINISHED = "making_"  # name prefix of a collection that does not describe itself yet


class MilvusIndex:
    """A connection to Milvus.

    Args:
        uri: File path (Milvus Lite; one process at a time) or URL of a server.
        access: How a server is reached.
        namespace: Letters, digits and underscores put before all names, so that several stores can use one server;
            empty for an index that no other store uses.
        is_reader: Whether the connection is used only for reading.

    Raises:
        IndexUnavailableError: If no connection can be made.
        IndexMismatchError: If a server has a version that is not tested.
    """

    def __init__(
        self, uri: str, *, access: ServerAccess = ServerAccess(), namespace: str = "", is_reader: bool = False
    ) -> None:
        self.uri = uri
        self._namespace = namespace
        self.is_reader = is_reader
        self._client = GuardedClient(uri, access, is_reader=is_reader)
        # By name, for an embedded index, which no other process can change; cleared whenever collections change. By
        # the server's number of the collection, for a server, where names and aliases are looked up each time.
        self._opened: dict[str | int, Collection] = {}

    @property
    def is_embedded(self) -> bool:
        """Whether the index is stored by Milvus Lite and not on a server."""
        return self._client.is_embedded

    def close(self) -> None:
        """End the connection."""
        self._opened.clear()
        self._client.close()

    def __enter__(self) -> MilvusIndex:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def collections(self) -> list[str]:
        """Names of the collections, sorted, without aliases and unfinished collections."""
        return [name for name in self._listed() if not name.startswith(_UNFINISHED)]

    def _listed(self) -> list[str]:
        """Names of the collections of this namespace, sorted, with unfinished ones."""
        listed = self._client.list_collections()
        return sorted(name.removeprefix(self._namespace) for name in listed if name.startswith(self._namespace))

    def _full(self, name: str) -> str:
        return self._namespace + name

    def create(self, name: str, spec: CollectionSpec) -> Collection:
        """Create an empty collection; an existing one of the same name is replaced.

        It gets its name only once it holds the row that describes it, so a collection of this name is always complete.
        """
        if spec.index not in ("FLAT", "HNSW") or spec.metric not in ("COSINE", "IP"):
            raise IndexMismatchError(
                f"index type {spec.index!r} with metric {spec.metric!r} is not supported; use FLAT or HNSW with "
                "COSINE or IP"
            )
        kind = _UNFINISHED + name.partition("_")[0]
        for left in self._listed():  # by a process that was killed
            if left.startswith(kind):
                self.drop(left)
        self._opened.clear()
        unfinished, full = self._full(_UNFINISHED + name), self._full(name)
        self._client.create_collection(unfinished, schema=schema_of(spec), consistency_level="Session")
        # Do not wait: pymilvus would sleep for half a second before its first poll, and there is no row to index yet.
        self._client.create_index(unfinished, index_of(spec), sync=False)
        Collection(self._client, unfinished, spec).describe_itself()
        self.drop(name)
        self._client.rename_collection(unfinished, full)
        self._client.load_collection(full)
        if not self.is_embedded:
            return self.open(name)
        self._opened[name] = Collection(self._client, name, spec, namespace=self._namespace)
        return self._opened[name]

    def open_or_create(self, name: str, spec: CollectionSpec) -> Collection:
        """Open or create a collection whose name only this project uses; one of an earlier version is replaced."""
        if self.has(name):
            try:
                return self.open(name)
            except IndexMismatchError:
                pass
        return self.create(name, spec)

    def owned(self, names: str, store: str) -> list[str]:
        """Names of a store's collections, and of those that name no store, sorted.

        On a server other software may have collections of the same name; they lack the row that identifies ours.

        Args:
            names: Regular expression for the whole name.
            store: Identity of the store.
        """
        owned = []
        for name in self.collections():
            if re.fullmatch(names, name):
                try:
                    is_owned = self.open(name).spec.may_be_of(store)
                except IndexMismatchError:
                    is_owned = False
                if is_owned:
                    owned.append(name)
        return owned

    def clear(self, names: str, store: str) -> None:
        """Remove a store's collections, including the deleted rows that are still in their files.

        An embedded index is emptied completely, whatever state it is in.

        Args:
            names: Regular expression for the whole names of the collections that are removed from a server.
            store: Identity of the store; see ``owned``.
        """
        self._opened.clear()
        if self.is_embedded:
            self._client.clear()
            return
        for name in self.owned(names, store):
            self._drop(name)

    def is_open(self, name: str, collection: Collection | None) -> bool:
        """Whether a name of an embedded index still stands for a collection; it does not once the index was cleared."""
        return collection is not None and self._opened.get(name) is collection

    def open(self, name: str) -> Collection:
        """Open the collection of that name, or the one that an alias of that name points at.

        The same object is returned as long as the name stands for the same collection.

        Raises:
            IndexMismatchError: If there is none, or it is not one of ours.
        """
        found = self.find(name)
        if found is None:
            raise IndexMismatchError(
                f"index {self.uri!r} holds no collection {name!r}; run locigraph build or refresh first"
            )
        return found

    def find(self, name: str) -> Collection | None:
        """As ``open``; None if there is no collection or alias of that name."""
        if self.is_embedded and name in self._opened:
            return self._opened[name]
        if not self.has(name):
            return None
        known_as: str | int = name
        full = self._full(name)
        if not self.is_embedded:
            # What is read is one collection, even if the alias is moved to another one meanwhile.
            found = self._client.describe_collection(full)
            known_as, full = found["collection_id"], found["collection_name"]
            if known_as in self._opened:
                return self._opened[known_as]
        try:
            spec = described(self._client, full)
        except (IndexError, TypeError, ValueError) as error:
            cure = "run locigraph verify --rebuild true (and then refresh), or name another index with --index.uri"
            if not self.is_embedded:  # where ``clear`` leaves such a collection alone
                cure = "name another index with --index.uri, or remove the collection from the server"
            raise IndexMismatchError(
                f"collection {name!r} of index {self.uri!r} has no description of its own: it was made by an "
                f"earlier version or other software; {cure}"
            ) from error
        made_as = Collection if self.is_embedded else ServerCollection
        opened = made_as(self._client, full.removeprefix(self._namespace), spec, namespace=self._namespace)
        self._opened[known_as] = opened
        return opened

    def has(self, name: str) -> bool:
        """Whether a collection or alias of that name exists."""
        return name in self._opened or bool(self._client.has_collection(self._full(name)))

    def drop(self, name: str) -> None:
        """Remove a collection if it exists, and what points at it.

        The name of an alias is ignored, since Milvus would follow it to another collection.
        """
        self._opened.clear()
        if name in self._listed():
            self._drop(name)

    def _drop(self, name: str) -> None:
        for alias in self._aliases_of(name):  # a server would keep it, pointing at nothing, and allow no other
            self._client.drop_alias(self._full(alias))
        self._client.drop_collection(self._full(name))

    def alias_target(self, alias: str) -> str | None:
        """Name of the collection that an alias points at; None when there is no such alias."""
        return next((name for name in self.collections() if alias in self._aliases_of(name)), None)

    def _aliases_of(self, name: str) -> list[str]:
        aliases = self._client.list_aliases(self._full(name)).get("aliases", [])
        return [alias.removeprefix(self._namespace) for alias in aliases]

    def point(self, alias: str, name: str) -> None:
        """Make an alias point at a collection; readers see the old or the new collection, never none."""
        self._opened.clear()
        if self.alias_target(alias) is None:
            self._client.create_alias(self._full(name), self._full(alias))
        else:
            self._client.alter_alias(self._full(name), self._full(alias))

"""Both engines of the vector index, for tests that must pass on each."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from pymilvus import MilvusClient

from locigraph.retrieval.index.milvus import MilvusIndex
from tests.servers.running import require_running


@dataclass(frozen=True)
class Engine:
    """An engine of the index.

    Attributes:
        is_server: Whether it is a Milvus server, and not Milvus Lite.
        opened: Opens an index of a name, which is empty unless a test has filled it.
    """

    is_server: bool
    opened: Callable[[str], MilvusIndex]


@pytest.fixture(scope="module", params=["embedded", pytest.param("server", marks=pytest.mark.servers)])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Each engine in turn."""
    if request.param == "embedded":
        folder = tmp_path_factory.mktemp("milvus") / "made"
        yield Engine(False, lambda name: MilvusIndex(str(folder / f"{name}.db")))
        return
    uri, ours = require_running().milvus.uri, f"test_{secrets.token_hex(4)}_"
    yield Engine(True, lambda name: MilvusIndex(uri, namespace=f"{ours}{name}_"))
    client = MilvusClient(uri, dedicated=True)
    for name in client.list_collections():
        if name.startswith(ours):
            for alias in client.list_aliases(name)["aliases"]:
                client.drop_alias(alias)
            client.drop_collection(name)
    client.close()

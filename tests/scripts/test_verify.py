"""``locigraph verify``: what differs is told, and ends with 1."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from locigraph.kg.errors import InvalidVectorError, LocigraphError
from locigraph.kg.types import SpaceId
from locigraph.retrieval.index.descriptions import DESCRIPTIONS
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.scripts.verify import verify
from tests.scripts.test_memory import SALE, opened


@pytest.mark.parametrize(
    ("collection", "named"), [(DESCRIPTIONS, "ana"), (GRAPH_ALIAS, "ana graph embeddings")], ids=["words", "v2"]
)
def test_a_row_that_an_index_lacks_is_counted_and_ends_with_1_until_the_index_is_made_anew(
    place: Path, capsys: pytest.CaptureFixture[str], collection: str, named: str
) -> None:
    store, checkpoint = str(place / "memory.sqlite"), str(place / "checkpoint")
    with opened(place) as memory:
        memory.add(**SALE)
    with MilvusIndex(str(place / "memory.index.db")) as index:
        held = index.open(collection)
        held.delete_nodes(SpaceId("ana"), sorted(held.node_keys(SpaceId("ana")))[:1])
        held.flush()
    with pytest.raises(SystemExit) as ended:
        verify(store=store, checkpoint=checkpoint)
    said = capsys.readouterr().out
    assert ended.value.code == 1
    assert f"{named}: differs (1 missing, 0 surplus, 0 changed)" in said
    assert "the index differs from the store; run locigraph verify --rebuild true" in said
    verify(store=store, checkpoint=checkpoint, rebuild=True)
    said = capsys.readouterr().out
    assert "differs" not in said
    assert f"{named}: clean" in said


def test_a_damaged_vector_of_the_store_is_named_and_made_anew_by_the_next_add(place: Path) -> None:
    store, checkpoint = str(place / "memory.sqlite"), str(place / "checkpoint")
    with opened(place) as memory:
        memory.add(**SALE)
    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE embeddings SET vector = x'0000c07f' WHERE node_key = 1")
    for rebuild in (False, True):
        with pytest.raises(
            LocigraphError, match=r"vector of node .* finite numbers, and locigraph build computes it again"
        ):
            verify(store=store, checkpoint=checkpoint, rebuild=rebuild)
    with opened(place) as memory:
        with pytest.raises(InvalidVectorError, match="run locigraph build with that text encoder"):
            memory.explain("Who bought the bike?", space="ana")
        memory.add(**SALE | {"text": "To whom?"})
        assert memory.explain("Who bought the bike?", space="ana")
    verify(store=store, checkpoint=checkpoint)

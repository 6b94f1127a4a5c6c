"""``locigraph verify``: what differs is told, and ends with 1."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite

from locigraph.assembly import opening
from locigraph.assembly.graphs import GraphWriter
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.kg.errors import InvalidVectorError, LocigraphError
from locigraph.kg.store import Store, faults
from locigraph.kg.types import SpaceId, TurnId
from locigraph.retrieval.index.descriptions import DESCRIPTIONS
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.scripts.commands.memory.verify import verify
from tests.faults.workbench import FakeCachedEncoder
from tests.scripts.test_memory import SALE, opened, unlogged


@pytest.mark.long
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


def test_where_nothing_can_be_written_indexes_are_compared_and_what_is_due_is_only_reported(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, checkpoint = str(place / "memory.sqlite"), str(place / "checkpoint")
    with opened(place) as memory:
        memory.add(**SALE)
        memory.add(**SALE | {"space": "bo"})
    access = os.access

    def forbid() -> None:  # the superuser may write whatever a file's mode says
        monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))

    forbid()
    verify(store=store, checkpoint=checkpoint)
    said = capsys.readouterr().out
    assert "ana: clean" in said
    assert "bo graph embeddings: clean" in said
    assert "cannot be written" not in said
    monkeypatch.undo()
    encoder = FakeCachedEncoder("fake", cache=place / "cache.sqlite")
    monkeypatch.setattr(opening, "text_encoder", lambda settings: encoder)
    with Store(store) as graph:  # as after a build that was killed before it had written the indexes
        said_later = replace(graph.turns(SpaceId("bo"))[0], turn_id=TurnId("t9"), text="I live in Porto.")
        GraphWriter(graph, RuleExtractor(), encoder).add([said_later])
    before = unlogged(place)
    forbid()
    verify(store=store, checkpoint=checkpoint)
    said = capsys.readouterr().out
    assert "ana graph embeddings: clean" in said
    assert "rows due to the index\nbo: graph embeddings due\nstore or index cannot be written here" in said
    assert unlogged(place) == before


def test_a_fault_that_sqlite_tells_in_several_lines_is_one_line() -> None:
    class Damaged:
        dialect = sqlite.dialect()

        def exec_driver_sql(self, statement: str) -> list[tuple[str]]:
            return [("*** in database main ***\nFragmentation of 512 bytes reported as 0 on page 1",)]

    assert faults.find(cast(Connection, Damaged())) == [
        "*** in database main *** Fragmentation of 512 bytes reported as 0 on page 1"
    ]

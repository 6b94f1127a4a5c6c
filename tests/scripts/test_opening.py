from __future__ import annotations

from pathlib import Path

from locigraph.scripts.assembly.opening import vector_index
from locigraph.scripts.assembly.settings import IndexSettings


def test_every_store_has_an_index_file_of_its_own(tmp_path: Path) -> None:
    names = ["graph.sqlite", "graph.rules", "graph.recorded", "graph.db"]
    uris = []
    for name in names:
        with vector_index(IndexSettings(), str(tmp_path / name)) as index:
            uris.append(Path(index.uri).name)
    assert uris == ["graph.index.db", "graph.rules.index.db", "graph.recorded.index.db", "graph.db.index.db"]

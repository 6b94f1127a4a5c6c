from __future__ import annotations

from pathlib import Path

import pytest

from locigraph.assembly.opening import text_cache, text_encoder, vector_index
from locigraph.assembly.settings import EncoderSettings, IndexSettings
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store


def test_every_store_has_an_index_file_of_its_own(tmp_path: Path) -> None:
    names = ["graph.sqlite", "graph.rules", "graph.recorded", "graph.db"]
    uris = []
    for name in names:
        with Store(tmp_path / name) as store, vector_index(IndexSettings(), store) as index:
            uris.append(Path(index.uri).name)
    url = f"sqlite+pysqlite:///{tmp_path / 'graph.sqlite'}?timeout=3"
    with Store(url) as store, vector_index(IndexSettings(), store) as index:
        assert Path(index.uri) == tmp_path / "graph.index.db"
    assert uris == ["graph.index.db", "graph.rules.index.db", "graph.recorded.index.db", "graph.db.index.db"]


def test_the_text_cache_is_one_for_all_directories_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for cache_home, folder in (
        (str(tmp_path / "xdg"), tmp_path / "xdg"),
        ("", tmp_path / "home" / ".cache"),
        ("relative", tmp_path / "home" / ".cache"),
    ):
        monkeypatch.setenv("XDG_CACHE_HOME", cache_home)
        assert text_cache(EncoderSettings()) == folder / "locigraph" / "text_cache.sqlite"
    assert text_cache(EncoderSettings(cache="own.sqlite")) == Path.cwd() / "own.sqlite"


def test_without_a_home_the_text_cache_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(LocigraphError, match=r"--encoder\.cache, or set XDG_CACHE_HOME"):
        text_cache(EncoderSettings())


@pytest.mark.parametrize("device", ["banana", "cuda:99"])
def test_a_device_of_the_text_encoder_that_there_is_not_is_refused_at_once(device: str, tmp_path: Path) -> None:
    with pytest.raises(LocigraphError, match=f"device '{device}' cannot be used here"):
        text_encoder(EncoderSettings(device=device, cache=str(tmp_path / "cache.sqlite")))

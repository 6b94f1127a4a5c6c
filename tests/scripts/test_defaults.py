from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from locigraph.assembly import defaults
from locigraph.assembly.settings import DEFAULT, REMEMBERED, EncoderSettings
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.retrieval.text.text_encoder import DEFAULT_MODEL
from tests.faults.workbench import FakeCachedEncoder


def built_with(graph: Store, used: EncoderSettings) -> None:
    encoder = FakeCachedEncoder("fake", cache=Path(graph.url.removeprefix("sqlite:///")).with_name("cache.sqlite"))
    defaults.remember_encoder(graph, used, encoder)


@pytest.mark.parametrize(
    ("given", "meant"),
    [({}, "bfloat16"), ({"cache": "c.sqlite"}, "bfloat16"), ({"dtype": "float32"}, "float32")],
)
def test_a_number_format_that_is_given_is_meant_though_it_is_the_default(
    given: dict[str, Any], meant: str, tmp_path: Path
) -> None:
    with Store(tmp_path / "g.sqlite") as graph:
        assert defaults.encoder_settings(REMEMBERED, graph).dtype == "float32"
        built_with(graph, EncoderSettings(DEFAULT_MODEL, dtype="bfloat16"))
        found = defaults.encoder_settings(replace(REMEMBERED, **given), graph)
        assert (found.model, found.dtype) == (DEFAULT_MODEL, meant)


def test_the_default_model_is_refused_by_name_where_another_has_built_the_store(tmp_path: Path) -> None:
    with Store(tmp_path / "g.sqlite") as graph:
        built_with(graph, EncoderSettings("another", dtype="float32"))
        assert defaults.encoder_settings(REMEMBERED, graph) == EncoderSettings("another", dtype="float32")
        with pytest.raises(LocigraphError, match=f"built with text encoder 'another', not {DEFAULT_MODEL!r}; leave"):
            defaults.encoder_settings(replace(REMEMBERED, model=DEFAULT_MODEL), graph)


def test_a_model_in_a_folder_is_known_by_its_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a")
    with Store(tmp_path / "g.sqlite") as graph:
        built_with(graph, EncoderSettings("./model", dtype="float32"))
        monkeypatch.chdir(tmp_path / "b")
        assert defaults.encoder_settings(REMEMBERED, graph).model == str(tmp_path / "a" / "model")
        with pytest.raises(LocigraphError, match="built with text encoder"):
            defaults.encoder_settings(replace(REMEMBERED, model="model"), graph)
    assert defaults.located("sentence-transformers/all-mpnet-base-v2") == "sentence-transformers/all-mpnet-base-v2"


def test_what_an_index_holds_changes_the_number_format_and_leaves_the_adapter(tmp_path: Path) -> None:
    with Store(tmp_path / "g.sqlite") as graph:
        built_with(graph, EncoderSettings(DEFAULT_MODEL, adapter="/mine", dtype="float32"))
        defaults.remember_indexed(graph, EncoderSettings(dtype="bfloat16"))
        found = defaults.encoder_settings(REMEMBERED, graph)
        assert found == EncoderSettings(DEFAULT_MODEL, adapter="/mine", dtype="bfloat16")


def test_a_store_that_was_evaluated_alone_takes_the_shipped_adapter_of_its_model_as_a_new_one_does(
    tmp_path: Path,
) -> None:
    for model in (None, "another"):
        with Store(tmp_path / f"{model}.sqlite") as graph:
            expected = defaults.encoder_settings(EncoderSettings(model, adapter=DEFAULT), graph)
            defaults.remember_indexed(graph, EncoderSettings(model))
            assert defaults.encoder_settings(REMEMBERED, graph) == expected


def test_a_store_with_a_checkpoint_of_its_own_goes_back_to_the_shipped_one_by_name(tmp_path: Path) -> None:
    with Store(tmp_path / "g.sqlite") as graph:
        defaults.remember_checkpoint(graph, tmp_path / "checkpoint", DEFAULT_MODEL)
        assert defaults.checkpoint_folder("default", graph, DEFAULT_MODEL) == tmp_path / "checkpoint"
        assert defaults.checkpoint_folder("shipped", graph, DEFAULT_MODEL) == defaults.SHIPPED.checkpoint


def test_each_text_encoder_with_a_shipped_pair_takes_its_own_adapter_checkpoint_and_number_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").mkdir()
    pair = defaults.ShippedPair(tmp_path / "text", tmp_path / "graph", "bfloat16")
    monkeypatch.setattr(defaults, "SHIPPED_PAIRS", {DEFAULT_MODEL: defaults.SHIPPED, "wide": pair})
    with Store(tmp_path / "g.sqlite") as graph:
        used = defaults.encoder_settings(replace(REMEMBERED, model="wide"), graph)
        assert used == replace(REMEMBERED, model="wide", adapter=str(tmp_path / "text"), dtype="bfloat16")
        built_with(graph, used)
        assert defaults.checkpoint_folder(DEFAULT, graph, "wide") == tmp_path / "graph"
        defaults.remember_checkpoint(graph, tmp_path / "graph", "wide")
        # What it remembers is that the pair was the shipped one, wherever this installation lies.
        monkeypatch.setattr(defaults, "SHIPPED_PAIRS", {"wide": replace(pair, adapter=tmp_path, checkpoint=tmp_path)})
        assert defaults.encoder_settings(REMEMBERED, graph).adapter == str(tmp_path)
        assert defaults.checkpoint_folder(DEFAULT, graph, "wide") == tmp_path

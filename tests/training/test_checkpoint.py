from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from locigraph.training.checkpoint import load_checkpoint
from locigraph.training.errors import CheckpointError
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from tests.fakes import FakeEncoder
from tests.fakes_graph import TEXT_DIM, planted_space, small_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "checkpoint"
    small_checkpoint().save(made)
    return made


def edit_manifest(folder: Path, **values: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_checkpoint_read_back_gives_the_same_vectors(folder: Path) -> None:
    made, loaded = small_checkpoint(), load_checkpoint(folder, text_encoder="fake-bow")
    snapshot, questions = planted_space(1)
    np.testing.assert_array_equal(encode_graph(loaded, snapshot), encode_graph(made, snapshot))
    embed = FakeEncoder(TEXT_DIM).encode
    texts = [question.text for question in questions]
    first, second = (CheckpointQueryEncoder(checkpoint, embed) for checkpoint in (made, loaded))
    np.testing.assert_array_equal(first.encode_queries(texts), second.encode_queries(texts))
    np.testing.assert_array_equal(first.encode_query(texts[0]), first.encode_queries(texts)[0])
    assert (loaded.version, loaded.details, loaded.sketch) == (made.version, made.details, made.sketch)
    assert first.version == made.version
    assert loaded.sketch.related.of(["boat"]) == made.sketch.related.of(["boat"]) == {"canoe": 0.5}


def test_vectors_come_in_the_snapshots_order() -> None:
    snapshot, _ = planted_space(1)
    vectors = encode_graph(small_checkpoint(), snapshot)
    assert vectors.shape == (snapshot.num_nodes, small_checkpoint().network.nodes.config.vector_dim)
    # A fact takes in nothing: its text block is half its own embedding before training.
    np.testing.assert_allclose(vectors[-1, :TEXT_DIM], 0.5 * snapshot.embeddings[-1], atol=1e-6)


def test_the_version_changes_with_weights_text_encoder_and_sketch() -> None:
    checkpoints = [small_checkpoint(), small_checkpoint(seed=1), small_checkpoint(text_encoder="other")]
    assert len({checkpoint.version for checkpoint in checkpoints}) == 3
    assert small_checkpoint().version == small_checkpoint().version


def test_a_checkpoint_that_does_not_say_what_it_has_seen_is_refused(folder: Path) -> None:
    for details in ({}, {"identity": {"train": ["a"]}}):  # or every test would pass for one on new conversations
        edit_manifest(folder, details=details)
        with pytest.raises(CheckpointError, match="does not say what it was trained and validated on"):
            load_checkpoint(folder)


def test_a_checkpoint_holds_safetensors_and_json_and_no_pickle(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["manifest.json", "model.safetensors"]
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint"]


def test_saving_again_replaces_what_was_there(folder: Path) -> None:
    (folder.parent / "checkpoint.part").mkdir()
    (folder.parent / "checkpoint.part" / "half").touch()
    small_checkpoint(seed=5).save(folder)
    assert load_checkpoint(folder).details["seed"] == 5
    assert [path.name for path in folder.parent.iterdir()] == ["checkpoint"]


def test_a_missing_checkpoint_or_file_is_an_error_that_says_what_to_run(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint there .*run locigraph train"):
        load_checkpoint(tmp_path / "absent")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="damaged or of another version"):
        load_checkpoint(folder)


def test_cut_weights_are_refused(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(folder)


def test_weights_of_which_one_number_changed_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["nodes.own"] = tensors["nodes.own"] + 1e-3
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match="weights do not match the manifest"):
        load_checkpoint(folder)


def test_missing_surplus_or_misshapen_weights_are_refused(folder: Path) -> None:
    whole = load_file(folder / "model.safetensors")
    for tensors in (
        {name: t for name, t in whole.items() if name != "nodes.own"},
        whole | {"surplus": torch.zeros(1)},
        whole | {"nodes.own": torch.zeros(3)},
    ):
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(CheckpointError, match="damaged or of another version"):
            load_checkpoint(folder)


def test_another_schema_format_or_text_encoder_is_refused(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="text_encoder is 'fake-bow' but 'other' is needed"):
        load_checkpoint(folder, text_encoder="other")
    for name in ("schema", "format"):
        small_checkpoint().save(folder)
        edit_manifest(folder, **{name: "another"})
        with pytest.raises(CheckpointError, match=f"{name} is 'another' but .* is needed"):
            load_checkpoint(folder)


@pytest.mark.parametrize(
    "values",
    [
        {"model": {"unknown": 1}},
        {"sketch": {"dedicated": ["a", "b"]}},
        {"sketch": {}},
        {"text_dim": "wide"},
        {"version": "000000000000"},
    ],
)
def test_a_manifest_with_a_wrong_field_is_refused(folder: Path, values: dict[str, Any]) -> None:
    edit_manifest(folder, **values)
    with pytest.raises(CheckpointError):
        load_checkpoint(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\udcff"])
def test_a_manifest_that_is_no_json_object_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match=r"manifest.json: not "):
        load_checkpoint(folder)

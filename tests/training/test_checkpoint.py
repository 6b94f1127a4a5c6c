from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from locigraph.gnn.encoders import GRAPH_ENCODERS
from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.kg.registry import UnknownNameError
from locigraph.training.checkpoint import Checkpoint, load_checkpoint, new_network
from locigraph.training.config import ModelConfig
from locigraph.training.errors import CheckpointError
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from tests.fakes import FakeEncoder
from tests.fakes_graph import SMALL_MODEL, TEXT_DIM, planted_space, small_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "checkpoint"
    small_checkpoint().save(made)
    return made


def edit_manifest(folder: Path, **values: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def encoded(checkpoint: Checkpoint) -> tuple[np.ndarray, np.ndarray]:
    snapshot, questions = planted_space(1)
    encoder = CheckpointQueryEncoder(checkpoint, FakeEncoder(TEXT_DIM))
    return encode_graph(checkpoint, snapshot)[1], np.stack([encoder.encode_query(q.text) for q in questions])


def checkpoint_of(model: ModelConfig) -> Checkpoint:
    torch.manual_seed(0)
    return replace(small_checkpoint(), model=model, weights=new_network(model, TEXT_DIM).weights())


@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_a_checkpoint_read_back_gives_the_same_vectors(encoder: str, tmp_path: Path) -> None:
    made = checkpoint_of(replace(SMALL_MODEL, encoder=encoder, excluded_relations=["next_4", "HAS_CONCEPT"]))
    made.save(tmp_path / "checkpoint")
    loaded = load_checkpoint(tmp_path / "checkpoint", text_encoder="fake-bow")
    for first, second in zip(encoded(made), encoded(loaded), strict=True):
        np.testing.assert_array_equal(first, second)
    assert (loaded.version, loaded.details, loaded.model) == (made.version, made.details, made.model)
    assert type(loaded.network.nodes) is type(made.network.nodes)
    assert [relation.name for relation in loaded.network.nodes.relations][-1] == "next_3"
    assert loaded.spaces == {"elsewhere"}


def test_the_version_changes_with_weights_text_encoder_and_model() -> None:
    checkpoints = [
        small_checkpoint(),
        small_checkpoint(seed=1),
        small_checkpoint(text_encoder="other"),
        replace(small_checkpoint(), model=replace(SMALL_MODEL, lexical_dim=63)),
        replace(small_checkpoint(), text_dim=TEXT_DIM + 1),
    ]
    assert len({checkpoint.version for checkpoint in checkpoints}) == 5
    assert small_checkpoint().version == small_checkpoint().version


def test_a_graph_encoder_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(UnknownNameError, match="graph encoder 'hgtt' is not known; nearest is 'hgt'; known: hgt, mix"):
        new_network(ModelConfig(encoder="hgtt"), TEXT_DIM)


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
    with pytest.raises(CheckpointError, match=r"no checkpoint found there .*run locigraph train"):
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


@pytest.mark.parametrize("name", ["nodes.own", "queries.lexical_weight"])
def test_weights_that_fit_the_manifest_and_not_the_model_are_refused_where_they_are_used(
    name: str, tmp_path: Path
) -> None:
    made = small_checkpoint()
    forged = replace(made, weights={key: array for key, array in made.weights.items() if key != name})
    forged.save(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match=rf"damaged or of another version \([\s\S]*{name}"):
        _ = load_checkpoint(tmp_path / "checkpoint").network


def test_questions_are_encoded_without_pytorch(tmp_path: Path) -> None:
    small_checkpoint().save(tmp_path / "checkpoint")
    program = (
        "import sys; from pathlib import Path\n"
        "from locigraph.training.checkpoint import load_checkpoint\n"
        "from locigraph.training.inference import CheckpointQueryEncoder\n"
        "from tests.fakes import FakeEncoder\n"
        "found = load_checkpoint(Path(sys.argv[1]))\n"
        "vector = CheckpointQueryEncoder(found, FakeEncoder(found.text_dim)).encode_query('Why?')\n"
        "print(len(vector), 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "checkpoint")]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert said.split() == [str(small_checkpoint().vector_dim), "False"]


def test_a_checkpoint_serves_its_text_encoder_in_either_number_format(folder: Path) -> None:
    assert load_checkpoint(folder, text_encoder="fake-bow@bfloat16").text_encoder == "fake-bow"
    with pytest.raises(CheckpointError, match="'other@bfloat16' is needed"):
        load_checkpoint(folder, text_encoder="other@bfloat16")


def test_a_checkpoint_keeps_the_wordings_it_has_seen(tmp_path: Path) -> None:
    assert load_checkpoint(_saved(small_checkpoint(), tmp_path)).seen is None  # of an earlier version, say
    found = load_checkpoint(_saved(replace(small_checkpoint(), seen=SeenTexts(["Who sold it?"])), tmp_path)).seen
    assert found is not None
    assert "who sold it" in found
    (tmp_path / "checkpoint" / "wordings.npy").write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"damaged.*wordings\.npy"):
        load_checkpoint(tmp_path / "checkpoint")


def _saved(checkpoint: Checkpoint, folder: Path) -> Path:
    checkpoint.save(folder / "checkpoint")
    return folder / "checkpoint"


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
        {"model": {"encoder": "hgtt"}},
        {"model": {"lexical_dim": 0}},
        {"model": {"excluded_relations": ["nxet"]}},
        {"model": []},
        {"text_dim": "wide"},
        {"text_dim": -1},
        {"details": []},
        {"version": "000000000000"},
    ],
)
def test_a_manifest_with_a_wrong_field_is_refused(folder: Path, values: dict[str, Any]) -> None:
    edit_manifest(folder, **values)
    with pytest.raises(CheckpointError):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["format", "schema", "model", "text_encoder", "text_dim", "version", "details"])
def test_a_manifest_without_a_field_is_refused(folder: Path, name: str) -> None:
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest[name]
    path.write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError):
        load_checkpoint(folder)


def test_weights_of_another_model_are_refused(folder: Path) -> None:
    edit_manifest(folder, model=asdict(replace(SMALL_MODEL, encoder="mixing")))
    with pytest.raises(CheckpointError, match="damaged or of another version"):
        load_checkpoint(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\udcff"])
def test_a_manifest_that_is_no_json_object_is_refused(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(CheckpointError, match=r"manifest.json: not "):
        load_checkpoint(folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["queries.lexical_weight", "nodes"])
def test_a_checkpoint_with_a_weight_that_is_no_number_is_refused(name: str, value: float, tmp_path: Path) -> None:
    checkpoint = small_checkpoint()
    first = next(key for key in checkpoint.weights if key.startswith(name))
    replace(checkpoint, weights={**checkpoint.weights, first: np.full_like(checkpoint.weights[first], value)}).save(
        tmp_path / "checkpoint"
    )
    with pytest.raises(CheckpointError, match=rf"weight '{name}.* holds NaN or infinity; train again"):
        load_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize("content", ["[" * 100_000, '{"format": 1' + "0" * 5_000, "\ufeff{}", "null"])
def test_a_manifest_of_any_kind_is_one_clear_error(content: str, tmp_path: Path) -> None:
    small_checkpoint().save(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "manifest.json").write_text(content)
    with pytest.raises(CheckpointError, match="damaged"):
        load_checkpoint(tmp_path / "checkpoint")


@pytest.mark.parametrize("width", [10**30, 0, -1, "many"])
def test_a_width_beyond_all_bounds_is_refused_before_memory_is_asked_for(width: object, tmp_path: Path) -> None:
    small_checkpoint().save(tmp_path / "checkpoint")
    manifest = tmp_path / "checkpoint" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"text_dim": width}))
    with pytest.raises(CheckpointError, match="damaged or of another version"):
        load_checkpoint(tmp_path / "checkpoint")


def test_a_checkpoint_whose_manifest_nobody_can_read_is_refused_by_a_command_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from locigraph.kg.store import Store
    from locigraph.scripts import cli

    Store(tmp_path / "graph.sqlite").close()
    small_checkpoint().save(tmp_path / "checkpoint")
    (tmp_path / "checkpoint" / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(SystemExit):
        cli.main(["refresh", "--store", f"{tmp_path}/graph.sqlite", "--checkpoint", f"{tmp_path}/checkpoint"])
    assert "manifest.json: not JSON (nested too deeply); the checkpoint is damaged" in capsys.readouterr().err

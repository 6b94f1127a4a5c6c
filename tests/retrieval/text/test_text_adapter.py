from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from locigraph.kg.files import sealed
from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.text.local_models import identified
from locigraph.retrieval.text.text_adapter import TextAdapter, add_adapter, read_adapter, save_adapter
from locigraph.retrieval.text.text_encoder import CachedTextEncoder, load_model
from tests.fakes_models import tiny_text_encoder

TEXTS = ["a canoe", "the boat was painted red", "x"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_text_encoder(tmp_path_factory.mktemp("models") / "tiny")


SEEN = {"identity": {"train": ["a"], "validation": ["b"]}}


def changed_adapter(base: str, folder: Path, *, seed: int = 0) -> tuple[TextAdapter, np.ndarray]:
    """An adapter with random weights, and what the model gives with it."""
    model = load_model(base, device="cpu")
    add_adapter(model, rank=2, dropout=0.0)
    torch.manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    vectors = model.encode(TEXTS, normalize_embeddings=True)
    adapter = save_adapter(model, folder, base=base, details=SEEN, seen=SeenTexts(["What was sold?"]))
    return adapter, np.asarray(vectors)


def encoded(base: str, cache: Path, adapter: Path | None = None) -> np.ndarray:
    return CachedTextEncoder(base, cache=cache, adapter=adapter, device="cpu").encode(TEXTS)


def test_only_the_adapter_can_be_trained(base: str) -> None:
    model = load_model(base, device="cpu")
    add_adapter(model, rank=2, dropout=0.0)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained
    assert all("lora_" in name for name in trained)


def test_a_saved_adapter_gives_the_vectors_it_gave_in_training(base: str, tmp_path: Path) -> None:
    _, expected = changed_adapter(base, tmp_path / "adapter")
    plain = encoded(base, tmp_path / "cache.sqlite")
    np.testing.assert_allclose(encoded(base, tmp_path / "cache.sqlite", tmp_path / "adapter"), expected, atol=1e-5)
    assert np.abs(plain - expected).max() > 0.01


def test_an_untrained_adapter_changes_nothing(base: str, tmp_path: Path) -> None:
    model = load_model(base, device="cpu")
    add_adapter(model, rank=2, dropout=0.0)
    save_adapter(model, tmp_path / "adapter", base=base, details=SEEN, seen=SeenTexts(["What was sold?"]))
    plain = encoded(base, tmp_path / "cache.sqlite")
    np.testing.assert_allclose(encoded(base, tmp_path / "cache.sqlite", tmp_path / "adapter"), plain, atol=1e-6)


def test_adapters_are_told_apart_by_their_content(base: str, tmp_path: Path) -> None:
    first, _ = changed_adapter(base, tmp_path / "first")
    again, _ = changed_adapter(base, tmp_path / "again")
    other, _ = changed_adapter(base, tmp_path / "other", seed=1)
    assert first.version == again.version != other.version
    encoder = CachedTextEncoder(base, cache=tmp_path / "c.sqlite", adapter=tmp_path / "first", dtype="bfloat16")
    assert encoder.model_id == f"{identified(base)}+{first.version}+windows@bfloat16"
    assert encoder.without_adapter().model_id == f"{identified(base)}+windows@bfloat16"
    assert encoder.without_adapter() is encoder.without_adapter().without_adapter()


def test_a_manifest_names_the_conversations_and_no_path_but_the_models(base: str, tmp_path: Path) -> None:
    adapter, _ = changed_adapter(base, tmp_path / "adapter")
    assert adapter.spaces == {"a", "b"}
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == base


def test_a_model_without_a_transformer_takes_no_adapter() -> None:
    static: Any = [torch.nn.Embedding(4, 2)]
    with pytest.raises(TextEncoderError, match=r"Embedding\) has no transformer"):
        add_adapter(static, rank=2, dropout=0.0)


def test_an_adapter_replaces_the_one_that_was_there(base: str, tmp_path: Path) -> None:
    changed_adapter(base, tmp_path / "adapter")
    second, _ = changed_adapter(base, tmp_path / "adapter", seed=1)
    assert read_adapter(tmp_path / "adapter", base=base).version == second.version
    assert sorted(path.name for path in tmp_path.iterdir()) == ["adapter"]


def test_what_is_no_adapter_is_refused_before_any_model_is_loaded(base: str, tmp_path: Path) -> None:
    with pytest.raises(TextEncoderError, match=r"absent: no adapter .*run locigraph adapt"):
        CachedTextEncoder(base, cache=tmp_path / "c.sqlite", adapter=tmp_path / "absent")
    changed_adapter(base, tmp_path / "adapter")
    with pytest.raises(TextEncoderError, match=r"belongs to text encoder .*tiny#\w{12}', not to 'other/model'"):
        CachedTextEncoder("other/model", cache=tmp_path / "c.sqlite", adapter=tmp_path / "adapter")
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    with pytest.raises(TextEncoderError, match=r"the manifest says .*damaged"):
        read_adapter(tmp_path / "adapter", base=base)
    for content in ("[]", "[" * 100_000, "{"):
        (tmp_path / "adapter" / "manifest.json").write_text(content)
        with pytest.raises(TextEncoderError, match=r"manifest.json: damaged"):
            read_adapter(tmp_path / "adapter", base=base)


def test_an_adapter_of_layers_that_the_model_lacks_is_refused(base: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    model = load_model(base, device="cpu")
    add_adapter(model, rank=2, dropout=0.0)
    folder = tmp_path / "adapter"
    save_adapter(model, folder, base=base, details=SEEN, seen=SeenTexts(["What was sold?"]))
    weights = load_file(folder / "adapter_model.safetensors")
    name = next(iter(sorted(weights)))
    weights[name.replace("layer.0", "layer.7")] = weights.pop(name)
    save_file(weights, folder / "adapter_model.safetensors")
    manifest = json.loads((folder / "manifest.json").read_text())
    try:
        read_adapter(folder, base=base)
    except TextEncoderError as error:  # the content has changed, so its version has
        manifest["version"] = str(error).split("version ")[1].split()[0]
    (folder / "manifest.json").write_text(sealed(manifest))
    with pytest.raises(TextEncoderError, match=r"has no layer .*layer\.7"):
        encoded(base, tmp_path / "c.sqlite", folder)


def test_an_adapter_that_does_not_say_what_it_has_seen_is_refused(base: str, tmp_path: Path) -> None:
    adapter, _ = changed_adapter(base, tmp_path / "adapter")
    assert adapter.spaces == {"a", "b"}
    manifest = tmp_path / "adapter" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"details": {}}))
    with pytest.raises(TextEncoderError, match="damaged"):
        read_adapter(tmp_path / "adapter", base=base)

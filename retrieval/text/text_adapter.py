"""Adapters: low-rank adaptations (LoRA) of a text encoder's weights, trained on questions.

An adapter is a folder with the files of ``peft`` and a manifest that names the text encoder it belongs to and the
conversations it was trained on.

Source:
    Hu et al. 2022, "LoRA: Low-Rank Adaptation of Large Language Models", arXiv:2106.09685.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locigraph.kg.embedded_text import TURN_BEFORE, WINDOWS
from locigraph.kg.files import check_seal, parsed_json, replaced_folder, sealed, whole_folder
from locigraph.kg.language.seen_texts import SeenTexts, seen_spaces
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.text.local_models import identified

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

_WEIGHTS, _CONFIG, _MANIFEST = "adapter_model.safetensors", "adapter_config.json", "manifest.json"
# Settings of peft that we choose; all others keep its defaults.
_CHOSEN = ("r", "lora_alpha", "lora_dropout", "target_modules")


@dataclass(frozen=True)
class TextAdapter:
    """An adapter on disk.

    Attributes:
        folder: Folder of the adapter.
        base: Name of the text encoder that it changes.
        version: Twelve hexadecimal digits of a hash of its weights and configuration.
        details: What the manifest records of the training: data, seed, commit, validation scores.
        seen: The texts of the turns and questions that it was trained or validated on; None if they are not recorded.
    """

    folder: Path
    base: str
    version: str
    details: Mapping[str, Any]
    seen: SeenTexts | None = None

    @property
    def spaces(self) -> frozenset[str]:
        """Conversations that the adapter was trained or validated on."""
        return seen_spaces(self.details)

    @property
    def reads_turn_before(self) -> bool:
        """Whether it was trained to read a turn together with the one before it; see ``kg.embedded_text``."""
        return bool(self.details["identity"].get("config", {}).get("turn_before", False))  # earlier ones do not say

    @property
    def model_id(self) -> str:
        """ID of the text encoder with this adapter, in float32; the store and checkpoints record it."""
        return f"{self.base}+{self.version}{TURN_BEFORE * self.reads_turn_before}{WINDOWS}"


def add_adapter(model: SentenceTransformer, *, rank: int, dropout: float, last_blocks: int | None = None) -> None:
    """Add a trainable adapter to the linear layers of a text encoder; everything else is frozen.

    Args:
        model: The text encoder; changed in place.
        rank: Rank of the low-rank updates.
        dropout: Dropout on the input of the updates during training.
        last_blocks: Number of transformer blocks, counted from the last, whose layers are changed; None for all, and
            for those outside the blocks.

    Raises:
        TextEncoderError: If the model has fewer blocks.
    """
    from peft import inject_adapter_in_model
    from torch import nn

    transformer = _transformer(model)
    model.requires_grad_(False)
    # The pooler's output is not what sentence-transformers pools.
    layers = [n for n, m in transformer.named_modules() if isinstance(m, nn.Linear) and "pooler" not in n]
    if last_blocks is not None:
        layers = _in_last_blocks(layers, last_blocks)
    settings = {"r": rank, "lora_alpha": 2 * rank, "lora_dropout": dropout, "target_modules": layers}
    inject_adapter_in_model(_lora(settings), transformer)


def _in_last_blocks(layers: list[str], count: int) -> list[str]:
    """Those of layers, by their paths, that lie in the last blocks; the first number of a path is that of its block."""
    blocks = {name: int(number[1]) for name in layers if (number := re.search(r"\.(\d+)\.", name))}
    found = max(blocks.values(), default=-1) + 1
    if not 1 <= count <= found:
        raise TextEncoderError(f"adapter.last_blocks is {count}; expected 1 to {found}, which the text encoder has")
    return [name for name, block in blocks.items() if block >= found - count]


def save_adapter(
    model: SentenceTransformer, folder: Path, *, base: str, details: Mapping[str, Any], seen: SeenTexts
) -> TextAdapter:
    """Write the adapter of a model to a folder; an adapter that is there is replaced.

    Args:
        model: Text encoder with the adapter that ``add_adapter`` gave it.
        folder: Folder to write.
        base: Name of the text encoder.
        details: What the manifest is to record of the training.
        seen: The texts of the turns and questions of the training.
    """
    from peft import get_peft_model_state_dict
    from safetensors.torch import save_file

    transformer = _transformer(model)
    used = transformer.peft_config["default"]
    # Only the settings that we choose, since versions of peft differ in the others. Sorted, because sets have no order.
    config = {name: getattr(used, name) for name in _CHOSEN} | {"target_modules": sorted(used.target_modules)}
    config |= {"peft_type": "LORA", "task_type": "FEATURE_EXTRACTION", "base_model_name_or_path": base}
    weights = {
        name: tensor.detach().float().cpu().contiguous()
        for name, tensor in get_peft_model_state_dict(transformer).items()
    }
    with replaced_folder(folder) as part:
        (part / _CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
        save_file(weights, part / _WEIGHTS)
        seen.save(part)
        manifest = {"base": identified(base), "version": _version(part), "details": dict(details)}
        (part / _MANIFEST).write_text(sealed(manifest))
    return read_adapter(folder, base=base)


def read_adapter(folder: Path, *, base: str) -> TextAdapter:
    """Read what the manifest says of an adapter, without loading the weights.

    Args:
        folder: Folder that ``save_adapter`` wrote.
        base: Name of the text encoder that the adapter is to be used with.

    Raises:
        TextEncoderError: If there is no adapter, it is damaged, or it belongs to another text encoder.
    """
    folder = whole_folder(folder)
    try:
        manifest = parsed_json((folder / _MANIFEST).read_text())
        if "text_encoder" in manifest and "base" not in manifest:
            raise TextEncoderError(
                f"{folder}: this is a checkpoint, not an adapter of a text encoder; see --checkpoint"
            )
        adapter = TextAdapter(
            folder, str(manifest["base"]), str(manifest["version"]), dict(manifest["details"]), SeenTexts.read(folder)
        )
        version = _version(folder)
        _ = adapter.spaces, adapter.reads_turn_before  # fail if the manifest lacks what they are read from
        check_seal(manifest)
    except OSError as error:
        raise TextEncoderError(
            f"{folder}: no adapter of a text encoder found there ({error.filename}: {error.strerror}); run locigraph "
            "adapt, or name its folder"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise TextEncoderError(f"{folder / _MANIFEST}: damaged ({error!r}); run locigraph adapt again") from error
    if version != adapter.version:
        raise TextEncoderError(
            f"{folder}: the weights are of version {version} but the manifest says {adapter.version}; "
            "the adapter is damaged; run locigraph adapt again"
        )
    known = identified(base)
    if adapter.base not in (known, base):  # that of a folder was its path alone in earlier versions
        if adapter.base.partition("#")[0] == base:
            how = "has changed since; run locigraph adapt again" if Path(base).is_dir() else "is not there"
            raise TextEncoderError(f"{folder}: the adapter belongs to the text encoder in {base!r}, which {how}")
        raise TextEncoderError(f"{folder}: the adapter belongs to text encoder {adapter.base!r}, not to {base!r}")
    return adapter


def apply_adapter(model: SentenceTransformer, adapter: TextAdapter) -> None:
    """Merge an adapter into the weights of its text encoder, in place, so that encoding takes no longer than without.

    Raises:
        TextEncoderError: If the adapter does not fit the model.
    """
    from peft import inject_adapter_in_model, set_peft_model_state_dict
    from safetensors.torch import load_file

    transformer = _transformer(model)
    try:
        settings = parsed_json((adapter.folder / _CONFIG).read_text())
        inject_adapter_in_model(_lora({name: settings[name] for name in _CHOSEN}), transformer)
        weights = load_file(adapter.folder / _WEIGHTS)
        if not are_finite(weights):
            raise ValueError("its weights hold NaN or infinity; train it again with lower learning rates")
        loaded: Any = set_peft_model_state_dict(transformer, weights)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise TextEncoderError(f"{adapter.folder}: the adapter does not fit {adapter.base!r} ({error})") from error
    if loaded.unexpected_keys:
        raise TextEncoderError(
            f"{adapter.folder}: {adapter.base!r} has no layer {loaded.unexpected_keys[0]!r}, which the adapter changes"
        )
    merge_adapter(transformer)
    transformer.requires_grad_(False)


def are_finite(weights: Mapping[str, Tensor]) -> bool:
    """Whether no weight is NaN or infinite; with one, every score would be NaN."""
    return all(bool(each.isfinite().all()) for each in weights.values())


def merge_adapter(transformer: Any) -> None:
    """Merge the low-rank updates of a transformer into its weights, in place, and leave plain layers."""
    from peft.tuners.lora import LoraLayer

    for name, layer in list(transformer.named_modules()):
        if isinstance(layer, LoraLayer):
            layer.merge()
            parent, _, own = name.rpartition(".")
            setattr(transformer.get_submodule(parent), own, layer.base_layer)
    if hasattr(transformer, "peft_config"):
        del transformer.peft_config


def start_from(model: SentenceTransformer, adapter: TextAdapter) -> None:
    """Give the low-rank updates of a text encoder, made by ``add_adapter``, the values of an adapter of smaller rank.

    What they have beyond its rank stays without effect until it is trained.

    Raises:
        TextEncoderError: If the adapter has a larger rank, or other layers.
    """
    from peft import get_peft_model_state_dict, set_peft_model_state_dict
    from safetensors.torch import load_file

    transformer = _transformer(model)
    own: dict[str, Any] = get_peft_model_state_dict(transformer)
    given = load_file(adapter.folder / _WEIGHTS)
    if given.keys() - own.keys():
        raise TextEncoderError(f"{adapter.folder}: the adapter changes other layers than {adapter.base!r} has")
    started = {}
    for name, value in own.items():
        if name not in given:  # of a block that the adapter leaves as it was
            started[name] = value.new_zeros(value.shape) if "lora_B" in name else value
            continue
        part, whole = given[name], value.clone()
        rows, columns = part.shape
        if rows > whole.shape[0] or columns > whole.shape[1]:
            raise TextEncoderError(
                f"{adapter.folder}: the adapter has a larger rank than the updates that start from it"
            )
        if "lora_B" in name:
            whole.zero_()  # as it is at first, wherever it came from
        whole[:rows, :columns] = part
        started[name] = whole
    set_peft_model_state_dict(transformer, started)


def _lora(settings: Mapping[str, Any]) -> Any:
    from peft import LoraConfig, TaskType

    return LoraConfig(task_type=TaskType.FEATURE_EXTRACTION, **settings)


def _transformer(model: SentenceTransformer) -> Any:
    try:
        return model[0].auto_model
    except AttributeError as error:
        kind = type(model[0]).__name__
        raise TextEncoderError(
            f"the text encoder ({kind}) has no transformer that an adapter could change; use it without one "
            "(--encoder.adapter null)"
        ) from error


def _version(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in (_CONFIG, _WEIGHTS):
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:12]

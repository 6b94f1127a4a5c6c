"""Checkpoints: safetensors weights and a JSON manifest in a folder. Never pickle."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from locigraph.gnn.encoders import GRAPH_ENCODERS, EncoderConfig
from locigraph.gnn.query import QueryEncoder
from locigraph.gnn.sketch import ContextHash, LexicalSketch
from locigraph.kg.errors import LocigraphError
from locigraph.kg.files import parsed_json, replaced_folder, whole_folder
from locigraph.kg.language.wordings import Wordings
from locigraph.kg.schema import schema_hash
from locigraph.retrieval.text.text_encoder import is_same_model
from locigraph.training.config import MAX_WIDTH, ModelConfig
from locigraph.training.errors import CheckpointError

_FORMAT = 6
_WEIGHTS, _MANIFEST = "model.safetensors", "manifest.json"


class GraphRetrieval(nn.Module):
    """What is trained and what a checkpoint holds: a graph encoder and a query encoder.

    Args:
        model: The graph encoder and its widths.
        text_dim: Width of the text embeddings.

    Raises:
        UnknownNameError: If the graph encoder is not in its table.
    """

    def __init__(self, model: ModelConfig, *, text_dim: int) -> None:
        super().__init__()
        config = EncoderConfig(
            text_dim=text_dim,
            lexical_dim=model.lexical_dim,
            context_dim=model.speaker_dim + model.date_dim,
            attention_dim=model.attention_dim,
            excluded_relations=tuple(model.excluded_relations),
        )
        self.nodes = GRAPH_ENCODERS[model.encoder].make(config)
        self.queries = QueryEncoder(speaker_dim=model.speaker_dim)


def features_of(model: ModelConfig) -> tuple[LexicalSketch, ContextHash]:
    """What makes the lexical features, and those of speakers and dates, that a model reads."""
    return LexicalSketch(model.lexical_dim), ContextHash(model.speaker_dim, model.date_dim)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A trained model with all that is needed to use it.

    Attributes:
        network: The model with its weights, in evaluation mode.
        model: The graph encoder and its widths.
        text_encoder: ID of the text encoder whose vectors it takes.
        text_dim: Width of those vectors.
        details: What else the manifest records: identity of the training, seed, commit, validation scores.
        seen: Wordings of the turns and questions that it was trained or validated on; None where it does not say.
    """

    network: GraphRetrieval
    model: ModelConfig
    text_encoder: str
    text_dim: int
    details: dict[str, Any]
    seen: Wordings | None = None

    @property
    def spaces(self) -> frozenset[str]:
        """Spaces that it was trained or validated on."""
        identity = self.details["identity"]
        return frozenset([*identity["train"], *identity["validation"]])

    @property
    def version(self) -> str:
        """Twelve hexadecimal digits of the weights and of all that using them needs; names the collection."""
        digest = hashlib.sha256(json.dumps(self._identity(), sort_keys=True).encode())
        for name, tensor in sorted(self.network.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:12]

    def _identity(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "schema": schema_hash(),
            "text_encoder": self.text_encoder,
            "text_dim": self.text_dim,
            "model": asdict(self.model),
        }

    def save(self, folder: Path) -> None:
        """Write the folder; one that is there is replaced."""
        tensors = {name: t.detach().cpu().contiguous() for name, t in self.network.state_dict().items()}
        manifest = self._identity() | {"version": self.version, "details": self.details}
        with replaced_folder(folder) as part:
            save_file(tensors, part / _WEIGHTS)
            if self.seen is not None:
                self.seen.save(part)
            (part / _MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")


def load_checkpoint(folder: Path, *, text_encoder: str | None = None) -> Checkpoint:
    """Read a checkpoint.

    Args:
        folder: Made by ``Checkpoint.save``.
        text_encoder: ID of the text encoder it will be used with, in whatever number format; None skips that check.

    Raises:
        CheckpointError: Says which file or field is wrong.
    """
    folder = whole_folder(folder)
    try:
        manifest = parsed_json((folder / _MANIFEST).read_text())
    except OSError as error:
        raise CheckpointError(
            f"{folder}: no checkpoint there ({_MANIFEST}: {error.strerror}); run locigraph train, or name its folder"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{folder / _MANIFEST}: not JSON ({error}); the checkpoint is damaged") from error
    if not isinstance(manifest, dict):
        raise CheckpointError(f"{folder / _MANIFEST}: not a JSON object; the checkpoint is damaged")
    if "base" in manifest and "model" not in manifest:
        raise CheckpointError(f"{folder}: holds an adapter of a text encoder, not a checkpoint; see --encoder.adapter")
    expected: dict[str, Any] = {"format": _FORMAT, "schema": schema_hash()}
    if text_encoder is not None:
        expected["text_encoder"] = text_encoder
    for name, value in expected.items():
        held = manifest.get(name)
        if held != value and not (name == "text_encoder" and is_same_model(str(held), value)):
            raise CheckpointError(
                f"{folder / _MANIFEST}: {name} is {held!r} but {value!r} is needed; train again, or use "
                "the matching version or text encoder"
            )
    try:
        model = ModelConfig(**manifest["model"])
        tensors = load_file(folder / _WEIGHTS)
        if not 0 < manifest["text_dim"] <= MAX_WIDTH:
            raise ValueError(f"text_dim is {manifest['text_dim']}; expected 1 to {MAX_WIDTH}")
        network = GraphRetrieval(model, text_dim=manifest["text_dim"])
        network.load_state_dict(tensors)
        details = manifest.get("details", {})
        checkpoint = Checkpoint(
            network.eval(), model, str(manifest["text_encoder"]), manifest["text_dim"], details, Wordings.read(folder)
        )
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, LocigraphError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: damaged or of another version ({str(error)[:200]}); train again") from error
    for name, weights in tensors.items():
        if not weights.isfinite().all():  # every score would be NaN, and no order of turns means anything
            raise CheckpointError(f"{folder / _WEIGHTS}: weight {name!r} holds NaN or infinity; train again")
    try:
        len(checkpoint.spaces)
    except (KeyError, TypeError) as error:  # of what nobody knows what it has seen, nothing can be measured
        raise CheckpointError(
            f"{folder / _MANIFEST}: does not say what it was trained and validated on ({error!r}); train again"
        ) from error
    if checkpoint.version != manifest.get("version"):
        raise CheckpointError(
            f"{folder}: weights do not match the manifest (version {checkpoint.version} against "
            f"{manifest.get('version')}); the checkpoint is damaged"
        )
    return checkpoint

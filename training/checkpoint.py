"""Checkpoints: safetensors weights and a JSON manifest in a folder. Never pickle.

Only the network needs PyTorch; reading a checkpoint and encoding questions, to search stored vectors, do not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from locigraph.gnn.sketch import HashedFeatures
from locigraph.kg.errors import LocigraphError, abridged
from locigraph.kg.files import check_seal, parsed_json, replaced_folder, sealed, whole_folder
from locigraph.kg.language.seen_texts import SeenTexts, seen_spaces
from locigraph.kg.schema import schema_hash
from locigraph.retrieval.text.text_encoder import is_same_model
from locigraph.training.config import MAX_WIDTH, ModelConfig
from locigraph.training.errors import CheckpointError

if TYPE_CHECKING:
    from locigraph.gnn.encoders import GraphRetrieval

_FORMAT = 6
_WEIGHTS, _MANIFEST = "model.safetensors", "manifest.json"


def hashed_features(model: ModelConfig) -> HashedFeatures:
    """What makes the features of words, speakers and dates that a model reads."""
    return HashedFeatures(model.lexical_dim, model.speaker_dim, model.date_dim)


def new_network(model: ModelConfig, text_dim: int) -> GraphRetrieval:
    """An untrained network for text embeddings of a width; raises UnknownNameError if its encoder is not known."""
    from locigraph.gnn.encoders import EncoderConfig, GraphRetrieval

    relations = tuple(model.excluded_relations)
    return GraphRetrieval(
        model.encoder, EncoderConfig(text_dim, hashed_features(model), model.attention_dim, relations)
    )


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A trained model with everything that is needed to use it.

    Attributes:
        weights: The weights by name; see ``GraphRetrieval.weights``.
        model: The graph encoder and its widths.
        text_encoder: ID of the text encoder whose embeddings the model reads.
        text_dim: Width of those embeddings.
        details: Other entries of the manifest: identity of the training, seed, commit, validation scores.
        seen: The texts of the turns and questions that it was trained or validated on; None if they are not recorded.
    """

    weights: Mapping[str, NDArray[Any]]
    model: ModelConfig
    text_encoder: str
    text_dim: int
    details: dict[str, Any]
    seen: SeenTexts | None = None

    @property
    def spaces(self) -> frozenset[str]:
        """Spaces that it was trained or validated on."""
        return seen_spaces(self.details)

    @cached_property
    def network(self) -> GraphRetrieval:
        """The model with its weights, in evaluation mode.

        Raises:
            CheckpointError: If the weights do not fit the model.
        """
        import torch

        try:
            network = new_network(self.model, self.text_dim)
            network.load_state_dict({name: torch.from_numpy(array) for name, array in self.weights.items()})
            return network.eval()
        except (RuntimeError, LocigraphError) as error:
            raise CheckpointError(
                f"checkpoint {self.version}: damaged or of another version ({abridged(error)}); train again"
            ) from error

    @property
    def vector_dim(self) -> int:
        """Width of the vectors that the model makes of turns and questions."""
        return len(self.query_scale)

    @cached_property
    def query_scale(self) -> NDArray[np.float32]:
        """Factors that the query encoder multiplies a question's features by, float32 [vector_dim]."""
        lexical, context = self.weights["queries.lexical_weight"], self.weights["queries.context_weight"]
        weights = np.concatenate([[1], lexical.reshape(1), context.reshape(2), [1]], dtype=np.float32)
        return np.repeat(weights, hashed_features(self.model).widths(self.text_dim))

    @cached_property
    def version(self) -> str:
        """Hash of the weights and of all that is needed to use them, 12 hexadecimal digits; collections record it."""
        digest = hashlib.sha256(json.dumps(self._identity(), sort_keys=True).encode())
        for name, array in sorted(self.weights.items()):
            digest.update(name.encode())
            digest.update(array.tobytes())
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
        """Write the checkpoint to a folder; an existing folder is replaced."""
        manifest = self._identity() | {"version": self.version, "details": self.details}
        with replaced_folder(folder) as part:
            save_file(dict(self.weights), part / _WEIGHTS)
            if self.seen is not None:
                self.seen.save(part)
            (part / _MANIFEST).write_text(sealed(manifest))


def load_checkpoint(folder: Path, *, text_encoder: str | None = None) -> Checkpoint:
    """Read a checkpoint.

    Args:
        folder: Folder that ``Checkpoint.save`` wrote.
        text_encoder: ID of the text encoder that will be used, in any number format; None skips this check.

    Raises:
        CheckpointError: If the checkpoint is missing, damaged or does not fit; the message names the file or field.
    """
    folder = whole_folder(folder)
    try:
        manifest = parsed_json((folder / _MANIFEST).read_text())
    except OSError as error:
        raise CheckpointError(
            f"{folder}: no checkpoint found there ({_MANIFEST}: {error.strerror}); run locigraph train, or name "
            "its folder"
        ) from error
    except ValueError as error:
        raise CheckpointError(f"{folder / _MANIFEST}: not JSON ({error}); the checkpoint is damaged") from error
    if not isinstance(manifest, dict):
        raise CheckpointError(f"{folder / _MANIFEST}: not a JSON object; the checkpoint is damaged")
    if "base" in manifest and "model" not in manifest:
        raise CheckpointError(
            f"{folder}: this is an adapter of a text encoder, not a checkpoint; see --encoder.adapter"
        )
    expected: dict[str, Any] = {"format": _FORMAT, "schema": schema_hash()}
    if text_encoder is not None:
        expected["text_encoder"] = text_encoder
    for name, value in expected.items():
        recorded = manifest.get(name)
        if recorded != value and not (name == "text_encoder" and is_same_model(str(recorded), value)):
            raise CheckpointError(
                f"{folder / _MANIFEST}: {name} is {recorded!r} but {value!r} is needed; train again, or use "
                "the matching version or text encoder"
            )
    try:
        model = ModelConfig(**manifest["model"])
        weights = load_file(folder / _WEIGHTS)
        if not 0 < manifest["text_dim"] <= MAX_WIDTH:
            raise ValueError(f"text_dim is {manifest['text_dim']}; expected 1 to {MAX_WIDTH}")
        details = manifest.get("details", {})
        checkpoint = Checkpoint(
            weights, model, str(manifest["text_encoder"]), manifest["text_dim"], details, SeenTexts.read(folder)
        )
        checkpoint.query_scale  # noqa: B018  (raises where its weights are missing)
    except (KeyError, TypeError, ValueError, RuntimeError, OSError, LocigraphError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: damaged or of another version ({abridged(error)}); train again") from error
    for name, array in weights.items():
        if not np.isfinite(array).all():  # every score would be NaN, and every ranking meaningless
            raise CheckpointError(f"{folder / _WEIGHTS}: weight {name!r} holds NaN or infinity; train again")
    try:
        len(checkpoint.spaces)
    except (KeyError, TypeError) as error:  # a model cannot be evaluated if it is unknown what it has seen
        raise CheckpointError(
            f"{folder / _MANIFEST}: does not say what it was trained and validated on ({error!r}); train again"
        ) from error
    if checkpoint.version != manifest.get("version"):
        raise CheckpointError(
            f"{folder}: damaged or of another version: weights do not match the manifest (version {checkpoint.version} "
            f"against {manifest.get('version')}); train again"
        )
    try:
        check_seal(manifest)  # last, since the checks above give more specific errors
    except ValueError as error:
        raise CheckpointError(f"{folder / _MANIFEST}: damaged ({error}); train again") from error
    return checkpoint

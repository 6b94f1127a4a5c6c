"""Defaults of text encoder, adapter and checkpoint, so that users need not name them.

A store remembers those that it was used with; until then the shipped ones are used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import locigraph
from locigraph.assembly.settings import DEFAULT, DEFAULT_DTYPE, EncoderSettings
from locigraph.kg.embedded_text import is_adapted
from locigraph.kg.errors import LocigraphError
from locigraph.kg.files import parsed_json, whole_folder
from locigraph.kg.store import Store
from locigraph.retrieval.text.text_encoder import DEFAULT_MODEL, CachedTextEncoder
from locigraph.training.errors import CheckpointError

if TYPE_CHECKING:
    from locigraph.retrieval.index.milvus import MilvusIndex
    from locigraph.training.live_embeddings import LiveEmbeddings

# In the last place of the path, beside the package, where a checkout has no symbolic links.
_CHECKPOINTS = next(
    (folder for each in locigraph.__path__ if (folder := Path(each) / "checkpoints").is_dir()), Path("checkpoints")
)


@dataclass(frozen=True)
class ShippedPair:
    """What comes with the package for one text encoder.

    Attributes:
        adapter: Folder of the adapter.
        checkpoint: Folder of the graph network's checkpoint, which was trained on embeddings of that adapter.
        dtype: Number format of the encoder in which they were made.
    """

    adapter: Path
    checkpoint: Path
    dtype: Literal["float32", "bfloat16"] = DEFAULT_DTYPE


#: The pair of the default text encoder.
SHIPPED = ShippedPair(_CHECKPOINTS / "text", _CHECKPOINTS / "default")
#: Pairs of text encoders, by the encoder's name.
SHIPPED_PAIRS: Mapping[str, ShippedPair] = {
    DEFAULT_MODEL: SHIPPED,
    "sentence-transformers/all-mpnet-base-v2": ShippedPair(
        _CHECKPOINTS / "mpnet" / "text", _CHECKPOINTS / "mpnet" / "default", "bfloat16"
    ),
}
#: Folder of the reranker that comes with the package.
SHIPPED_RERANKER = _CHECKPOINTS / "reranker"
_MANIFEST = "manifest.json"
_SHIPPED = "shipped"  # recorded in place of a path, since a store may outlive this installation
_ENCODER, _CHECKPOINT = "encoder", "checkpoint"


def remembered_checkpoint(store: Store) -> str | None:
    """Folder of the checkpoint that the store remembers, ``shipped`` or None."""
    return store.setting(_CHECKPOINT)


def encoder_settings(given: EncoderSettings, store: Store, checkpoint: str | None = DEFAULT) -> EncoderSettings:
    """The text encoder to use: as given, else as the store remembers it, else the shipped one.

    Args:
        given: Settings of the user; an adapter ``default``, and a model or number format of None, are filled in.
        store: The graph.
        checkpoint: The checkpoint that the user named; if it was trained without an adapter, none is filled in.

    Raises:
        LocigraphError: If the model is not the one that the store was built with: their vectors are not comparable.
        CheckpointError: If ``checkpoint`` names a folder without one.
    """
    held = json.loads(store.setting(_ENCODER) or "{}")
    given = replace(given, model=given.model and located(given.model))
    if given.model is not None and "model" in held and given.model != located(held["model"]):
        raise LocigraphError(
            f"the store was built with text encoder {held['model']!r}, not {given.model!r}; leave out "
            "--encoder.model, or build another --store with it"
        )
    model, dtype = model_and_dtype(
        replace(given, model=given.model or held.get("model"), dtype=given.dtype or held.get("dtype"))
    )
    named = None if checkpoint in (None, DEFAULT) else checkpoint_folder(checkpoint, store, model)
    found = replace(given, model=model, dtype=dtype)
    if given.adapter != DEFAULT:
        return found
    if named is not None and not is_adapted(_text_encoder_of(named)):
        adapter = None
    elif "adapter" in held and held["model"] == found.model:
        adapter = shipped_adapter(model) if held["adapter"] == _SHIPPED else held["adapter"]
    else:
        adapter = shipped_adapter(model)
        if adapter is not None and not Path(adapter).is_dir():
            adapter = None
    return replace(found, adapter=adapter)


def shipped_adapter(model: str) -> str | None:
    """Folder of the adapter that comes with the package for a text encoder; None if there is none."""
    pair = SHIPPED_PAIRS.get(model)
    return None if pair is None else str(pair.adapter)


def _text_encoder_of(checkpoint: Path) -> str:
    """ID of the text encoder in a checkpoint's manifest; "+" if it cannot be read, since loading it will say why."""
    try:
        return str(parsed_json((whole_folder(checkpoint) / _MANIFEST).read_text())["text_encoder"])
    except (OSError, ValueError, KeyError, TypeError):
        return "+"


def model_and_dtype(given: EncoderSettings) -> tuple[str, Literal["float32", "bfloat16"]]:
    """Model and number format of a text encoder, with the defaults in place of None."""
    model = located(given.model or DEFAULT_MODEL)
    return model, given.dtype or _pair(model).dtype


def located(model: str) -> str:
    """A text encoder's name; a folder by its absolute path, since elsewhere a relative one may mean another model."""
    folder = Path(model).expanduser()
    return str(folder.absolute()) if model not in SHIPPED_PAIRS and folder.is_dir() else model


def _pair(model: str) -> ShippedPair:
    """The pair of a text encoder; the default one's where there is none, whose files then say that they do not fit."""
    return SHIPPED_PAIRS.get(model, SHIPPED)


def remember_encoder(store: Store, used: EncoderSettings, encoder: CachedTextEncoder) -> None:
    """Record in a store the text encoder that it is built with.

    Raises:
        TextEncoderError: If it is the store's first and cannot be loaded, so that no store records a missing one.
    """
    if store.setting(_ENCODER) is None:
        encoder.without_adapter().load()
    model, dtype = model_and_dtype(used)
    adapter = None if used.adapter is None else _lasting(used.adapter, _pair(model).adapter)
    _remember(store, _ENCODER, json.dumps({"model": model, "dtype": dtype, "adapter": adapter}))


def forget_missing_adapter(store: Store) -> str | None:
    """Let an imported store do without the adapter of another machine that it remembers; returns its folder."""
    held = json.loads(store.setting(_ENCODER) or "{}")
    adapter: str | None = held.get("adapter")
    if adapter in (None, _SHIPPED) or Path(adapter).is_dir():
        return None
    _remember(store, _ENCODER, json.dumps(held | {"adapter": None}))
    return adapter


def remember_indexed(store: Store, used: EncoderSettings) -> None:
    """Record in a store the model and number format of the text encoder whose vectors its index holds.

    An adapter that is recorded for the same model is kept; otherwise none is recorded.
    """
    model, dtype = model_and_dtype(used)
    held = json.loads(store.setting(_ENCODER) or "{}")
    kept = held if held.get("model") == model else {}
    _remember(store, _ENCODER, json.dumps(kept | {"model": model, "dtype": dtype}))


def checkpoint_folder(given: str, store: Store, model: str) -> Path:
    """Folder of the checkpoint; ``default`` is the one that the store remembers, or else the shipped one.

    Args:
        given: A folder, ``default`` or ``shipped``.
        store: The graph.
        model: Name of the text encoder in use, by which the shipped one is chosen.

    Raises:
        CheckpointError: If another one is named and its folder holds none. This is checked before anything heavy is
            imported; ``load_checkpoint`` checks the rest.
    """
    if given == DEFAULT:
        name = remembered_checkpoint(store) or _SHIPPED
    elif given != _SHIPPED and not (whole_folder(Path(given)) / _MANIFEST).exists():
        raise CheckpointError(f"{given}: no checkpoint found there; run locigraph train, or name its folder")
    else:
        name = given
    return _pair(model).checkpoint if name == _SHIPPED else Path(name)


def remember_checkpoint(store: Store, used: Path, model: str) -> None:
    """Record in a store the checkpoint whose embeddings are in use."""
    _remember(store, _CHECKPOINT, _lasting(str(used), _pair(model).checkpoint))


def opened_embeddings(
    store: Store, index: MilvusIndex, encoder: CachedTextEncoder, checkpoint: str | None, *, device: str = "cpu"
) -> tuple[LiveEmbeddings, str] | tuple[None, str]:
    """The graph embeddings of a store, which are kept up to date with its graph; or None, and why there are none.

    Raises:
        CheckpointError: If a checkpoint was named and cannot be used.
    """
    if checkpoint is None:
        return None, "no checkpoint is named"

    from locigraph.training.checkpoint import load_checkpoint
    from locigraph.training.live_embeddings import LiveEmbeddings

    try:
        loaded = load_checkpoint(
            checkpoint_folder(checkpoint, store, encoder.model_name), text_encoder=encoder.model_id
        )
    except CheckpointError as error:
        if checkpoint != DEFAULT:
            raise
        return None, str(error)
    return LiveEmbeddings(store, index, loaded, encoder, device=device), ""


def _lasting(folder: str, shipped: Path) -> str:
    path = Path(folder).absolute()
    return _SHIPPED if path.resolve() == shipped.resolve() else str(path)


def _remember(store: Store, name: str, value: str) -> None:
    if store.setting(name) != value:
        store.remember({name: value})

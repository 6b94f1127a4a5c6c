"""Identity of text encoders that are folders of this machine, whose weights may change under the same name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

# Files of a model that say what it computes; others beside them, such as notes and scores, do not.
_TELLING = (
    "config.json", "config_sentence_transformers.json", "sentence_*_config.json", "modules.json", "tokenizer*.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model", "*.safetensors",
    "*.safetensors.index.json", "pytorch_model*",
)  # fmt: skip
_AT_ONCE = 2**24


def identified(model: str) -> str:
    """Name of a text encoder, with a hash of its files if it is the absolute path of a folder.

    Without the hash, a model that was trained further in the same folder would be taken for the earlier one.
    """
    folder = Path(model).expanduser()
    if not folder.is_absolute() or not folder.is_dir():
        return model
    return f"{model}#{_digest(folder, tuple(_states(folder)))}"


def _states(folder: Path) -> Iterator[tuple[Path, int, int]]:
    """The files of a model and of its modules, each with its size and the time when it was written."""
    parts = {folder}
    with suppress(OSError, ValueError, TypeError, KeyError):
        parts |= {folder / str(module["path"]) for module in json.loads((folder / "modules.json").read_text())}
    for part in sorted(parts):
        # A module may have modules of its own, such as one for questions and one for texts.
        find = part.glob if part == folder else part.rglob
        for file in sorted({file for pattern in _TELLING for file in find(pattern) if file.is_file()}):
            yield file, file.stat().st_size, file.stat().st_mtime_ns


@lru_cache(maxsize=64)
def _digest(folder: Path, files: tuple[tuple[Path, int, int], ...]) -> str:
    """A hash of the files' names and contents."""
    digest = hashlib.sha256()
    for path, size, _ in files:
        digest.update(f"{path.relative_to(folder)}\0{size}\0".encode())
        with path.open("rb") as file:
            while part := file.read(_AT_ONCE):
                digest.update(part)
    return digest.hexdigest()[:12]

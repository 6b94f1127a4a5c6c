"""Identity of text encoders that are folders of this machine, whose weights may change under the same name."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

#: Ends of the names of files that say what a model computes: weights, configuration, vocabulary.
_TELLING = (".safetensors", ".bin", ".pt", ".json", ".txt", ".model")
_AT_ONCE = 2**24


def identified(model: str) -> str:
    """Name of a text encoder, with a hash of its files if it is a folder of this machine.

    Without the hash, a model that was trained further in the same folder would be taken for the earlier one.
    """
    folder = Path(model).expanduser().absolute()
    if not folder.is_dir():
        return model
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name.endswith(_TELLING))
    states = [(path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return f"{model}#{_digest(folder, tuple(zip(files, states, strict=True)))}"


@lru_cache(maxsize=64)
def _digest(folder: Path, files: tuple[tuple[Path, tuple[int, int]], ...]) -> str:
    """A hash of the files' names and contents; ``files`` are given with what changes when they are written again."""
    digest = hashlib.sha256()
    for path, (size, _) in files:
        digest.update(f"{path.relative_to(folder)}\0{size}\0".encode())
        with path.open("rb") as file:
            while part := file.read(_AT_ONCE):
                digest.update(part)
    return digest.hexdigest()[:12]

"""Provenance that is recorded with results: commit, versions, settings."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

_VERSIONED = (
    "locigraph", "torch", "torch-geometric", "lightning", "pymilvus", "milvus-lite", "sentence-transformers", "numpy",
)  # fmt: skip


def manifest(seed: int, **settings: Any) -> dict[str, Any]:
    """The entries of a manifest that say how its numbers were computed."""
    return {
        "commit": source_commit(),
        "seed": seed,
        "versions": {name: _version(name) for name in _VERSIONED},
        "settings": settings,
    }


def _version(package: str) -> str | None:
    """Installed version of a package; None if it is not installed, as on a machine that was lent for its GPU."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def source_commit() -> str:
    """Commit of the source tree, with '+' if it has uncommitted changes; 'unknown' outside a checkout.

    Long commands call this when they start, since the tree may change while they run; the result is cached.
    """
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # fails if this is installed inside another checkout
        return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if git("status", "--porcelain").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"

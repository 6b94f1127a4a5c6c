"""What is recorded beside results: commit, versions, settings."""

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
    """What a manifest says about how its numbers came to be."""
    return {
        "commit": source_commit(),
        "seed": seed,
        "versions": {name: metadata.version(name) for name in _VERSIONED},
        "settings": settings,
    }


@cache
def source_commit() -> str:
    """Commit of the source tree, with '+' when it has changes; 'unknown' outside a checkout.

    Long commands ask for it when they start, since the tree may move on while they run.
    """
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=True).stdout

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)  # else it is installed within a checkout of others
        return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if git("status", "--porcelain").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"

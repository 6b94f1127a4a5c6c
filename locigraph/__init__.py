"""Learnt conversational memory: a knowledge graph of dialogue, retrieved by one vector search over learnt embeddings.

The names of ``__all__`` are the public API: ``Memory``, ``AsyncMemory`` (the same for asyncio), the settings that both
are opened with, what a recall returns, and the errors. Everything else may change between versions (docs/api.md).

The packages beside this file are links to the folders at the top of the repository, so that everything is installed
under the one name ``locigraph``: an installed ``kg`` or ``scripts`` would collide with folders of the user's own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locigraph.consolidation.errors import LanguageModelError
    from locigraph.kg.errors import LocigraphError, StoreError, UnknownSpaceError
    from locigraph.retrieval.protocols import Hit
    from locigraph.scripts.assembly.settings import EncoderSettings, IndexSettings, LLMSettings
    from locigraph.scripts.memory import AsyncMemory, Memory, Recalled

    __version__: str

_HOMES = {
    "AsyncMemory": "scripts.memory",
    "EncoderSettings": "scripts.assembly.settings",
    "Hit": "retrieval.protocols",
    "IndexSettings": "scripts.assembly.settings",
    "LLMSettings": "scripts.assembly.settings",
    "LanguageModelError": "consolidation.errors",
    "LocigraphError": "kg.errors",
    "Memory": "scripts.memory",
    "Recalled": "scripts.memory",
    "StoreError": "kg.errors",
    "UnknownSpaceError": "kg.errors",
}
__all__ = [
    "AsyncMemory",
    "EncoderSettings",
    "Hit",
    "IndexSettings",
    "LLMSettings",
    "LanguageModelError",
    "LocigraphError",
    "Memory",
    "Recalled",
    "StoreError",
    "UnknownSpaceError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("locigraph")
    if name not in _HOMES:
        raise AttributeError(f"module 'locigraph' has no attribute {name!r}")
    # Late, so that importing a part does not import the whole.
    return getattr(import_module(f"locigraph.{_HOMES[name]}"), name)

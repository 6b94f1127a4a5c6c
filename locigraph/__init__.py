"""Learnt conversational memory: a knowledge graph of dialogue, retrieved by one vector search over learnt embeddings.

``Memory`` is the public API, ``AsyncMemory`` the same for asyncio, and the settings are what both are opened with;
everything else may change between versions.

The packages beside this file are links to the folders at the top of the repository, so that everything is installed
under the one name ``locigraph``: an installed ``kg`` or ``scripts`` would collide with folders of the user's own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locigraph.scripts.assembly.settings import EncoderSettings, IndexSettings, LLMSettings
    from locigraph.scripts.memory import AsyncMemory, Memory

_HOMES = {
    "AsyncMemory": "memory",
    "EncoderSettings": "assembly.settings",
    "IndexSettings": "assembly.settings",
    "LLMSettings": "assembly.settings",
    "Memory": "memory",
}
__all__ = ["AsyncMemory", "EncoderSettings", "IndexSettings", "LLMSettings", "Memory"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'locigraph' has no attribute {name!r}")
    # Late, so that importing a part does not import the whole.
    return getattr(import_module(f"locigraph.scripts.{_HOMES[name]}"), name)

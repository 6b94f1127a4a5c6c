"""Learnt conversational memory: a knowledge graph of dialogue, retrieved by one vector search over learnt embeddings.

``Memory`` is the public API, ``AsyncMemory`` the same for asyncio; everything else may change between versions.

The packages beside this file are links to the folders at the top of the repository, so that everything is installed
under the one name ``locigraph``: an installed ``kg`` or ``scripts`` would collide with folders of the user's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locigraph.scripts.async_memory import AsyncMemory
    from locigraph.scripts.memory import Memory

__all__ = ["AsyncMemory", "Memory"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'locigraph' has no attribute {name!r}")
    from locigraph.scripts import async_memory  # late, so that importing a part does not import the whole

    return getattr(async_memory, name)

"""Learnt conversational memory: a knowledge graph of dialogue, retrieved by one vector search over learnt embeddings.

The names in ``__all__`` are the public API: ``Memory``, ``AsyncMemory`` (the same for asyncio), the settings with which
either is opened, the result types of a recall, and the errors. Everything else may change between versions
(docs/api.md).

``memory``, ``serving``, ``assembly`` and ``research`` lie here; the other packages are symbolic links to the top-level
folders of the repository, so that everything is installed as ``locigraph.*``: top-level packages named ``kg`` or
``scripts`` could collide with the user's own. Where a checkout has no symbolic links, the top-level folders themselves
are searched.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from locigraph.assembly.settings import EncoderSettings as EncoderSettings
    from locigraph.assembly.settings import IndexSettings as IndexSettings
    from locigraph.assembly.settings import LLMSettings as LLMSettings
    from locigraph.consolidation.errors import LanguageModelError as LanguageModelError
    from locigraph.kg.errors import LocigraphError as LocigraphError
    from locigraph.kg.errors import StoreError as StoreError
    from locigraph.kg.errors import StoreVersionError as StoreVersionError
    from locigraph.kg.errors import TurnConflictError as TurnConflictError
    from locigraph.kg.errors import UnknownNodeError as UnknownNodeError
    from locigraph.kg.errors import UnknownScopeError as UnknownScopeError
    from locigraph.kg.errors import UnknownSpaceError as UnknownSpaceError
    from locigraph.memory import AsyncMemory as AsyncMemory
    from locigraph.memory import Memory as Memory
    from locigraph.memory import Recalled as Recalled
    from locigraph.retrieval.errors import IndexMismatchError as IndexMismatchError
    from locigraph.retrieval.errors import IndexUnavailableError as IndexUnavailableError
    from locigraph.retrieval.errors import TextEncoderError as TextEncoderError
    from locigraph.retrieval.protocols import Hit as Hit
    from locigraph.training.errors import CheckpointError as CheckpointError

    __version__: str

_HERE = Path(__file__).parent
if not (_HERE / "kg").is_dir():
    __path__.append(str(_HERE.parent))

_HOMES = {
    "AsyncMemory": "memory",
    "CheckpointError": "training.errors",
    "EncoderSettings": "assembly.settings",
    "Hit": "retrieval.protocols",
    "IndexMismatchError": "retrieval.errors",
    "IndexSettings": "assembly.settings",
    "IndexUnavailableError": "retrieval.errors",
    "LLMSettings": "assembly.settings",
    "LanguageModelError": "consolidation.errors",
    "LocigraphError": "kg.errors",
    "Memory": "memory",
    "Recalled": "memory",
    "StoreError": "kg.errors",
    "StoreVersionError": "kg.errors",
    "TextEncoderError": "retrieval.errors",
    "TurnConflictError": "kg.errors",
    "UnknownNodeError": "kg.errors",
    "UnknownScopeError": "kg.errors",
    "UnknownSpaceError": "kg.errors",
}
__all__ = [*_HOMES, "__version__"]  # noqa: PLE0604  (all are strings)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("locigraph")
    if name not in _HOMES:
        raise AttributeError(f"module 'locigraph' has no attribute {name!r}")
    # Imported on first access, so that importing one submodule does not import all of them.
    return getattr(import_module(f"locigraph.{_HOMES[name]}"), name)

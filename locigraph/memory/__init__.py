"""The public API: a memory to which turns are added, that answers questions about them, and that can forget them."""

from locigraph.memory.async_memory import AsyncMemory
from locigraph.memory.memory import Memory
from locigraph.memory.overview import Overview, SessionOverview
from locigraph.memory.profile import Profile, Statement
from locigraph.memory.recalled import MemoryState, Recalled

__all__ = [
    "AsyncMemory", "Memory", "MemoryState", "Overview", "Profile", "Recalled", "SessionOverview", "Statement",
]  # fmt: skip

"""The public API: a memory to which turns are added, that answers questions about them, and that can forget them."""

from locigraph.scripts.memory.async_memory import AsyncMemory
from locigraph.scripts.memory.memory import Memory
from locigraph.scripts.memory.profile import Profile, Statement
from locigraph.scripts.memory.recalled import MemoryState, Recalled

__all__ = ["AsyncMemory", "Memory", "MemoryState", "Profile", "Recalled", "Statement"]

"""The public API: a memory that is appended to, asked and made to forget, turn by turn."""

from locigraph.scripts.memory.async_memory import AsyncMemory
from locigraph.scripts.memory.memory import Memory
from locigraph.scripts.memory.recalled import MemoryState, Recalled

__all__ = ["AsyncMemory", "Memory", "MemoryState", "Recalled"]

"""A memory as a LangChain retriever; installed with ``pip install 'locigraph[langchain]'``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from locigraph.memory import AsyncMemory, Memory, Recalled
from locigraph.memory.frameworks import Asking


class MemoryRetriever(BaseRetriever):
    """Retrieves memories about a query as documents, from one space or from all spaces of a user or an agent.

    ``page_content`` is the text of a hit. The metadata hold ``space``, ``turn_ids``, ``score``, ``signals``,
    ``strategy`` and the other fields of a hit, and ``notes``, for example that turns are missing or that v1 answered
    instead of v2. Notes are also logged as warnings, since a result without documents could not carry them.

    Example:
        >>> from locigraph import Memory
        >>> from locigraph.langchain import MemoryRetriever
        >>> with Memory.open("memory.sqlite") as memory:
        ...     retriever = MemoryRetriever(memory=memory, space="ana", options={"top_k": 5})
        ...     documents = retriever.invoke("Who bought the bike?")

    Attributes:
        memory: A ``Memory`` or an ``AsyncMemory``; the latter supports only ``ainvoke``.
        space: The space to search, or several; None for all spaces of the user or agent.
        user: Search all spaces of this user together.
        agent: Search all spaces of this agent; with a user, those that belong to both.
        options: Further arguments of ``Memory.recall``.
    """

    memory: Memory | AsyncMemory
    space: str | Sequence[str] | None = None
    user: str | None = None
    agent: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return self._documents(self._asking().recall(query))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        return self._documents(await self._asking().arecall(query))

    def _asking(self) -> Asking:
        return Asking(self.memory, {"space": self.space, "user": self.user, "agent": self.agent, **self.options})

    def _documents(self, found: Recalled) -> list[Document]:
        asking = self._asking()
        return [
            Document(id=asking.id_of(hit), page_content=hit.text, metadata=asking.metadata(hit, found)) for hit in found
        ]

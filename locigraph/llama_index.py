"""A memory as a LlamaIndex retriever; it needs the extra ``llama-index``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from locigraph.memory import AsyncMemory, Memory, Recalled
from locigraph.memory.frameworks import Asking


class MemoryRetriever(BaseRetriever):  # type: ignore[misc]  # the extra may be absent where types are checked
    """Retrieves memories about a query as scored nodes, from one space or from all spaces of a user or an agent.

    The metadata of a node hold ``space``, ``turn_ids``, ``signals``, ``strategy`` and the other fields of a hit, and
    ``notes``, for example that turns are missing or that v1 answered instead of v2. Language models and embedding
    models do not see the metadata, only the text of the node. Notes are also logged as warnings, since a result
    without nodes could not carry them.

    Example:
        >>> from locigraph import Memory
        >>> from locigraph.llama_index import MemoryRetriever
        >>> with Memory.open("memory.sqlite") as memory:
        ...     nodes = MemoryRetriever(memory, "ana", top_k=5).retrieve("Who bought the bike?")

    Args:
        memory: A ``Memory`` or an ``AsyncMemory``; the latter supports only ``aretrieve``.
        space: The space to search, or several; None for all spaces of the user or agent.
        user: Search all spaces of this user together.
        agent: Search all spaces of this agent; with a user, those that belong to both.
        options: Further arguments of ``Memory.recall``.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        space: str | Sequence[str] | None = None,
        *,
        user: str | None = None,
        agent: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._asking = Asking(memory, {"space": space, "user": user, "agent": agent, **options})

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._nodes(self._asking.recall(query_bundle.query_str))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._nodes(await self._asking.arecall(query_bundle.query_str))

    def _nodes(self, found: Recalled) -> list[NodeWithScore]:
        nodes = []
        for hit in found:
            metadata = self._asking.metadata(hit, found)
            hidden = list(metadata)
            node = TextNode(
                id_=self._asking.id_of(hit),
                text=hit.text,
                metadata=metadata,
                excluded_llm_metadata_keys=hidden,
                excluded_embed_metadata_keys=hidden,
            )
            nodes.append(NodeWithScore(node=node, score=hit.score))
        return nodes

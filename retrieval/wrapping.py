"""Base class of retrievers that wrap another retriever."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.protocols import Hit, Retriever


class WrappingRetriever(Retriever):
    """Base of retrievers that wrap another one: forwards its name, context order, context rules and reranking texts.

    Args:
        retriever: The strategy.
    """

    def __init__(self, retriever: Retriever) -> None:
        self.name = retriever.name
        self.context_rules = retriever.context_rules
        self._retriever = retriever

    def arrange(
        self, question: str, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None
    ) -> list[NodeId] | None:
        """See ``Retriever``: the order of the strategy."""
        return self._retriever.arrange(question, hits, space, as_of)

    def reworded(self, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None) -> list[str]:
        """See ``Retriever``: the texts of the strategy."""
        return self._retriever.reworded(hits, space, as_of)

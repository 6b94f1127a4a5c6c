"""Base class of retrievers that wrap another retriever."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.packing import ContextRules, rules_of
from locigraph.retrieval.protocols import HasContextOrder, HasRerankTexts, Hit, Retriever


class WrappingRetriever:
    """Base of retrievers that wrap another one: forwards its name, context order, context rules and reranking texts.

    Args:
        retriever: The strategy.
    """

    def __init__(self, retriever: Retriever) -> None:
        self.name = retriever.name
        self._retriever = retriever

    @property
    def context_rules(self) -> ContextRules:
        """See ``HasContextRules``."""
        return rules_of(self._retriever)

    def arrange(
        self, question: str, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None
    ) -> list[NodeId] | None:
        """See ``HasContextOrder``; None also if the strategy has no order of its own."""
        wrapped = self._retriever
        return wrapped.arrange(question, hits, space, as_of) if isinstance(wrapped, HasContextOrder) else None

    def reworded(self, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None) -> list[str]:
        """See ``HasRerankTexts``; the descriptions if the strategy has no other texts."""
        wrapped = self._retriever
        if isinstance(wrapped, HasRerankTexts):
            return wrapped.reworded(hits, space, as_of)
        return [hit.text for hit in hits]

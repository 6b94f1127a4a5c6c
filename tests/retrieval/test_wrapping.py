from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.budgets import Budget, ContextRules
from locigraph.retrieval.hit_filters import FilteredRetriever
from locigraph.retrieval.multi_query import MultiQueryRetriever
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever
from locigraph.retrieval.query_generator import generate_queries
from locigraph.retrieval.wrapping import WrappingRetriever
from tests.fakes import SPACE
from tests.fakes_graph import hit

HITS = [hit("b", "episode"), hit("a", "episode")]


class Plain(Retriever):
    """A strategy that is not asked here."""

    name = "plain"

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        raise NotImplementedError


class Particular(Plain):
    """The same with its own order, rules and texts."""

    context_rules = ContextRules(Budget(words=7), brevity=True)

    def arrange(
        self, question: str, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None
    ) -> list[NodeId] | None:
        return sorted(each.node_id for each in hits)

    def reworded(self, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None) -> list[str]:
        return [f"{space}: {each.text}" for each in hits]


def several(retriever: Retriever) -> MultiQueryRetriever:
    return MultiQueryRetriever(retriever, generate_queries, lambda space: None)


def viewed(retriever: Retriever) -> FilteredRetriever:
    return FilteredRetriever(retriever, lambda space, ids: {})


AROUND = [several, viewed, lambda retriever: viewed(several(retriever))]


@pytest.mark.parametrize("around", AROUND)
def test_whatever_is_around_a_strategy_keeps_its_name_order_rules_and_texts(
    around: Callable[[Retriever], WrappingRetriever],
) -> None:
    made = around(Particular())
    assert made.name == "plain"
    assert made.arrange("x", HITS, SPACE) == ["a", "b"]
    assert made.context_rules == Particular.context_rules
    assert made.reworded(HITS, SPACE) == ["harbor: b", "harbor: a"]


@pytest.mark.parametrize("around", AROUND)
def test_a_strategy_without_any_gets_none(around: Callable[[Retriever], WrappingRetriever]) -> None:
    made = around(Plain())
    assert made.arrange("x", HITS, SPACE) is None
    assert made.context_rules == ContextRules()
    assert made.reworded(HITS, SPACE) == ["b", "a"]

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

import pytest

from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.multi_query import MultiQueryRetriever, with_queries
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, Timing
from locigraph.retrieval.query_generator import QueryGenerator, SearchQuery
from locigraph.retrieval.strategies.hybrid import HybridRetriever
from tests.fakes import SPACE, FakeEncoder
from tests.fakes_graph import TEXT_DIM, FixedVectors, hit, lexical_of, make_snapshot

TURN, FACT = "episode", "knowledge_node"
LAST = date(2024, 5, 10)
FOUND = {
    "both": [hit("a", TURN), hit("b", FACT)],
    "one": [hit("b", FACT), hit("c", TURN)],
    "other": [hit("c", TURN)],
}


class ByText(Retriever):
    """A strategy that finds what is written down for each text."""

    name = "dense"

    def __init__(self) -> None:
        self.asked: list[tuple[str, datetime | None, int]] = []

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        self.asked.append((query, as_of, top_k))
        return Result(tuple(FOUND[query]), Timing(1.0, 2.0))


class InOrder(ByText):
    """The same with an order of its own."""

    def arrange(
        self, question: str, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None
    ) -> list[NodeId] | None:
        return sorted(each.node_id for each in hits)


def of(*queries: SearchQuery) -> QueryGenerator:
    return lambda question, asked_on: queries


def ranked(result: Result) -> list[tuple[str, object]]:
    return [(str(each.node_id), each.score) for each in result.hits]


def test_the_rankings_of_all_queries_are_fused_by_hand_worked_reciprocal_ranks() -> None:
    strategy = ByText()
    asked = MultiQueryRetriever(strategy, of(SearchQuery("both"), SearchQuery("one")), lambda space: LAST)
    found = asked.retrieve("both", SPACE, top_k=7)
    assert ranked(found) == [
        ("b", pytest.approx(1 / 4 + 1 / 3)),
        ("a", pytest.approx(1 / 3)),
        ("c", pytest.approx(1 / 4)),
    ]
    assert [each.signals["rrf"] for each in found.hits] == [each.score for each in found.hits]
    assert found.timing == Timing(2.0, 4.0)
    assert strategy.asked == [("both", None, 7), ("one", None, 7)]
    assert asked.name == "dense"


def test_a_query_that_names_types_takes_these_and_what_there_is_where_there_are_none() -> None:
    facts, turns = SearchQuery("one", (FACT,)), SearchQuery("other", (FACT,))
    found = MultiQueryRetriever(ByText(), of(facts, turns), lambda space: LAST).retrieve("x", SPACE)
    assert ranked(found) == [("b", pytest.approx(1 / 3)), ("c", pytest.approx(1 / 3))]


def test_a_single_query_leaves_the_strategy_s_own_result() -> None:
    found = MultiQueryRetriever(ByText(), of(SearchQuery("both")), lambda space: LAST).retrieve("x", SPACE)
    assert found == Result(tuple(FOUND["both"]), Timing(1.0, 2.0))


def test_a_question_is_asked_from_the_day_of_its_time_or_of_the_last_turn() -> None:
    days: list[date | None] = []

    def queries(question: str, asked_on: date | None) -> Sequence[SearchQuery]:
        days.append(asked_on)
        return [SearchQuery("both")]

    asked = MultiQueryRetriever(ByText(), queries, lambda space: LAST)
    asked.retrieve("x", SPACE)
    asked.retrieve("x", SPACE, as_of=datetime(2023, 1, 2, tzinfo=UTC))
    assert days == [LAST, date(2023, 1, 2)]


@pytest.mark.parametrize(("strategy", "order"), [(ByText(), None), (InOrder(), ["a", "b"])])
def test_a_strategy_with_an_order_of_its_own_keeps_it(strategy: ByText, order: list[str] | None) -> None:
    asked = MultiQueryRetriever(strategy, of(SearchQuery("both")), lambda space: LAST)
    assert asked.arrange("x", FOUND["both"][::-1], SPACE) == order


def test_v1_and_a_strategy_without_generator_stay_as_they_are() -> None:
    v1, dense = HybridRetriever(lexical_of(make_snapshot([])), FixedVectors([]), FakeEncoder(TEXT_DIM)), ByText()
    queries = of(SearchQuery("one"))
    assert with_queries(v1, queries, lambda space: LAST) is v1
    assert isinstance(with_queries(dense, queries, lambda space: LAST), MultiQueryRetriever)
    assert with_queries(dense, None, lambda space: LAST) is dense

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from locigraph.kg.types import NodeId, TurnId
from locigraph.retrieval.errors import FilterError
from locigraph.retrieval.index.filters import MOST_NAMED, filter_expression, quote
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection, CollectionSpec, IndexRow
from locigraph.retrieval.protocols import SearchFilter

# Letters that mean something to a filter's grammar, or to the escaping.
HOSTILE = st.text(alphabet="\"'\\a %_()[]=|&,{}\u00e9\u4e2d", min_size=1, max_size=12)


def test_scope_becomes_a_hand_written_expression() -> None:
    scope = SearchFilter("harbor", ("episode", "reflection"), datetime(1970, 1, 2, tzinfo=UTC))
    expected = 'space == "harbor" and type in ["episode", "reflection"] and recorded_at <= 86400'
    assert filter_expression(scope) == expected
    assert filter_expression(SearchFilter(("a", 'b"'))) == 'space in ["a", "b\\""]'


def test_a_few_nodes_are_named_in_the_expression_and_many_are_left_to_the_caller() -> None:
    few = SearchFilter("harbor", only=frozenset({NodeId("n2"), NodeId('n"1')}))
    assert filter_expression(few) == 'space == "harbor" and node_id in ["n\\"1", "n2"]'
    many = SearchFilter("harbor", only=frozenset(NodeId(f"n{i}") for i in range(MOST_NAMED + 1)))
    assert filter_expression(many) == 'space == "harbor"'


def test_a_few_nodes_of_several_spaces_are_named_with_their_spaces() -> None:
    few = SearchFilter(("a", "b:c"), only=frozenset({NodeId("a:n2"), NodeId("a:n1"), NodeId("b%3Ac:n1")}))
    assert filter_expression(few) == (
        'space in ["a", "b:c"] and '
        '((space == "a" and node_id in ["n1", "n2"]) or (space == "b:c" and node_id in ["n1"]))'
    )


def test_quotation_marks_and_backslashes_are_escaped() -> None:
    assert quote('a"b') == '"a\\"b"'
    assert quote("a\\") == '"a\\\\"'
    assert quote('\\"') == '"\\\\\\""'


@given(st.text(alphabet=st.characters(min_codepoint=32, exclude_categories=["Cs"])))
def test_a_quoted_value_ends_only_at_its_end(value: str) -> None:
    inside, position = quote(value)[1:-1], 0
    unescaped = []
    while position < len(inside):
        assert inside[position] != '"'
        if inside[position] == "\\":
            position += 1
        unescaped.append(inside[position])
        position += 1
    assert "".join(unescaped) == value


@pytest.mark.parametrize("value", ["a\nb", "\x00", "tab\t"])
def test_control_characters_are_refused(value: str) -> None:
    with pytest.raises(FilterError, match="control character"):
        quote(value)


def test_a_scope_must_name_its_space_and_some_type() -> None:
    for spaces in ("", (), ("harbor", "")):
        with pytest.raises(FilterError, match="must name its space"):
            filter_expression(SearchFilter(spaces))
    with pytest.raises(FilterError, match="types is empty"):
        filter_expression(SearchFilter("harbor", ()))


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """Real Milvus Lite with the rows of one innocent space."""
    with MilvusIndex(str(tmp_path_factory.mktemp("filters") / "index.db")) as index:
        made = index.create("nodes", CollectionSpec(2, "COSINE", "fake", "schema"))
        rows = [IndexRow("victim", i, NodeId(f"v{i}"), "episode", 0, (TurnId("t"),)) for i in range(3)]
        made.upsert(rows, np.ones((3, 2), dtype=np.float32))
        made.flush()
        yield made


QUERY = np.ones(2, dtype=np.float32)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HOSTILE)
@pytest.mark.parametrize("template", ["{}", 'x" or space == "victim{}', '{}" or "1" == "1', '\\" or 1 == 1 or "{}'])
def test_a_hostile_space_never_sees_the_rows_of_another(collection: Collection, template: str, name: str) -> None:
    assert collection.search(QUERY, SearchFilter(template.format(name)), top_k=5) == []


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(HOSTILE, min_size=1, max_size=4))
@pytest.mark.parametrize("template", ["{}", 'x"] or space == "victim{}', '\\"] or 1 == 1 or space in ["{}'])
def test_hostile_spaces_that_are_asked_together_never_see_the_rows_of_another(
    collection: Collection, template: str, names: list[str]
) -> None:
    spaces = tuple(template.format(name) for name in names)
    assert collection.search(QUERY, SearchFilter(spaces), top_k=5) == []


def test_spaces_that_are_asked_together_are_one_ranking_in_which_names_carry_their_space(
    collection: Collection,
) -> None:
    rows = [IndexRow(name, 7, NodeId("own"), "episode", 0, (TurnId("t"),)) for name in ("a:b", "a%3Ab")]
    collection.upsert(rows, np.array([[1, 1], [1, 0]], dtype=np.float32))
    found = collection.search(QUERY, SearchFilter(("a:b", "a%3Ab", "nobody")), top_k=5)
    assert [(match.node_id, match.turn_ids) for match in found] == [
        ("a%3Ab:own", ("a%3Ab:t",)), ("a%253Ab:own", ("a%253Ab:t",)),
    ]  # fmt: skip
    for name in ("a:b", "a%3Ab"):
        collection.delete_nodes(name, [7])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HOSTILE)
@pytest.mark.parametrize(
    "template", ["{}", 'x"] or space == "victim" or type in ["{}', '\\"] or 1 == 1 or type in ["{}']
)
def test_a_hostile_type_never_shows_the_rows_of_another(collection: Collection, template: str, name: str) -> None:
    assert collection.search(QUERY, SearchFilter("mallory", (template.format(name),)), top_k=5) == []
    assert collection.search(QUERY, SearchFilter("victim", (template.format(name),)), top_k=5) == []


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(HOSTILE)
def test_a_space_with_a_hostile_name_finds_its_own_rows(collection: Collection, name: str) -> None:
    row = IndexRow(name, 99, NodeId("own"), "episode", 0, (TurnId("t"),))
    collection.upsert([row], np.ones((1, 2), dtype=np.float32))
    assert [match.node_id for match in collection.search(QUERY, SearchFilter(name), top_k=5)] == ["own"]
    assert collection.count(name) == 1
    collection.delete_nodes(name, [99])
    assert collection.count(name) == 0
    assert collection.count("victim") == 3

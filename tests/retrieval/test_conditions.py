"""Conditions on metadata: what they mean, and what is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.errors import LocigraphError
from locigraph.kg.metadata import metadata_of
from locigraph.kg.types import Said, TurnId
from locigraph.retrieval.conditions import parsed

SAID = Said(
    TurnId("t1"), "s1", "Ana", datetime(2024, 5, 1, 10, tzinfo=UTC),
    metadata_of({"project": "bikes", "price": 200, "sold": True, "on": date(2024, 5, 3),
                 "at": datetime(2024, 5, 1, 10, tzinfo=UTC), "seen": "2024-05-01T12:00:00+02:00"}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("conditions", "holds"),
    [
        ({"project": "bikes"}, True), ({"project": "boats"}, False), ({"project": {"$ne": "boats"}}, True),
        ({"project": {"$in": ["bikes", "boats"]}}, True), ({"project": {"$nin": ["bikes"]}}, False),
        ({"price": {"$gt": 100, "$lte": 200}}, True), ({"price": {"$lt": 200}}, False),
        ({"price": {"$gte": "2"}}, False),
        ({"price": 200.0}, True), ({"sold": True}, True), ({"sold": 1}, False), ({"price": True}, False),
        ({"on": {"$gte": "2024-05-01", "$lt": date(2024, 6, 1)}}, True), ({"colour": "red"}, False),
        ({"at": {"$gte": "2024-05-01T10:00:00Z"}}, True), ({"at": "2024-05-01T12:00+02:00"}, True),
        ({"seen": {"$lte": "2024-05-01T10:00:00Z"}}, True), ({"seen": {"$in": ["2024-05-01T10:00:00+00:00"]}}, True),
        ({"at": {"$gt": "2024-05-01T11:30:00+02:00", "$lt": "2024-05-02"}}, True),
        ({"colour": {"$ne": "red"}}, True), ({"colour": {"$nin": ["red"]}}, True), ({"colour": {"$gt": 1}}, False),
        ({"colour": {"$exists": False}}, True), ({"price": {"$exists": True}}, True),
        ({"project": "bikes", "price": 1}, False), ({"$and": [{"project": "bikes"}, {"price": 200}]}, True),
        ({"$or": [{"project": "boats"}, {"price": 200}]}, True), ({"$not": {"project": "boats"}}, True),
        ({"$speaker": "Ana", "$session": "s1", "$turn": "t1", "$type": "episode"}, True), ({"$speaker": "Bo"}, False),
        ({"$spoken_at": {"$gte": "2024-05-01", "$lt": "2024-05-02"}}, True),
        ({"$spoken_at": {"$lt": "2024-05-01T10:00:00Z"}}, False),
        ({"$spoken_at": {"$lte": "2024-05-01T12:00:00+02:00"}}, True), ({"$spoken_at": {"$exists": False}}, False),
    ],
)  # fmt: skip
def test_a_filter_means_what_users_of_vector_databases_expect(conditions: dict[str, Any], holds: bool) -> None:
    assert parsed(conditions)(SAID, "episode") == holds
    assert parsed({"$not": conditions})(SAID, "episode") != holds


@pytest.mark.parametrize(
    ("conditions", "named"),
    [
        ({}, r"filter is \{\}; expected an object"), ([1], "expected an object of conditions"),
        ({"$speakr": "Ana"}, r"'\$speakr' is not known; nearest is '\$speaker'"),
        ({"a": {"$like": 1}}, r"'\$like' is not"),
        ({"a": {}}, "expected a value, or an object"), ({"a": [1]}, r"filter.a.\$eq is \[1\]; expected text, a number"),
        ({"a": {"$in": []}}, "expected a list of 1 to 1,000"), ({"a": {"$in": "red"}}, "expected a list of 1 to 1,000"),
        ({"a": {"$exists": 1}}, "expected true or false"), ({"$or": {}}, "expected a list of objects"),
        ({"$type": "fact"}, "node type 'fact' is not known.*knowledge_node"),
        ({"$spoken_at": "May"}, "expected a time in ISO 8601"),
        ({"$spoken_at": {"$gte": 1710101212000}}, "expected a time in ISO 8601"),
        ({"a": None}, "expected text, a number"),
        ({f"k{n}": 1 for n in range(101)}, "more than 100 conditions"),
    ],
)  # fmt: skip
def test_a_filter_that_cannot_be_meant_is_refused_by_its_place(conditions: Any, named: str) -> None:
    with pytest.raises(LocigraphError, match=named):
        parsed(conditions)


def test_a_filter_that_is_nested_too_deep_is_refused() -> None:
    nested: dict[str, Any] = {"a": 1}
    for _ in range(12):
        nested = {"$not": nested}
    with pytest.raises(LocigraphError, match="nested more than 10 deep"):
        parsed(nested)


@pytest.mark.parametrize(
    ("given_", "named"),
    [
        (["a"], "expected an object of names"), ({"$a": 1}, r"the key '\$a'"),
        ({"a": [1]}, r"metadata\['a'\] is \[1\]"), ({"a": None}, "expected text, a number"),
        ({"a": float("nan")}, "expected text"), ({"a": 10**5_000}, "too large a number"),
        ({"a": "x\0"}, "expected text"),
        ({f"k{n}": 1 for n in range(65)}, "65 keys"), ({"a": "x" * 9_000}, "9,009 bytes"),
    ],
)  # fmt: skip
def test_metadata_that_cannot_be_stored_are_refused(given_: Any, named: str) -> None:
    with pytest.raises(LocigraphError, match=named):
        metadata_of(given_)


_SCALARS = st.text("ab", max_size=3) | st.integers(-9, 9) | st.booleans() | st.floats(-9, 9)


@given(
    st.dictionaries(st.sampled_from("abc"), _SCALARS), st.sampled_from("abc"), _SCALARS, st.lists(_SCALARS, min_size=1)
)
def test_every_condition_and_its_contrary_divide_the_turns(
    metadata: dict[str, Any], key: str, value: Any, values: list[Any]
) -> None:
    said = Said(TurnId("t"), "s", "Ana", None, metadata)

    def holds(test: dict[str, Any]) -> bool:
        return parsed({key: test})(said, "episode")

    assert holds({"$eq": value}) != holds({"$ne": value})
    assert holds({"$in": values}) != holds({"$nin": values})
    assert holds({"$in": values}) == any(holds({"$eq": each}) for each in values)
    assert holds({"$gte": value}) == (holds({"$gt": value}) or holds({"$eq": value}))
    assert sum(holds({name: value}) for name in ("$lt", "$eq", "$gt")) <= 1


def test_sessions_and_turns_named_like_times_are_names_and_speakers_are_the_same_however_composed() -> None:
    said = Said(TurnId("2024-05-01T10:00Z"), "2024-05-01T10:00", "Zo\u00eb", None, {})
    for filter_, holds in (
        ({"$session": "2024-05-01T10:00"}, True),
        ({"$session": {"$ne": "2024-05-01T10:00"}}, False),
        ({"$turn": {"$in": ["2024-05-01T10:00Z"]}}, True),
        ({"$session": "2024-05-01T10:00+00:00"}, False),
        ({"$speaker": "Zoe\u0308"}, True),
    ):
        assert parsed(filter_)(said, "episode") == holds, filter_


def test_a_filter_of_too_many_letters_is_refused() -> None:
    with pytest.raises(LocigraphError, match="more than 200,000 letters"):
        parsed({"a": {"$in": [f"{number:01000}" for number in range(201)]}})

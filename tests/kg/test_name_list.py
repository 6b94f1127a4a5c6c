from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.errors import LocigraphError
from locigraph.kg.name_list import names_in


@pytest.mark.parametrize(
    "given",
    [["a", "b c"], "a,b c", " a , b c,", '["a", "b c"]', '  ["a","b c"]\n'],
)
def test_a_list_and_a_text_of_either_form_hold_the_same_names(given: list[str] | str) -> None:
    assert names_in(given) == ["a", "b c"]


def test_nothing_named_is_an_empty_list() -> None:
    assert (names_in(""), names_in(" , "), names_in("[]"), names_in([])) == ([], [], [], [])


def test_a_number_in_a_json_list_is_the_name_as_it_is_written() -> None:
    assert names_in('[7e974930, 1.50, "a,b", -7]') == ["7e974930", "1.50", "a,b", "-7"]


def test_brackets_within_a_name_are_part_of_it() -> None:
    assert names_in("[bot] Ana,Bo [2] x") == ["[bot] Ana", "Bo [2] x"]


@pytest.mark.parametrize("given", ["[a, b]", '[["a"]]', "[null]", "[true]", '["a",]', "[" * 9_000 + "]"])
def test_brackets_that_hold_something_else_are_refused_with_both_forms(given: str) -> None:
    with pytest.raises(LocigraphError, match=r"is not a list of names; separate them by commas, such as a,b, or"):
        names_in(given)


@given(st.lists(st.text()))
def test_any_names_survive_a_json_list(names: list[str]) -> None:
    assert names_in(json.dumps(names)) == names

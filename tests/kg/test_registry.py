from __future__ import annotations

from dataclasses import dataclass

import pytest

from locigraph.kg.registry import Table, UnknownNameError


@dataclass(frozen=True)
class Toy:
    name: str


def test_a_row_is_found_by_its_name_and_rows_keep_their_order() -> None:
    table = Table("toy", [Toy("b"), Toy("a")])
    assert table["a"] == Toy("a")
    assert list(table) == ["b", "a"]


def test_an_unknown_name_is_an_error_that_lists_the_known_names() -> None:
    table = Table("toy", [Toy("hybrid"), Toy("dense")])
    with pytest.raises(UnknownNameError, match="toy 'hybird' is not known; nearest is 'hybrid'; known: hybrid, dense"):
        table["hybird"]


def test_a_second_row_of_a_name_is_refused() -> None:
    table = Table("toy", [Toy("a")])
    with pytest.raises(ValueError, match="two rows named 'a'"):
        table.add(Toy("a"))


def test_a_row_that_was_added_can_be_removed_again() -> None:
    table: Table[Toy] = Table("toy")
    table.add(Toy("a"))
    table.remove("a")
    assert "a" not in table
    with pytest.raises(UnknownNameError):
        table.remove("a")

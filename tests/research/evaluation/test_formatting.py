from __future__ import annotations

import pytest

from locigraph.research.evaluation.formatting import milliseconds, p_value, signed, unsigned


@pytest.mark.parametrize(
    ("value", "expected"), [(0.12, "+.120"), (-0.0312, "-.031"), (1.0, "+1.000"), (-0.0001, "0"), (0.0, "0")]
)
def test_a_difference_has_its_sign_and_no_leading_zero(value: float, expected: str) -> None:
    assert signed(value) == expected


@pytest.mark.parametrize(("value", "expected"), [(0.808, ".808"), (1.0, "1.000"), (0.0, ".000")])
def test_a_share_has_no_leading_zero(value: float, expected: str) -> None:
    assert unsigned(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0, "0"), (0.0312, "0.031"), (1.7, "1.70"), (29.04, "29.0"), (1193.4, "1193")]
)
def test_milliseconds_have_about_three_digits(value: float, expected: str) -> None:
    assert milliseconds(value) == expected


@pytest.mark.parametrize(("value", "expected"), [(0.0004, "<.001"), (0.0312, ".031"), (1.0, "1.000")])
def test_a_small_p_is_given_as_a_bound(value: float, expected: str) -> None:
    assert p_value(value) == expected

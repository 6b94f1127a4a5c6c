"""How numbers and names are written in tables, figures and sentences."""

from __future__ import annotations

import math


def signed(value: float, *, decimals: int = 3) -> str:
    """A difference with its sign and without the leading zero: +.120, -.031, 0."""
    rounded = round(value, decimals)
    if rounded == 0.0:
        return "0"
    sign = "+" if rounded > 0 else "-"
    return sign + unsigned(abs(rounded), decimals=decimals)


def unsigned(value: float, *, decimals: int = 3) -> str:
    """A share without the leading zero: .808, 1.000."""
    text = f"{value:.{decimals}f}"
    return text[1:] if text.startswith("0.") else text


def milliseconds(value: float) -> str:
    """A time >= 0 in milliseconds, without a unit: about three digits, at most three decimals."""
    if value == 0.0:
        return "0"
    decimals = 2 - math.floor(math.log10(value))
    return f"{value:.{min(max(decimals, 0), 3)}f}"


def p_value(value: float) -> str:
    """A p-value as it is written in a table: .031, or <.001."""
    return "<.001" if value < 0.001 else unsigned(value)

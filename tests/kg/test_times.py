from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from locigraph.kg.times import epoch, moment


@pytest.mark.parametrize("year", [1111, 1970, 2024])
def test_a_fraction_of_a_second_is_cut_off_before_and_after_1970(year: int) -> None:
    whole = datetime(year, 11, 11, 11, 11, 11, tzinfo=UTC)
    assert moment(epoch(whole)) == whole
    assert moment(epoch(whole + timedelta(microseconds=900_000))) == whole

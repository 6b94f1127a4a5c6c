from __future__ import annotations

from locigraph.kg.errors import CorpusFormatError, UnknownSpaceError


def test_an_error_is_a_short_line_however_long_the_names_are_that_it_tells_of() -> None:
    long = "D" + "1" * 5_000
    for error in (CorpusFormatError("c.json", long, long, long, "a date"), UnknownSpaceError(long, ["ana"])):
        assert len(str(error)) < 500
        assert "'D111" in str(error)

from __future__ import annotations

from locigraph.kg.errors import CorpusFormatError, UnknownSpaceError, abridged


def test_an_error_is_a_short_line_however_long_the_names_are_that_it_tells_of() -> None:
    long = "D" + "1" * 5_000
    for error in (CorpusFormatError("c.json", long, long, long, "a date"), UnknownSpaceError(long, ["ana"])):
        assert len(str(error)) < 500
        assert "'D111" in str(error)


def test_a_foreign_message_is_one_line_and_is_cut_between_words() -> None:
    message = "No connection to\n  'https://huggingface.co/docs/off-line';  check   it"
    assert abridged(message) == "No connection to 'https://huggingface.co/docs/off-line'; check it"
    for most in range(25, 55):
        assert abridged(message, most) == "No connection to ..."
    assert abridged("A" * 50, 10) == "AAAAAA..."
    assert (abridged(""), abridged("..."), abridged(OSError("full"))) == ("", "...", "full")

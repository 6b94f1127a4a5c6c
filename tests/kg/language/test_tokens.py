from __future__ import annotations

import threading
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.language.languages import language_of
from locigraph.kg.language.terms import terms
from locigraph.kg.language.tokens import normalised, printable_line, with_named_emoji, words


def test_a_printable_line_has_no_line_breaks_and_no_terminal_codes() -> None:
    assert printable_line(" a\n b\x1b[31m\x00c\ud800 ") == "a b [31m c"


@pytest.mark.parametrize("text", ["می\u200cخواهد", "\U0001f9d1\u200d\U0001f91d\u200d\U0001f9d1"])
def test_a_printable_line_keeps_joined_what_a_joiner_joins(text: str) -> None:
    assert printable_line(f" {text}\n") == text
    assert printable_line("\u200c \n") == ""


def test_words_are_lower_case_runs_of_letters_and_digits() -> None:
    assert words("Ann's 2nd boat_house — café!") == ["ann", "s", "2nd", "boat", "house", "café"]


def test_terms_are_stems_without_stop_words_in_order_and_with_repetitions() -> None:
    assert terms("She repairs boats, and I was repairing a boat.") == ["repair", "boat", "repair", "boat"]


def test_a_text_of_stop_words_alone_has_no_terms() -> None:
    assert terms("I am what you were.") == []
    assert terms("") == []


def test_the_halves_of_contractions_are_stop_words() -> None:
    assert terms("don't I've we'll it's") == []


def test_emoji_are_terms_without_what_changes_their_look() -> None:
    assert terms("🎉🎉 look 👍🏽 ❤️ 👩‍🔬") == ["🎉", "🎉", "look", "👍", "❤", "👩", "🔬"]
    assert terms("🇩🇪🇫🇷 25 °C – ok™") == ["🇩🇪", "🇫🇷", "25", "c", "ok"]


def test_emoji_are_named_for_readers_that_do_not_know_them_each_once_in_a_row() -> None:
    assert with_named_emoji("Sold!🎉🎉🎂 Off to 🇵🇹") == "Sold! party popper, birthday cake  Off to  flag PT "
    assert with_named_emoji("👍🏽") == " thumbs up sign "
    assert with_named_emoji("naïve – 25 °C") == "naïve – 25 °C"


@given(st.text(max_size=80))
def test_words_do_not_depend_on_case_or_surroundings(text: str) -> None:
    assert all(word and word == word.lower() and "_" not in word for word in words(text))
    assert words(" ".join(words(text))) == words(text)
    left_out = language_of(text).stop_words
    assert not left_out.isdisjoint(words(text)) or len(terms(text)) >= len(words(text))


def test_threads_stem_alike() -> None:
    texts = [f"running{i} boats{i} happily" for i in range(300)]
    results: list[list[list[str]]] = []
    threads = [threading.Thread(target=lambda: results.append([terms(t) for t in texts])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result == results[0] for result in results)


@given(st.text(max_size=80))
def test_normal_forms_are_those_of_unicode(text: str) -> None:
    assert normalised("NFKC", text) == unicodedata.normalize("NFKC", text)


def test_of_many_combining_marks_in_a_row_thirty_stay() -> None:
    assert normalised("NFC", "a" + "\u0316" * 99 + "e\u0301") == "a" + "\u0316" * 30 + "é"

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.language.seen_texts import SeenTexts, is_distinctive, wording


def test_case_signs_and_spacing_do_not_make_two_texts_different() -> None:
    assert wording("  We MOVED, finally;\tto Ghent! ") == wording("we moved finally to ghent")
    assert "WE MOVED -- finally to Ghent?" in SeenTexts(["we moved finally to ghent"])
    assert "we moved to ghent finally" not in SeenTexts(["we moved finally to ghent"])


def test_eight_words_make_a_text_distinctive() -> None:
    assert is_distinctive("one two three four five six seven eight")
    assert not is_distinctive("one two three four five six seven")
    assert is_distinctive("昨日駅前の新しい喫茶店で友達に会った。")
    assert not is_distinctive("新しい喫茶店です。")


@given(st.lists(st.text(max_size=20), max_size=8), st.lists(st.text(max_size=20), max_size=8))
def test_a_union_holds_what_its_parts_hold_and_nothing_else(one: list[str], other: list[str]) -> None:
    both = SeenTexts.union([SeenTexts(one), SeenTexts(other)])
    assert all(text in both for text in [*one, *other])
    assert len(both) == len({wording(text) for text in [*one, *other]})


def test_a_set_is_read_as_it_was_saved_and_its_file_holds_no_word(tmp_path: Path) -> None:
    assert SeenTexts.read(tmp_path) is None
    SeenTexts(["Who sold the marimba?", "the marimba was sold to Ghislaine in the end"]).save(tmp_path)
    (file,) = tmp_path.iterdir()
    assert b"marimba" not in file.read_bytes()
    found = SeenTexts.read(tmp_path)
    assert found is not None
    assert len(found) == 2
    assert "who sold the MARIMBA" in found
    assert "who bought the marimba" not in found


@pytest.mark.parametrize("content", [b"", b"not numpy", None])
def test_a_damaged_file_is_an_error_that_names_it(content: bytes | None, tmp_path: Path) -> None:
    SeenTexts(["a"]).save(tmp_path)
    (file,) = tmp_path.iterdir()
    if content is None:
        np.save(file, np.zeros((2, 2)))
    else:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=r"wordings\.npy"):
        SeenTexts.read(tmp_path)


def test_no_flipped_bit_of_the_header_is_another_error_than_that_the_file_is_damaged(tmp_path: Path) -> None:
    SeenTexts(["one two three four five six seven eight nine"]).save(tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    refused = 0
    for at in range(8 * (len(whole) - 8)):
        hurt = bytearray(whole)
        hurt[at // 8] ^= 1 << at % 8
        path.write_bytes(hurt)
        try:
            SeenTexts.read(tmp_path)
        except ValueError:
            refused += 1
    assert refused > 500

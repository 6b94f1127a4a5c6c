from __future__ import annotations

import pytest

from locigraph.kg.language.negation import is_negated


@pytest.mark.parametrize("text", ["Ann doesn't swim", "Ann doesn’t swim", "I cannot swim", "NEVER again", "no boats"])
def test_a_text_with_a_negation_is_negated(text: str) -> None:
    assert is_negated(text)


@pytest.mark.parametrize("text", ["Ann swims", "a nobler knot, noted", "Nora", ""])
def test_words_that_only_contain_a_negation_do_not_count(text: str) -> None:
    assert not is_negated(text)

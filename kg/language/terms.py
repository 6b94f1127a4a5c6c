"""The terms of lexical search: stemmed words without function words, by the language of each text."""

from __future__ import annotations

import re
from itertools import pairwise

from locigraph.kg.language.languages import ENGLISH, language_of
from locigraph.kg.language.tokens import words, words_and_signs

# Scripts that write no blanks between words, and Korean, whose endings are written with the word.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u1100-\u11ff\uac00-\ud7af"  # Japanese, Chinese, Korean
)
_RUN = re.compile(f"([{_UNSPACED}]+)")


def terms(text: str) -> list[str]:
    """Stemmed words without function words, and emoji, in order and with repetitions: the terms of lexical search.

    Stems and function words are those of the text's language (``languages.language_of``). Runs of a script without
    blanks between words are divided into overlapping pairs of characters. A text that has only function words gives an
    empty list.

    Source:
        Pairs of characters: Kwok 1997, "Comparing representations in Chinese information retrieval".
    """
    language = language_of(text)
    left_out = language.stop_words
    kept = [word for word in words_and_signs(text) if word not in left_out]
    if text.isascii():
        return [language.stem(word) for word in kept]
    return [language.stem(term) for word in kept for term in _pairs(word)]


def stem(word: str) -> str:
    """The stem of an English word in lower case."""
    return ENGLISH.stem(word)


def content_words(text: str) -> list[str]:
    """The words of a text, in lower case, without the function words of its language."""
    left_out = language_of(text).stop_words
    return [word for word in words(text) if word not in left_out]


def unspaced_characters(text: str) -> int:
    """Number of characters of scripts that write no blanks between words, and of Korean."""
    return sum(map(len, _RUN.findall(text)))


def _pairs(word: str) -> list[str]:
    """The overlapping pairs of characters in each run without blanks, and the parts between such runs."""
    if word.isascii() or _RUN.search(word) is None:
        return [word]
    found = []
    for at, part in enumerate(_RUN.split(word)):
        if at % 2 and len(part) > 1:
            found += [first + second for first, second in pairwise(part)]
        elif part:
            found.append(part)
    return found

"""Excerpts of long turns: the sentences that a question asks for, so that a small context holds more than one turn."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from locigraph.kg.language.terms import terms
from locigraph.kg.text_caches import cached
from locigraph.retrieval.budgets import count_tokens, parts_of_tokens

_SENTENCE_END = re.compile(r"(?<=[。！？])\s*|(?<=[.!?])\s+|\n+")
_WORD = re.compile(r"\S+\s*")
# A list or code without full stops is divided after so many tokens, or its longest line would be all that is shown.
_MOST_OF_SENTENCE = 40
_COUNTED = 50  # texts among which words are counted
# Share of a sentence's score that its neighbours get, since they often say what it is about.
_NEIGHBOUR = 0.3
# A word without an end is divided after so many.
_PIECE = 10
GAP = "..."


class Excerpts:
    """Excerpts for one question.

    Args:
        question: The question.
        texts: The texts that were found, best first; a word of the question counts the more, the fewer sentences of the
            first 50 have it.
    """

    def __init__(self, question: str, texts: Sequence[str]) -> None:
        self._question, self._texts = question, texts[:_COUNTED]

    @cached_property  # most contexts have no long turn
    def _weight(self) -> dict[str, float]:
        """How much each term of the question counts."""
        asked = frozenset(terms(self._question))
        sentences = [sentence for text in self._texts for sentence in _sentences(text)]
        holding = Counter(term for sentence in sentences for term in asked & _terms(sentence))
        return {term: math.log1p(len(sentences) / (1 + holding[term])) for term in asked}

    def of(self, text: str, tokens: int) -> str:
        """A text as it is if it is short enough, and otherwise its sentences that share most with the question.

        Sentences stay in their order, and "..." stands for what is left out. The speaker is kept. If no sentence fits,
        it is the beginning of the best one.

        Args:
            text: A turn, ``speaker: words``.
            tokens: Most tokens of the excerpt, without the speaker and the gaps; at least 1.
        """
        speaker, colon, words = text.partition(": ")
        if count_tokens(words) <= tokens:
            return text
        sentences = _sentences(words)
        own = [sum(self._weight[term] for term in self._weight.keys() & _terms(each)) for each in sentences]
        scores = [
            own[at] + _NEIGHBOUR * max(own[at - 1] if at else 0.0, own[at + 1] if at + 1 < len(own) else 0.0)
            for at in range(len(own))
        ]
        best_first = sorted(range(len(sentences)), key=lambda at: (-scores[at], at))
        kept = dict[int, str]()
        left = tokens
        for at in best_first:
            size = count_tokens(sentences[at])
            if size <= left:
                kept[at] = sentences[at]
                left -= size
        if not kept:
            kept = {best_first[0]: parts_of_tokens(sentences[best_first[0]], tokens)[0]}
        shown, end = "", 0
        for at in sorted(kept):
            shown += kept[at] if at == end else f" {GAP} {kept[at]}"
            end = at + 1
        if end < len(sentences) or kept[end - 1] != sentences[end - 1]:
            shown += f" {GAP}"
        return f"{speaker}{colon}{' '.join(shown.split())}"


@cached(2**14)
def _sentences(text: str) -> tuple[str, ...]:
    """The sentences and lines of a text, each with the white space after it; long ones in parts of whole words."""
    parts, start = list[str](), 0
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    for end in dict.fromkeys([*ends, len(text)]):
        size, begun = 0, start
        for word in _WORD.finditer(text, start, end):
            start = word.start()
            for piece in _pieces(word[0]):
                more = count_tokens(piece)
                if size and size + more > _MOST_OF_SENTENCE:
                    parts.append(text[begun:start])
                    size, begun = 0, start
                size += more
                start += len(piece)
        parts.append(text[begun:end])
        start = end
    return tuple(part for part in parts if part)


def _pieces(word: str) -> list[str]:
    """A word; a very long one, as in languages without blanks, in pieces."""
    return [word] if count_tokens(word) <= _MOST_OF_SENTENCE else parts_of_tokens(word, _PIECE)


@cached(2**16)
def _terms(sentence: str) -> frozenset[str]:
    return frozenset(terms(sentence))

"""Excerpts of long turns: the sentences that a question asks for, so that a small context holds more than one turn."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property, lru_cache

from locigraph.kg.language.terms import terms
from locigraph.retrieval.budgets import count_tokens

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
# A list or code without full stops is divided after so many tokens, or its longest line would be all that is shown.
_MOST_OF_SENTENCE = 40
# Share of a sentence's score that its neighbours get, since they often say what it is about.
_NEIGHBOUR = 0.3
_GAP = "..."


class Excerpts:
    """Excerpts for one question.

    Args:
        question: The question.
        texts: The texts that were found; a word of the question counts the more, the fewer of their sentences have it.
    """

    def __init__(self, question: str, texts: Sequence[str]) -> None:
        self._question, self._texts = question, texts

    @cached_property  # most contexts have no long turn
    def _weight(self) -> dict[str, float]:
        """How much each term of the question counts."""
        asked = frozenset(terms(self._question))
        sentences = [sentence for text in self._texts for sentence in _sentences(text)]
        holding = Counter(term for sentence in sentences for term in asked & _terms(sentence))
        return {term: math.log1p(len(sentences) / (1 + holding[term])) for term in asked}

    def of(self, text: str, tokens: int) -> str:
        """A text as it is if it is short enough, and otherwise its sentences that share most with the question.

        Sentences stay in their order, and "..." stands for what is left out. The speaker is kept.

        Args:
            text: A turn, ``speaker: words``.
            tokens: Most tokens of the excerpt, without the speaker and the gaps.
        """
        if count_tokens(text) <= tokens:
            return text
        speaker, colon, words = text.partition(": ")
        sentences = _sentences(words)
        own = [sum(self._weight[term] for term in self._weight.keys() & _terms(each)) for each in sentences]
        scores = [
            own[at] + _NEIGHBOUR * max(own[at - 1] if at else 0.0, own[at + 1] if at + 1 < len(own) else 0.0)
            for at in range(len(own))
        ]
        kept = []
        for at in sorted(range(len(sentences)), key=lambda at: (-scores[at], at)):
            size = count_tokens(sentences[at])
            if size <= tokens:
                kept.append(at)
                tokens -= size
        shown, end = [], 0
        for at in sorted(kept):
            shown += [_GAP, sentences[at]] if at > end else [sentences[at]]
            end = at + 1
        if end < len(sentences):
            shown.append(_GAP)
        return f"{speaker}{colon}{' '.join(shown)}"


@lru_cache(maxsize=2**14)
def _sentences(text: str) -> tuple[str, ...]:
    """The sentences and lines of a text; long ones in parts of whole words."""
    parts = []
    for sentence in _SENTENCE_END.split(text):
        size, words = 0, list[str]()
        for word in sentence.split():
            more = count_tokens(word)
            if words and size + more > _MOST_OF_SENTENCE:
                parts.append(" ".join(words))
                size, words = 0, []
            size += more
            words.append(word)
        if words:
            parts.append(" ".join(words))
    return tuple(parts)


@lru_cache(maxsize=2**16)
def _terms(sentence: str) -> frozenset[str]:
    return frozenset(terms(sentence))

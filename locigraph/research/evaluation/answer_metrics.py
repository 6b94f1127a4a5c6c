"""Scores of an answer by the words that it shares with a reference answer, as defined in the literature on LoCoMo."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence

import Stemmer

_PORTER = Stemmer.Stemmer("porter")
_ARTICLES = re.compile(r"\b(a|an|the|and)\b")
_TOKEN = re.compile(r"\w+|[^\w\s]")


def word_stems(text: str) -> list[str]:
    """Porter stems of the lower-case words, without punctuation, articles and "and"."""
    plain = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return [_PORTER.stemWord(word) for word in _ARTICLES.sub(" ", plain).split()]


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall of the ``word_stems``; 0 if no word is shared.

    Source:
        Maharana et al. 2024, "Evaluating Very Long-Term Conversational Memory of LLM Agents", arXiv:2402.17753, whose
        evaluation follows Rajpurkar et al. 2016 and adds "and" and stems.
    """
    given, wanted = word_stems(answer), word_stems(reference)
    shared = sum((Counter(given) & Counter(wanted)).values())
    return 2 * shared / (len(given) + len(wanted)) if shared else 0.0


def token_f1_of_parts(answer: str, reference: str) -> float:
    """For references that list things between commas: mean over these of the best ``token_f1`` of an answer part."""
    given = answer.split(",")
    best = [max(token_f1(part, wanted) for part in given) for wanted in reference.split(",")]
    return sum(best) / len(best)


def bleu_1(answer: str, reference: str) -> float:
    """Unigram BLEU with its brevity penalty, without stemming; 0 if no word is shared.

    Source:
        Papineni et al. 2002, "BLEU: a Method for Automatic Evaluation of Machine Translation", with n = 1.
    """
    given, wanted = _tokens(answer), _tokens(reference)
    shared = sum((Counter(given) & Counter(wanted)).values())
    if not shared:
        return 0.0
    return min(1.0, math.exp(1 - len(wanted) / len(given))) * shared / len(given)


def _tokens(text: str) -> Sequence[str]:
    return _TOKEN.findall(text.lower())

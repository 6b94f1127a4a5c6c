"""Words that a question looks up: whoever types a rare word, a code or a full name expects what has it first.

A vector of many words says little about any one of them, least of all that of a long turn. So of the best hits of v2,
those that alone have such a word get a bonus. Words of whole sentences are left to the vectors: rare ones are usually
there by chance, and a bonus for them does harm (docs/experiments/history.md, 2026-11-28).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Self

from locigraph.kg.language.mentions import capitalised
from locigraph.kg.language.terms import content_words, terms
from locigraph.kg.language.tokens import words
from locigraph.retrieval.protocols import Hit

#: Number of hits among which looked-up words are sought.
DEPTH = 50
_MOST_WORDS = 4  # of a question that is nothing but words to be found


@dataclass(frozen=True)
class LookedUp:
    """What a question looks up.

    Attributes:
        terms: The terms that are sought; none if the question looks nothing up.
        most: In how many of the best hits a term may occur to be told from common ones.
        bonus: What a hit gets for each of its terms.
        full_names: The terms of each name of several words. If a speaker has only a part of one, as a namesake has,
            what the speaker with all of it said gets the bonus.
    """

    terms: frozenset[str]
    most: int
    bonus: float
    full_names: tuple[frozenset[str], ...] = ()

    @classmethod
    def by(cls, question: str) -> Self:
        """What a question looks up: all its words if it is a few words without a sentence, else names and codes."""
        said = words(question)
        if (
            len(said) <= _MOST_WORDS
            and len(content_words(question)) == len(said)
            and question.strip()[-1:] not in "?？"
        ):
            return cls(frozenset(terms(question)), most=3, bonus=2.0)
        named = [word for word, is_first in capitalised(question) if not is_first]
        codes = [word for word in question.split() if any(map(str.isdigit, word))]
        sought = frozenset(terms(" ".join([*named, *codes])))
        runs = [" ".join(run) for is_name, run in groupby(question.split(), lambda w: bool(capitalised(w))) if is_name]
        names = [frozenset(terms(run)) for run in runs]
        return cls(sought, most=1, bonus=0.2, full_names=tuple(name for name in names if len(name) > 1))

    def first(self, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """The same hits; those among the first ``DEPTH`` that have looked-up words stand further up.

        Their score is raised by the bonus, which the signal ``looked_up`` names.
        """
        best = hits[:DEPTH]
        having = [self.terms & set(terms(hit.text)) for hit in best]
        count = Counter(term for found in having for term in found)
        speakers = [set(terms(hit.text.partition(": ")[0])) if self.full_names else set() for hit in best]
        ambiguous = [name for name in self.full_names if any(name & each and not name <= each for each in speakers)]
        raised = []
        for hit, found, speaker in zip(best, having, speakers, strict=True):
            telling = sum(count[term] <= self.most for term in found)
            bonus = self.bonus * (telling or any(name <= speaker for name in ambiguous))
            signals = {**hit.signals, "looked_up": bonus}
            raised.append(replace(hit, score=hit.score + bonus, signals=signals) if bonus else hit)
        return (*sorted(raised, key=lambda hit: -hit.score), *hits[DEPTH:])

"""Words that a question looks up: whoever types a rare word, a code or a full name expects what has it first.

A vector of many words says little about any one of them, least of all that of a long turn. So of the best hits of v2,
those that alone have such a word get a bonus. Words of whole sentences are left to the vectors: rare ones are usually
there by chance, and a bonus for them does harm (docs/experiments/history.md, 2026-11-28 and 2026-11-29).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Self

from locigraph.kg.language.languages import ENGLISH, language_of
from locigraph.kg.language.mentions import capitalised
from locigraph.kg.language.terms import content_words, terms
from locigraph.kg.language.tokens import words
from locigraph.kg.text_caches import cached
from locigraph.kg.types import NodeId
from locigraph.retrieval.hits import hits_of_matches
from locigraph.retrieval.protocols import Hit, VectorMatch

_FAR, _NEAR = 1_000, 50
_MOST_WORDS = 4  # of a question that is nothing but words to be found
_OF_A_NAME = 0.2  # bonus
_FEW_TERMS = 2  # of a question that asks for nothing else
_IRREGULAR = frozenset(["die", "lie", "tie"])
_MOST_SOUGHT = 32  # figures, and names: a question may be a whole text
#: Terms of words that ask, and say nothing of what is asked for; and of times, which vectors know.
_ASKING = frozenset(
    terms(
        "say said says mention mentioned talk talked tell told ask asked hear heard discuss discussed happen happened "
        "know knew remember recall come came see saw seen think thought find found anyone anybody someone anything "
        "something ever last first next time word when day week month year today yesterday tomorrow morning afternoon "
        "evening night weekend monday tuesday wednesday thursday friday saturday sunday january february march april "
        "may june july august september october november december spring summer autumn fall winter"
    )
)
_RARE = 0.003  # share of the hits in which a figure, a full name or the only word of a question occurs
_NO_LETTER_BEFORE = r"(?<![^\W_])"  # "user_id" has the word "id"
# Stems of other languages may begin otherwise than their words, and accents may be signs of their own.
_OTHER_LETTER = re.compile(r"[^\W\x00-\x7f]|[\u0300-\u036f]")


@dataclass(frozen=True)
class _Sought:
    """What is looked up together.

    Attributes:
        terms: Terms, and pairs of terms that stand side by side.
        bonus: What a hit gets that has all of them that tell hits apart; one that has some gets a share.
        depth: Number of hits among which they are sought.
        most: In how many of these a term may occur to tell hits apart; None for ``_RARE`` of them.
        is_whole: Whether none is looked up unless all of them tell hits apart.
        is_any: Whether one of them is enough for the whole bonus.
    """

    terms: frozenset[str]
    bonus: float
    depth: int = _FAR
    most: int | None = None
    is_whole: bool = False
    is_any: bool = False

    def bonuses(self, texts: _Texts) -> list[float]:
        """What each of the first hits gets, up to the depth."""
        count = min(self.depth, len(texts.texts))
        most = max(1, int(_RARE * count)) if self.most is None else self.most
        having: dict[str, list[int]] = {term: [] for term in self.terms}  # places; without terms of more hits
        needed = [(term, list(map(_starts, term.split()))) for term in sorted(self.terms)]
        for place in range(count):
            for term, starts in needed:
                if term in having and texts.has(place, term, starts):
                    having[term].append(place)
                    if len(having[term]) > most:
                        del having[term]
            if not having or (self.is_whole and len(having) < len(self.terms)):
                return [0.0] * count
        found = Counter(place for places in having.values() for place in places)
        shares = (float(place in found) if self.is_any else found[place] / len(having) for place in range(count))
        return [self.bonus * share for share in shares]


@dataclass(frozen=True)
class _Texts:
    """Texts of hits, which are divided into terms only where a search needs it, since that takes long.

    Attributes:
        texts: The texts, best hit first.
        lower: The same in lower case.
        terms: Terms of a text, and pairs of terms that stand side by side, by place, as far as they were needed.
    """

    texts: Sequence[str]
    lower: Sequence[str]
    terms: dict[int, frozenset[str]] = field(default_factory=dict)

    def has(self, place: int, term: str, starts: Sequence[tuple[str, re.Pattern[str]]]) -> bool:
        """Whether a text has a term or pair; mostly it is told by what its words must begin with (see ``_starts``)."""
        text = self.lower[place]
        for start, pattern in starts:
            if start not in text or not pattern.search(text):
                if text.isascii() or not _OTHER_LETTER.search(text):
                    return False
                break
        if place not in self.terms:
            found = terms(self.texts[place])
            self.terms[place] = frozenset((*found, *_pairs(found)))
        return term in self.terms[place]


@dataclass(frozen=True)
class LookedUp:
    """What a question looks up.

    Attributes:
        sought: Groups of terms that are looked up together; none if the question looks nothing up.
        full_names: The terms of each name of several words. If a speaker has only a part of one, as a namesake has,
            what the speaker with all of it said gets the bonus of a name.
        depth: Number of hits among which something is sought; 0 if nothing is.
    """

    sought: tuple[_Sought, ...] = ()
    full_names: tuple[frozenset[str], ...] = ()
    depth: int = 0

    @classmethod
    def by(cls, question: str) -> Self:
        """What a question looks up.

        All its words if it is a few words without a sentence; else codes, numbers and full names, or, if it has only
        one or two words of content, these; and, of the best hits alone, names.
        """
        said = words(question)
        in_order = terms(question)
        content = frozenset(in_order)
        if (
            len(said) <= _MOST_WORDS
            and len(content_words(question)) == len(said)
            and question.strip()[-1:] not in "?？"
        ):
            typed = content.union(_pairs(in_order))
            return cls((_Sought(typed, 2.0, most=3),), depth=_FAR) if typed else cls()
        marked = [(word, bool(capitalised(word)), any(map(str.isdigit, word))) for word in question.split()]
        # Names and figures, of which several in a row belong together.
        runs = [
            terms(" ".join(word for word, *_ in run))
            for is_marked, run in groupby(marked, lambda each: each[1] or each[2])
            if is_marked
        ]
        found = [term for run in runs for term in (*run, *_pairs(run))]
        exact = frozenset([term for term in found if " " in term or any(map(str.isdigit, term))][:_MOST_SOUGHT])
        groups = [_Sought(exact, 1.0)]
        if not exact and len(content - _ASKING) <= _FEW_TERMS and language_of(question) is ENGLISH:
            groups.append(_Sought(content - _ASKING, 0.7, is_whole=True))
        named = [word for word, is_first in capitalised(question) if not is_first][:_MOST_SOUGHT]
        groups.append(_Sought(frozenset(terms(" ".join(named))), _OF_A_NAME, depth=_NEAR, most=1, is_any=True))
        names = [
            frozenset(terms(" ".join(word for word, *_ in run)))
            for is_name, run in groupby(marked, itemgetter(1))
            if is_name
        ]
        sought = tuple(group for group in groups if group.terms)
        depth = max((group.depth for group in sought), default=0)
        return cls(sought, tuple(name for name in names if len(name) > 1), depth)

    def first(
        self, matches: Sequence[VectorMatch], texts: Mapping[NodeId, str], *, signal: str, top_k: int
    ) -> tuple[Hit, ...]:
        """The best hits of a vector search; those that have what is looked up stand further up.

        Their score is raised by the bonus, which the signal ``looked_up`` names.

        Args:
            matches: What the search found, best first.
            texts: Text by node ID; see ``hits_of_matches``.
            signal: Name under which the hits report the similarity.
            top_k: Number of hits.
        """
        known = [match for match in matches if match.node_id in texts]
        best = [texts[match.node_id] for match in known[: self.depth]]
        held = _Texts(best, [text.lower() for text in best])
        bonuses = [0.0] * len(known)
        for group in self.sought:
            for place, bonus in enumerate(group.bonuses(held)):
                bonuses[place] += bonus
        speakers = [{*terms(text.partition(": ")[0])} for text in best[:_NEAR]] if self.full_names else []
        ambiguous = [name for name in self.full_names if any(name & each and not name <= each for each in speakers)]
        for place, speaker in enumerate(speakers):
            if any(name <= speaker for name in ambiguous):
                bonuses[place] = max(bonuses[place], _OF_A_NAME)
        # Only hits are raised, so the best are among these.
        chosen = [place for place, bonus in enumerate(bonuses) if place < top_k or bonus]
        hits = hits_of_matches([known[place] for place in chosen], texts, signal=signal)
        raised = [
            replace(hit, score=hit.score + bonuses[place], signals={**hit.signals, "looked_up": bonuses[place]})
            if bonuses[place]
            else hit
            for place, hit in zip(chosen, hits, strict=True)
        ]
        return tuple(sorted(raised, key=lambda hit: -hit.score)[:top_k])


def _pairs(found: Sequence[str]) -> list[str]:
    return [f"{first} {second}" for first, second in pairwise(found)]


@cached(2**10)
def _starts(term: str) -> tuple[str, re.Pattern[str]]:
    """What every word begins with that has this stem, and a pattern of it where a word may begin.

    Of an English word and its stem at most the last letter differs, but for "dying" and the like.
    """
    if not term.isascii():
        start = term[:-1] or term
        return start, re.compile(re.escape(start))
    if term.isdigit():
        return term, re.compile(rf"{_NO_LETTER_BEFORE}{term}(?![^\W_])")
    start = term[:1] if term in _IRREGULAR else term[:-1] if len(term) > 2 else term
    return start, re.compile(_NO_LETTER_BEFORE + re.escape(start))

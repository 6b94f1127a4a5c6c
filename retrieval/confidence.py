"""How likely it is that a memory holds the answer of a question, and that a hit is evidence of it.

A score says little about whether there is an answer: the best turn about a thing that was never mentioned may score as
high as a true one. Five features of a search by v2 tell more: how high the best turn scores that the question can be
about, how far it stands out from the tenth, whether the names of the question are found in the best ten texts, and, if
the question names one of the speakers, whether this speaker's best turn scores higher than that of all others. Two
logistic regressions make probabilities of them.

The weights were fitted on the bundled corpora ``threads``, ``voices`` and ``duets`` (``benchmarks/confidence.py``): of
the questions without an answer there, a third are questions of which the evidence was taken away, a third name another
speaker than the evidence, and a third are asked of another conversation; there are as many questions with an answer.
A probability is thus about a memory that answers half of what it is asked. What it is worth on other talk is in
``docs/confidence.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from locigraph.kg.language.calendar_names import MONTHS, WEEKDAYS
from locigraph.kg.language.mentions import capitalised, name_words
from locigraph.kg.language.terms import stem
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever
from locigraph.retrieval.wrapping import WrappingRetriever

#: Number of hits that the features read.
READ = 50
_NAMED_IN = 10  # of them, the best whose texts are searched for the names of the question
_CALENDAR = frozenset((*MONTHS, *WEEKDAYS))
_FARTHEST = 5.0  # standard deviations
_LEAST_SCORE = 0.05


@dataclass(frozen=True, slots=True)
class Features:
    """What the answerability of a question is judged by.

    Attributes:
        log_score: Logarithm of the score of the best hit; of the named speaker's best, if the question names one.
        stands_out: The same score less that of the tenth hit.
        missing: Share of the names of the question, speakers left out, that the best ten texts do not have.
        own_speaker: Score of the named speaker's best hit less that of the best by others, in standard deviations of
            the scores; 0 if the question names no speaker or several.
        names_speaker: 1 if the question names one of the speakers, else 0.
    """

    log_score: float
    stands_out: float
    missing: float
    own_speaker: float
    names_speaker: float


# Weights of the features for the logarithm of the odds, in the order of ``Features``, and the constant.
_ANSWERED = (2.219, 1.882, -2.588, 0.473, -1.967)
_ANSWERED_CONSTANT = -0.033
# Of a hit: weights of the odds above, of log(1 + rank) and of its distance to the best score; and the constant.
_EVIDENCE = (0.877, -0.421, -5.802)
_EVIDENCE_CONSTANT = -1.139

#: Reads the names of those whose words nodes contain; nodes whose words may not be shown are left out.
SpeakersOf = Callable[[SpaceId, Sequence[NodeId]], Mapping[NodeId, frozenset[str]]]


def features_of(question: str, hits: Sequence[Hit], speakers: Mapping[NodeId, frozenset[str]]) -> Features | None:
    """The features of a search; None if nothing was found.

    Args:
        question: The question.
        hits: Hits of v2, best first; the first 50 are read.
        speakers: Names of those whose words each hit contains, by node ID; hits that are not in it are passed over.
    """
    read = [hit for hit in hits if hit.node_id in speakers][:READ]
    if not read:
        return None
    scores = [hit.score for hit in read]
    voices = [_voice(speakers[hit.node_id]) for hit in read]
    everybody = frozenset[str]().union(*voices)
    names = _names(question, everybody)
    named = {voice for voice in voices if not voice.isdisjoint(names)}
    best, own_speaker = scores[0], 0.0
    if len(named) == 1:
        (voice,) = named
        best = next(score for score, each in zip(scores, voices, strict=True) if each == voice)
        others = next((score for score, each in zip(scores, voices, strict=True) if each != voice), scores[-1])
        deviations = (best - others) / (_deviation(scores) + 1e-6)
        own_speaker = max(-_FARTHEST, min(_FARTHEST, deviations))
    wanted = [stem(name) for name in names if name not in everybody]
    missing = 0.0
    if wanted:
        found = {stem(word) for hit in read[:_NAMED_IN] for word in name_words(hit.text)}
        missing = sum(name not in found for name in wanted) / len(wanted)
    return Features(
        log_score=math.log(max(_LEAST_SCORE, best)),
        stands_out=best - scores[min(_NAMED_IN, len(scores)) - 1],
        missing=missing,
        own_speaker=own_speaker,
        names_speaker=float(len(named) == 1),
    )


def log_odds(features: Features) -> float:
    """Logarithm of the odds that the memory holds an answer."""
    values = (
        features.log_score, features.stands_out, features.missing, features.own_speaker, features.names_speaker,
    )  # fmt: skip
    return _ANSWERED_CONSTANT + sum(weight * value for weight, value in zip(_ANSWERED, values, strict=True))


def probability(odds: float) -> float:
    """The probability of which ``odds`` is the logarithm of the odds."""
    return 0.5 * (1 + math.tanh(odds / 2))  # without overflow, however far the scores are apart


class ConfidentRetriever(WrappingRetriever):
    """v2 with the probability of each hit that it is evidence, and that there is an answer; one for each question.

    Args:
        retriever: v2. What it adds to the scores of looked-up words tells nothing of whether there is an answer.
        speakers_of: Reads whose words hits contain, of those that may be shown.

    Attributes:
        confidence: The probability that the space holds an answer: 0 if nothing was found. None before the question.
    """

    def __init__(self, retriever: Retriever, speakers_of: SpeakersOf) -> None:
        super().__init__(retriever)
        self._speakers_of = speakers_of
        self._odds: float | None = None
        self.confidence: float | None = None

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        """See ``Retriever``; the hits have their ``confidence``."""
        found = self._retriever.retrieve(query, space, as_of=as_of, top_k=max(top_k, READ))
        judged = as_judged(found.hits)
        if self._odds is None:  # a search for more hits of the same question tells nothing new
            ranked = sorted(judged, key=lambda hit: -hit.score)
            for start in range(0, len(ranked), READ):  # the best of which any may be shown
                best = ranked[start : start + READ]
                features = features_of(query, best, self._speakers_of(space, [hit.node_id for hit in best]))
                if features is not None:
                    self._odds = log_odds(features)
                    break
            self.confidence = 0.0 if self._odds is None else probability(self._odds)
        if self._odds is None or not found.hits:
            return replace(found, hits=found.hits[:top_k])
        highest = max(hit.score for hit in judged)
        hits = [
            replace(hit, confidence=self._of_hit(rank, highest - same.score))
            for rank, (hit, same) in enumerate(zip(found.hits[:top_k], judged, strict=False))
        ]
        return replace(found, hits=tuple(hits))

    def _of_hit(self, rank: int, distance: float) -> float:
        assert self._odds is not None
        of_odds, of_rank, of_distance = _EVIDENCE
        return probability(
            _EVIDENCE_CONSTANT + of_odds * self._odds + of_rank * math.log1p(rank) + of_distance * distance
        )


def as_judged(hits: Sequence[Hit]) -> list[Hit]:
    """The hits without what v2 adds for looked-up words, which tells nothing of whether there is an answer."""
    added = [hit.signals.get("looked_up", 0.0) for hit in hits]
    return [replace(hit, score=hit.score - more) if more else hit for hit, more in zip(hits, added, strict=True)]


@lru_cache(maxsize=4_096)  # a conversation has few speakers
def _voice(names: frozenset[str]) -> frozenset[str]:
    return frozenset(word for name in names for word in name_words(name))


def _deviation(scores: Sequence[float]) -> float:
    mean = sum(scores) / len(scores)
    return math.sqrt(sum((score - mean) ** 2 for score in scores) / len(scores))


def _names(question: str, speakers: frozenset[str]) -> list[str]:
    """The words of a question that may be names, as ``name_words`` gives them; its first one only if a speaker's."""
    names = [
        name
        for word, is_first in capitalised(question)
        if word.lower() not in _CALENDAR
        for name in name_words(word)
        if not is_first or name in speakers
    ]
    return [*dict.fromkeys(names)]

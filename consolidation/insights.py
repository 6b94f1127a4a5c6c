"""Derives insights from several facts by fixed rules: statements that a person repeats, and lists of similar things.

This is a simple substitute for a language model. The patterns are English; other text gives no insights.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from locigraph.kg import products
from locigraph.kg.language.calendar_names import MONTHS, WEEKDAYS
from locigraph.kg.language.negation import is_negated
from locigraph.kg.language.terms import stem
from locigraph.kg.language.tokens import STOP_WORDS
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import NodeId

#: Lowest cosine at which two facts about a person count as the same statement.
SAME_FACT = 0.8
_FEWEST = 3  # smallest number of things that make a list
_MOST = 24  # largest number of things in a list, and of facts behind an insight


@dataclass(frozen=True, slots=True)
class Insight:
    """A statement that follows from several facts.

    Attributes:
        key: Stable identifier, by which the insight is recognised when it gains facts.
        label: A few words.
        text: One sentence.
        facts: The facts behind it, oldest first.
    """

    key: str
    label: str
    text: str
    facts: tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class ListRule:
    """A kind of things to list, and the pattern that finds them; the group that matches is the thing."""

    name: str
    pattern: re.Pattern[str]


_GENERAL = (
    "being|having|doing|going|getting|making|feeling|seeing|trying|thinking|knowing|hearing|keeping|taking|using|working"
    "|looking|spending|sharing|something|anything|everything|nothing|bringing|giving|coming|talking|saying|putting|thing"
    "|during|amazing|exciting|interesting|inspiring|relaxing"
)
_NO_DAY = rf"(?!(?:{'|'.join(name.title() for name in (*WEEKDAYS, *MONTHS))})s?\b)"
LIST_RULES: tuple[ListRule, ...] = (
    ListRule(
        "activities",
        re.compile(
            r"\b(?:enjoy|lov|lik|start|tri|try|go|goes|went|gone|into|practi[cs]|do|does|did|done|took up|been)"
            rf"\w*(?: (?:to|some|out|doing|more))? (?!(?:{_GENERAL})\b)([a-z]{{3,}}ing)\b"
            r"|\b([a-z]{3,}) (?:class|classes|lessons?|workshops?|club)\b"
        ),
    ),
    ListRule(
        "places",
        re.compile(
            r"\b(?:went|goes|go|going|gone|been|travel\w*|trips?|visit\w*|moved|flew|drove|vacation|holiday)"
            rf"(?: (?:to|in|around|through))? (?:the )?{_NO_DAY}([A-Z][\w'’]+(?: {_NO_DAY}[A-Z][\w'’]+)*)"
        ),
    ),
    ListRule("titles", re.compile(r"[\"“]([A-Z][^\"“”]{1,60})[\"”]")),
)
_CLAUSE_BORDER = re.compile(r"[.!?;:,\n]| (?:but|because|though|although) ")
_CANCEL = re.compile(r"\b(?:cancel|avoid|hat(?:e|es|ed|ing)\b|dislik|quit(?:s|ting)?\b)", re.IGNORECASE)
_RELATIVE = (
    "brother|sister|sibling|mother|father|mum|mom|dad|parents?|son|daughter|kids?|child|children|wife|husband|partner"
    "|girlfriend|boyfriend|friends?|cousin|uncle|aunt|niece|nephew|grand\\w+|boss|colleagues?|neighbou?rs?|room-?mates?"
    "|flat-?mates?|teacher|students?"
)
_NEARBY = 200  # most characters of a clause before or after a match; the limit keeps the time linear in the text


def insights_of(seen: Snapshot, facts: NDArray[np.int64]) -> list[Insight]:
    """All insights that follow from the facts in the given rows of a snapshot, which must have embeddings."""
    insights: list[Insight] = []
    for person, rows in _by_person(seen, facts).items():
        insights += _repeated(seen, person, rows)
        insights += _lists(seen, person, rows)
    return insights


def _by_person(seen: Snapshot, facts: NDArray[np.int64]) -> dict[str, list[int]]:
    """Rows of the facts about each speaker; a fact is about the speaker it names first, else about its only speaker."""
    speakers = list(dict.fromkeys(seen.speakers))
    names = [re.compile(rf"(?<!\w){re.escape(speaker)}(?!\w)", re.IGNORECASE) for speaker in speakers]
    speakers_of: dict[int, set[str]] = {}
    for row, turn in seen.provenance.tolist():
        speakers_of.setdefault(row, set()).add(seen.speakers[turn])
    people: dict[str, list[int]] = {}
    for row in facts.tolist():
        named = [(match.start(), i) for i, name in enumerate(names) if (match := name.search(seen.descriptions[row]))]
        if named:
            people.setdefault(speakers[min(named)[1]], []).append(row)
        elif len(speakers_of.get(row, ())) == 1:
            people.setdefault(next(iter(speakers_of[row])), []).append(row)
    return people


def _repeated(seen: Snapshot, person: str, rows: Sequence[int]) -> Iterator[Insight]:
    """Groups of similar facts that come from at least two sessions."""
    leaders: list[int] = []
    groups: dict[int, list[int]] = {}
    vectors = np.zeros((len(rows), seen.embeddings.shape[1]), dtype=np.float32)  # of the leaders
    for row in rows:
        cosines = products.with_rows(vectors[: len(leaders)], seen.embeddings[row])
        if leaders and float(cosines.max()) >= SAME_FACT:
            groups[leaders[int(cosines.argmax())]].append(row)
            continue
        vectors[len(leaders)] = seen.embeddings[row]
        leaders.append(row)
        groups[row] = [row]
    for leader, group in groups.items():
        count = len({seen.session_ids[seen.place_of[turn]] for row in group for turn in seen.turns_of[row]})
        if count > 1:
            yield Insight(
                f"repeated {seen.ids[leader]}",
                f"{person} repeatedly: {seen.labels[leader]}"[:100],
                f"{person} tells of it in {count} sessions: {seen.descriptions[leader]}",
                tuple(seen.ids[row] for row in group[:_MOST]),
            )


def _lists(seen: Snapshot, person: str, rows: Sequence[int]) -> Iterator[Insight]:
    for rule in LIST_RULES:
        names: dict[str, str] = {}
        behind: dict[str, int] = {}  # the first fact of each thing
        for row in rows:
            for name in _affirmed(rule, seen.descriptions[row], person):
                key = " ".join(stem(word) for word in name.lower().split())
                if key != stem(person.lower()) and name not in STOP_WORDS:
                    names.setdefault(key, name)
                    behind.setdefault(key, row)
        if len(names) >= _FEWEST:
            yield Insight(
                f"{rule.name} of {person}",
                f"{person}'s {rule.name}",
                f"{person}'s {rule.name}: {', '.join(list(names.values())[:_MOST])}.",
                tuple(seen.ids[row] for row in sorted(set(list(behind.values())[:_MOST]))),
            )


def _affirmed(rule: ListRule, text: str, person: str) -> Iterator[str]:
    """The things that a rule finds in a text, without those in a clause with a negation or a word such as "cancel".

    Those of "Ann's brother" are not Ann's, if he is the last that is named before the match.
    """
    named = re.compile(rf"(?<!\w){re.escape(person)}(?!\w)(?P<other>['’]s? (?:\w+ )?(?:{_RELATIVE})\b)?", re.I)
    borders = [0, *(end.end() for end in _CLAUSE_BORDER.finditer(text)), len(text)]
    for match in rule.pattern.finditer(text):
        name = next(group for group in match.groups() if group)
        begin = max(borders[bisect_right(borders, match.start()) - 1], match.start() - _NEARBY)
        before = [*named.finditer(text, max(0, match.start() - _NEARBY), match.start())]
        if before and before[-1]["other"]:
            continue
        clause = text[begin : min(borders[bisect_left(borders, match.end())], match.end() + _NEARBY)]
        # A title may hold a negation of its own: "No Country for Old Men".
        if not (is_negated(clause.replace(name, " ")) or _CANCEL.search(clause)):
            yield name

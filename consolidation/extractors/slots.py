"""Finds slots, attributes that have one value at a time: where somebody lives, what they work as, their favourites.

A statement with a new value supersedes the earlier fact, so only a plain statement of speakers about themselves counts:
not what they quote, report, deny, wish for or imagine, nor what was true in the past. A missed statement leaves two
facts side by side, whereas a false detection would end a true fact.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from locigraph.kg.language.dates import MONTHS, WEEKDAYS
from locigraph.kg.types import Attributes

_ADVERB = (
    r"(?:now|currently|just|recently|finally|still|already|actually|officially|happily|mostly|definitely|probably)"
)
_ADVERBS = rf"(?: {_ADVERB})*"
_I_AM = rf"\bI(?:['’]m|['’]ve(?: been)?| am| have(?: been)?)?{_ADVERBS}"
_MY = r"\b[Mm]y (?:(?:new|current|absolute|very|all-time) )?"
_WORKING = rf"{_I_AM} (?:work|working|(?:got|started|have) (?:a|my) (?:new )?job)"
_PLACE = r"(?P<value>[A-Z]\w+(?:[ -][A-Z]\w+){0,3})"
# The second word of a kind of work ("financial analyst") is no preposition or verb.
_NO_WORK = (
    "at|in|on|for|with|by|from|of|to|and|but|or|is|was|are|has|begins?|began|starts?|started|ends?|ended|here|there"
    "|now|again|since|until|near|who|which|that|this|these|every|so|because|while|when|where"
)
_WORK = rf"(?P<value>\w+(?: (?!(?:{_NO_WORK})\b)\w+)?)"
_SLOTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "home",
        re.compile(rf"{_I_AM} (?:(?:live|living)(?: now| back| over)* in|moved(?: now| back| over)* to) {_PLACE}"),
    ),
    ("work", re.compile(rf"(?:{_WORKING}|\b[Mm]y (?:new|current) job)(?: now)? (?:is )?as an? {_WORK}")),
    ("favourite", re.compile(rf"{_MY}favou?rite (?P<what>\w+) is (?:{_ADVERB} )*(?!no\b)(?P<value>[\w'’ ]+)")),
)
# Capitalised words after "in" and "moved to" that are no place: times, departments and software.
_NO_PLACE = frozenset(
    (
        *MONTHS, *WEEKDAYS, "spring", "summer", "autumn", "fall", "winter", "team", "group", "plan", "phase", "level",
        "grade", "year", "marketing", "sales", "engineering", "finance", "hr", "legal", "design", "product", "support",
        "operations", "accounting", "it", "research", "development", "security", "linux", "windows", "macos", "mac",
        "android", "ios", "gmail", "outlook", "python", "github", "gitlab", "slack", "teams", "zoom", "chrome",
        "firefox", "ubuntu", "fedora", "debian", "notion", "excel", "java", "rust", "iphone",
    )
)  # fmt: skip
# Work that people do beside other work.
_BESIDES = re.compile(
    rf"\b(?:volunteer\w*|part[- ]time|on the side|weekends?|evenings?|temporar\w+|(?:{'|'.join(WEEKDAYS)})s)\b",
    re.IGNORECASE,
)
# Separators before which the clause of a statement does not reach, and words in it that make the statement untrue.
_JOINED = r"[;()–—]|\b(?:and|but|so|because|since|when|while|now that)\b"
_CLAUSE = re.compile(rf"[,:]|{_JOINED}")
_DENIED = re.compile(
    r"\b(?:not|never|no longer|nobody|cannot|hardly|almost|nearly|pretend\w*|imagin\w+|suppos\w+|dream\w*|jok\w+"
    r"|lied|lying)\b|n['’]t\b",
    re.IGNORECASE,
)
# Reported speech without quotation marks: "Tom said, I live ..." before the statement, or ", said Tom" after it.
_REPORT = re.compile(_JOINED)
_REPORTED_AFTER = re.compile(r",[^,;.]{0,40}")
_REPORTED = re.compile(
    r"\b(?:say|says|said|saying|tell|tells|told|telling|claims?|claimed|thinks?|thought|believes?|believed|wrote|writes"
    r"|written|writing|asks?|asked|heard|hears|assumes?|assumed|insists?|insisted|replied|replies|answered|answers"
    r"|texted|texts|quot\w+|reads?)\b",
    re.IGNORECASE,
)
# Words that, anywhere in a sentence, show that it may be hypothetical or about the past.
_NOT_NOW = re.compile(
    r"\b(?:if|unless|whether|wish\w*|hope|hoping|would|could|might|maybe|perhaps|used to|ago|back then|back when"
    r"|at the time|anymore|any more|until|as a (?:child|kid|boy|girl|student|teenager)|when i was|years? before)\b"
    r"|\bI['’]d\b"
    r"|\b(?:in|since) (?:1\d|20)\d\d\b|^\W*(?:when|once|as soon as|after|before|by the time)\b",
    re.IGNORECASE,
)

_LONGEST = 1_500  # characters of a sentence that are read, the same as a fact keeps


class Slot(NamedTuple):
    """A slot with its value.

    Attributes:
        name: Speaker and slot, such as "Ann:home".
        value: The value in lower case.
    """

    name: str
    value: str

    def replaces(self, attributes: Attributes) -> bool:
        """Whether a fact with these attributes has another value of the slot, and not only a longer or shorter one."""
        earlier = str(attributes.get("value"))
        is_same = f"{earlier} ".startswith(f"{self.value} ") or f"{self.value} ".startswith(f"{earlier} ")
        return attributes.get("slot") == self.name and not is_same


def stated_slot(sentence: str, speaker: str) -> Slot | None:
    """The slot whose value the speaker plainly states in the unquoted part of a sentence; None if there is none."""
    sentence = sentence[:_LONGEST]
    if _NOT_NOW.search(sentence):
        return None
    for name, pattern in _SLOTS:
        for match in pattern.finditer(sentence):
            before = sentence[: match.start()]
            groups = match.groupdict()
            value = groups["value"].strip().lower()
            is_denied = _DENIED.search(_last(_CLAUSE, before)) or _DENIED.search(value)
            if is_denied or _is_reported(before, sentence[match.end() :]):
                continue
            if (name == "home" and value.split()[0] in _NO_PLACE) or (name == "work" and _BESIDES.search(sentence)):
                continue
            what = f":{groups['what'].lower()}" if "what" in groups else ""
            return Slot(f"{speaker}:{name}{what}", value)
    return None


def _is_reported(before: str, after: str) -> bool:
    """Whether a statement may be reported speech, judging by the text before and after it."""
    clause = _last(_REPORT, before)
    clause_after = _REPORTED_AFTER.search(after)
    return ":" in clause or bool(_REPORTED.search(clause) or (clause_after and _REPORTED.search(clause_after[0])))


def _last(separator: re.Pattern[str], text: str) -> str:
    """What follows the last separator in a text."""
    return text[max((match.end() for match in separator.finditer(text)), default=0) :]

"""The tense of the English words around a time expression: what has happened, and what lies ahead."""

from __future__ import annotations

import re
from typing import Literal

#: How far back the words before an expression are read; the limit keeps the time linear in the text.
NEARBY = 120
_CLAUSE_BORDER = re.compile(r"(?<!\b[dm]r)(?<!\bmrs)[.!?;:,\n]| (?:but|because) ")
_PAST_VERB = re.compile(
    r"\b(?:(?<!\bget )(?<!\bgetting )(?!excited|scheduled|supposed|indeed|hundred)\w{3,}ed"
    r"|(?:was|were)(?: going to)?|(?<!ve )got|won(?![’'])|went|had|did|made|took|saw|met|came|found"
    r"|bought|gave|told|said|lost|began|left|felt|taught|built|wrote|ran|spent"
    r"|brought|chose|drove|flew|grew|held|kept|knew|led|sold|sent|sang|swam|wore|ate|fell|heard|thought|caught|broke|slept"
    r"|been|seen|done|gone|(?:was|were|had|did|have|has)n[’']t)\b"
)
# A verb of the future counts even after a past verb; other signs only without one ("I had an appointment on Friday").
_FUTURE_VERB = re.compile(
    r"\b(?:will|won[’']t|going to|gonna)\b|[’']ll\b|(?:\b(?:am|is|are|s?he[’']s|it[’']s)|[’'](?:m|re))"
    r" (?:(?!an? |the |my |this )\w+ )?(?!\w*thing\b|morning|evening)\w+ing\b"
)
# "The exam is on Monday", "there's a concert on Friday", "I fly to Rome on Friday": plans in the present tense.
_SCHEDULED = re.compile(
    r"(?:(?:\b(?:am|is|are)|\b(?:it|he|she|that|this)['’]s|['’](?:m|re))"
    r"(?: (?:not|now|only|back|off|away|out|in|home|here|there|free|busy|open|closed|due|scheduled|planned|set))?"
    r"(?: at [\w'’:.-]{1,30}(?: [\w'’-]{1,30}){0,2})?"
    r"|\bthere(?:['’]s| is| are)(?: [\w'’-]{1,30}){1,6}"
    r"|\b(?:leaves?|starts?|begins?|arrives?|departs?|opens?|lands?|fly|flies|returns?|meets?|travels?)"
    r"(?: [\w'’-]{1,30}){0,4}) ?$"
)
_PUT_OFF = re.compile(
    r"\b(?:moved|postponed|rescheduled|pushed(?: back)?|put off|brought forward)(?: from [\w ]{1,30})? (?:to|until) ?$"
)
_FUTURE_SIGN = re.compile(
    r"\b(?:(?:have|[’']ve got) (?:an?|my|the)|see (?:my|the|you)|appointments?|due|plan(?:s|ning)?|next(?! to))\b"
)
# What has happened on the day that is named; what was booked, chosen or heard of may lie ahead.
_HAPPENED = frozenset(
    re.findall(
        r"\w+",
        "was were graduated met broke married died fell moved started began finished left quit lost won visited went"
        " saw came flew travelled traveled ran celebrated retired got sang swam slept ate happened opened closed",
    )
)


def _clause_before(match: re.Match[str]) -> str:
    """The words before an expression, back to the beginning of its clause."""
    return _CLAUSE_BORDER.split(match.string[max(0, match.start() - NEARBY) : match.start()])[-1]


def tense_before(match: re.Match[str]) -> Literal["past", "future"] | None:
    """The tense of the words before an expression in its clause; None if it is not clear."""
    clause = _clause_before(match)
    if _PUT_OFF.search(clause):
        return "future"
    *before, rest = _PAST_VERB.split(clause)
    if _FUTURE_VERB.search(rest) or (not before and _FUTURE_SIGN.search(rest)):
        return "future"
    planned = _SCHEDULED.search(clause.removesuffix("on "))  # which may end with "closed" or "planned"
    if planned and not _PAST_VERB.search(clause, 0, planned.start()):
        return "future"
    return "past" if before else None


def tense_around(match: re.Match[str]) -> Literal["past", "future"] | None:
    """The tense of the words before an expression; if it is not clear, those after it may speak of the future."""
    tense = tense_before(match)
    if tense is not None:
        return tense
    after = _CLAUSE_BORDER.split(match.string[match.end() : match.end() + NEARBY], maxsplit=1)[0]
    future, past = _FUTURE_VERB.search(after), _PAST_VERB.search(after)
    return "future" if future and (past is None or future.start() < past.start()) else None


def side_of(match: re.Match[str]) -> Literal[-1, 0, 1]:
    """On which side of the day of speaking a date without a year lies, by the tense of its clause; 0 if not clear.

    It counts only where the nearest such date is months away: "I'll never forget the concert on 3 May".
    """
    if match[0].startswith("since "):
        return -1
    tense = tense_around(match)
    if tense != "past":
        return 0 if tense is None else 1
    return -1 if _PAST_VERB.findall(_clause_before(match))[-1] in _HAPPENED else 0

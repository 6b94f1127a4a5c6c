"""Finds the months, days and years that a question names, for matching against dated memories."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import date, timedelta

from locigraph.kg.language.calendar_names import MONTHS
from locigraph.kg.language.dates import MONTH, find_times, month_number, resolve_times, time_rules
from locigraph.kg.language.english_tense import NEARBY
from locigraph.kg.language.foreign_times import with_english_times


@dataclass(frozen=True, slots=True)
class CalendarPart:
    """A date of which some parts may be unknown; None stands for an unknown part."""

    year: int | None = None
    month: int | None = None
    day: int | None = None


_MONTH_WORD = re.compile(rf"\b{MONTH}\b")
_YEAR_WORD = re.compile(r"\b((?:19|20)\d\d)\b")
_DAY = r"(?:the )?\d{1,2}(?:st|nd|rd|th)?"
_OR = r"(?:, ?| ?[-–&/] ?| (?:and|or|to|until|till|through) )"
_DAYS_BEFORE = re.compile(rf"(?<![\w:.,-])(?:{_DAY}{_OR}){{0,4}}{_DAY}(?: of)?,? $")
_DAYS_AFTER = re.compile(rf",? {_DAY}(?![\w:]|[.,]\d| ?[ap]\.?m)(?:{_OR}{_DAY}(?![\w:]|[.,]\d| ?[ap]\.?m)){{0,4}}")
# "may" is read as a month only next to a preposition or a number; the names of people and verbs not as a subject.
_MAY_AS_MONTH = re.compile(
    r"\b(?:in|of|on|since|during|by|for|from|about|around|until|till|before|after|between|mid|last|next|the"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?|{MONTH} (?:and|or|to|until|till|through)) may\b|\bmay,? \d"
    r"|\b(?:early|late) may\b(?! (?:i|we|he|she|it|they|you)\b)"
)
_SUBJECTS = frozenset(["march", "april", "june", "august"])
_BEFORE_A_SUBJECT = re.compile(r"\b(?:did|does|has|had|will|would|can|could|should|might) $")
_BEFORE_A_VERB = re.compile(r"\b(?:i|we|he|she|they|you|to) $")


_FULL_NAMES = {month[:3]: month for month in MONTHS} | {"sept": "september"}
_SHORT_NAME = re.compile(
    rf"(?:(?<=\d )|(?<=\d(?:st|nd|rd|th) )|(?<=\b(?:in|of|on) )|(?<=\bearly )|(?<=\b(?:last|next|this|late) )"
    rf"|(?<=\b(?:since|until) )|(?<=\bduring ))({'|'.join(_FULL_NAMES)})\b\.?(?!['’])"
    rf"|\b({'|'.join(_FULL_NAMES)})\b\.?(?=,? \d)"
)
_IN_NUMBERS = re.compile(r"(?<![\w./-])(?:(\d{4})-(\d\d)-(\d\d)|\d{1,2}([./])\d{1,2}\4(?:19|20)\d\d)(?![\w/-]|\.\d)")


def _spelled_out(lowered: str) -> str:
    """A question with its short names of months and its dates in numbers written in full: "3 september 2024"."""

    def in_words(match: re.Match[str]) -> str:
        found = find_times(match[0], None, time_rules())
        days = found[0][2] if found else None
        return match[0] if days is None else f"{days[0].day} {MONTHS[days[0].month - 1]} {days[0].year}"

    full = _SHORT_NAME.sub(lambda match: _FULL_NAMES[match[1] or match[2]], lowered)
    return _IN_NUMBERS.sub(in_words, full)


def _days_beside(text: str, month: re.Match[str]) -> list[int]:
    """The days of the month that are named before or after its name: "12 and 13 May", "May 30 or 31"."""
    before = _DAYS_BEFORE.search(text, max(0, month.start() - NEARBY), month.start())
    after = _DAYS_AFTER.match(text, month.end())
    beside = f"{before[0] if before else ''} {after[0] if after else ''}"
    return [day for day in map(int, re.findall(r"\d+", beside)) if 1 <= day <= 31]


def _is_month(match: re.Match[str]) -> bool:
    """Whether what may be a verb or somebody's name is a month: "in June", but not "What did June say?"."""
    text = match.string
    if match[1] == "may":
        return any(found.start() <= match.start() < found.end() for found in _MAY_AS_MONTH.finditer(text))
    before = text[max(0, match.start() - NEARBY) : match.start()]
    is_verb = match[1] == "march" and _BEFORE_A_VERB.search(before)
    return not (is_verb or (match[1] in _SUBJECTS and _BEFORE_A_SUBJECT.search(before)))


def calendar_parts(text: str, asked_on: date | None = None) -> list[CalendarPart]:
    """Months, days and years that a question names, for matching against dated memories.

    Args:
        text: A question.
        asked_on: The day of the question. If it is given and the question names no calendar date, relative
            expressions are used instead: the days of up to a week, the months of up to a month, or a whole year.

    Returns:
        The dates in order, without duplicates. "in May" gives only the month; "7 May 2023" gives all three parts.
    """
    lowered = _spelled_out(with_english_times(text))
    years = [(year.start(), int(year[1])) for year in _YEAR_WORD.finditer(lowered)]
    without_years = _YEAR_WORD.sub(lambda year: " " * len(year[0]), lowered)  # a slice may cut a year in two
    parts: dict[CalendarPart, None] = {}
    for match in _MONTH_WORD.finditer(lowered):
        if not _is_month(match):
            continue
        month = month_number(match[1])
        days = _days_beside(without_years, match)
        # The next year after the month, or else the last one before it.
        following = bisect_left(years, (match.end(), 0))
        year = years[min(following, len(years) - 1)][1] if years else None
        for day in days or (None,):
            parts.setdefault(CalendarPart(year, month, day))
    if years and not parts:
        parts.update({CalendarPart(year): None for _, year in years})
    if asked_on is not None and not parts:
        for expression in resolve_times(text, asked_on):
            parts.update(dict.fromkeys(_parts_of(expression.first, expression.last)))
    return list(parts)


def _parts_of(first: date, last: date) -> list[CalendarPart]:
    """The days of a period of up to a week, the months of one of up to a month, or a whole year; empty for others."""
    days = [first + timedelta(days=offset) for offset in range(min(32, (last - first).days + 1))]
    if len(days) <= 7:
        return [CalendarPart(day.year, day.month, day.day) for day in days]
    if len(days) <= 31:
        return [CalendarPart(year, month) for year, month in dict.fromkeys((day.year, day.month) for day in days)]
    is_year = (first, last) == (date(first.year, 1, 1), date(first.year, 12, 31))
    return [CalendarPart(first.year)] if is_year else []

"""Resolves the time that a question names, with words that move it ("the week before 9 June") or leave an end open.

Texts that are remembered are read without these rules, by ``resolve_times`` alone, which reads "I got the dog before
9 June" as 9 June. The seasons are those of the northern hemisphere, in whole months: spring from March, summer from
June, autumn from September, winter from December. An ambiguous expression, such as "winter 2022", names no time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from itertools import takewhile

from locigraph.kg.language.calendar_names import MONTHS, WEEKDAYS
from locigraph.kg.language.dates import (
    ALONE,
    COUNT,
    UNITS,
    Days,
    Reader,
    Rule,
    find_times,
    number_in,
    time_rules,
    weekday_from,
)
from locigraph.kg.language.foreign_times import with_english_times
from locigraph.kg.text_caches import cached
from locigraph.kg.times import EARLIEST, LATEST

#: Ends of a range that a question leaves open: the first and the last day that can be stored.
FIRST_DAY, LAST_DAY = EARLIEST.date(), LATEST.date() - timedelta(days=1)
# How many characters before an expression are read; the limit keeps the time linear in the text.
_NEARBY = 80
_DAY = timedelta(days=1)
_BEFORE_A_YEAR = ("before ", "prior to ", "after ", "until ", "till ", "by ", "early ", "late ", "mid ", "mid-")
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}  # first month


@cache
def _rules() -> tuple[Rule, ...]:
    season, month, year = rf"({'|'.join(_SEASONS)})", rf"({'|'.join(MONTHS)})", r"((?:19|20)\d\d)"
    after_words = "|".join(rf"(?<=\b{words})" for words in _BEFORE_A_YEAR)
    absolute: list[tuple[str, Reader]] = [
        (rf"\b{season},? (?:of )?{year}\b", lambda m, _: None if m[1] == "winter" else _season(m[1], int(m[2]))),
        (rf"(?:{after_words}){year}\b", lambda m, _: (date(int(m[1]), 1, 1), date(int(m[1]), 12, 31))),
    ]
    relative: list[tuple[str, Reader]] = [
        (rf"{ALONE}{COUNT} weekends? ago\b", lambda m, d: UNITS["weekend"](d, -number_in(m[1]))),
        (rf"\b(?:last|past) {season}\b(?!,? (?:of )?\d)", lambda m, d: _last_season(d, m[1])),
        # Not "this winter", of which it is often not clear which is meant.
        (r"\bthis (spring|summer|autumn|fall)\b(?!,? (?:of )?\d)", lambda m, d: _season(m[1], d.year)),
        (
            r"\b(?:in|over|during|within|throughout|for|from|of) (?:the )?(?:last|past)"
            rf" {COUNT} (day|week|month|year)s?\b(?! of\b)",
            lambda m, d: (_earlier(d, number_in(m[1]), m[2]), d),
        ),
        (
            r"\b(?:in|over|during|within|throughout) the (?:last|past) (day|week|month|year)\b(?! of\b)",
            lambda m, d: (_earlier(d, 1, m[1]), d),
        ),
        (
            rf"\bsince {month}\b(?!,? (?:\d|of \d))",
            lambda m, d: UNITS["month"](d, -((d.month - 1 - MONTHS.index(m[1])) % 12)),
        ),
    ]
    rules = [(re.compile(p), read, False) for p, read in absolute]
    # Of two rules for the same words, those of questions win.
    return (*rules, *((re.compile(p), read, True) for p, read in relative), *time_rules())


def _season(name: str, year: int) -> Days:
    """The season of a name that begins in a year."""
    begin = date(year, _SEASONS[name], 1)
    return begin, UNITS["month"](begin, 2)[1]


def _last_season(day: date, name: str) -> Days:
    """The latest season of a name that is over."""
    seasons = (_season(name, day.year - back) for back in range(3))
    return next(days for days in seasons if days[1] < day)


def _earlier(day: date, number: int, unit: str) -> date:
    """The day a number of units before a day; the last day of the month if it has no such day."""
    if unit in ("day", "week"):
        return day - timedelta(days=number * (7 if unit == "week" else 1))
    first, last = UNITS["month"](day, -number * (12 if unit == "year" else 1))
    return first.replace(day=min(day.day, last.day))


# Words between "before" and the days: "before the end of May" is before a part of May.
_PARTS = frozenset({
    "beginning", "start", "middle", "end", "half", "early", "mid", "mid-", "late", "first", "second", "third", "fourth",
    "last", "day", "days", "week", "weeks", "weekend",
})  # fmt: skip
_BETWEEN = _PARTS | {"the", "of", "very", *WEEKDAYS}
_LEADING = frozenset({"in", "during", "since", "by", "of", "early", "late", "the"})  # first words of some expressions
# What the last words before an expression mean.
_BOUNDS = {
    ("before",): "before", ("prior", "to"): "before", ("after",): "after", ("since",): "since", ("until",): "until",
    ("till",): "until", ("up", "to"): "until", ("by",): "until", ("no", "later", "than"): "until",
    ("not", "later", "than"): "until", ("not", "before"): "since",
}  # fmt: skip
_LOWER, _UPPER = frozenset({"after", "since"}), frozenset({"before", "until"})
_STEPS = {"before": -1, "after": 1}
_BEFORE_A_UNIT = frozenset({"the", "last", "in", "on", "over", "during"})  # "the week before 9 June"
# A number after one of these is part of a longer one, an estimate, or a duration: "in the two weeks before 9 June".
_NOT_BEFORE_A_COUNT = frozenset({
    "or", "to", "and", "half", "hundred", "than", "least", "most", "the", "last", "past", "in", "over", "during",
    "within", "for",
})  # fmt: skip
_NUMBER = re.compile(COUNT)


@dataclass(frozen=True, slots=True)
class _Named:
    """Days that an expression names together with the words before it.

    Attributes:
        days: The first and the last day.
        words: How many words before the expression belong to it.
        bound: The word that leaves an end open, as in ``_BOUNDS``; None if the days are named by themselves.
    """

    days: Days
    words: int = 0
    bound: str | None = None


@cached(4_096)  # several strategies ask the same question
def question_days(text: str, asked_on: date | None) -> Days | None:
    """First and last day of the time that a question names.

    "before" and "until" leave the first day open, "after" the last one; "since" reaches to the day of asking. Several
    times are taken together, from the first day to the last, but "after May and before July" is what both allow.

    Args:
        text: A question, or a part of one.
        asked_on: The day it is asked. With None only absolute dates are resolved, and "since" has no last day.

    Returns:
        The days, of which ``FIRST_DAY`` and ``LAST_DAY`` stand for an open end; None if the text names no time.
    """
    lowered = with_english_times(text)
    named: list[_Named] = []
    reached = 0
    for start, end, days in find_times(lowered, asked_on, _rules()):
        found = None if days is None else _named(_words_before(lowered, start), lowered[start:end], days, asked_on)
        if found is None:
            continue
        between = lowered[reached:start].split()
        reached = end
        if named and found.words > len(between):  # in "last weekend before 9 June", "last weekend" is no time by itself
            named.pop()
        elif named and (joined := _joined(named[-1], found, between[: len(between) - found.words])) is not None:
            named[-1] = joined
            continue
        named.append(found)
    if not named:
        return None
    bounds = {each.bound for each in named}
    if len(named) == 2 and bounds & _LOWER and bounds & _UPPER:  # "Since May, what has changed until August?"
        first, last = max(each.days[0] for each in named), min(each.days[1] for each in named)
        return (first, last) if first <= last else None
    first, last = min(each.days[0] for each in named), max(each.days[1] for each in named)
    return None if (first, last) == (FIRST_DAY, LAST_DAY) else (first, last)


def _words_before(lowered: str, start: int) -> list[str]:
    begin = max(0, start - _NEARBY)
    words = lowered[begin:start].split()
    return words[1:] if begin else words  # the first one may be cut


def _named(said: Sequence[str], expression: str, days: Days, asked_on: date | None) -> _Named | None:
    """What an expression names together with the words before it; None if that is no time or an ambiguous one."""
    words = [*said, *takewhile(_LEADING.__contains__, expression.split())]
    if words[-2:] in (["week", "of"], ["weekend", "of"]) and days[0] == days[1]:
        unit = words[-2]
        if unit == "weekend" and days[0].weekday() < WEEKDAYS.index("friday"):
            return None
        days = UNITS[unit](days[0], 0)
        del words[-2:]
    is_part = False
    while words and (word := words[-1].rstrip(",")) in _BETWEEN:
        is_part |= word in _PARTS
        words.pop()
    # The longest first: "not before" is no "before".
    size = next((size for size in (3, 2, 1) if tuple(words[-size:]) in _BOUNDS), None)
    if size is None:
        return _Named(days)
    bound = _BOUNDS[tuple(words[-size:])]
    del words[-size:]
    if words[-1:] == ["not"] or (words[-1:] in (["or"], ["and"]) and tuple(words[-2:-1]) in _BOUNDS):
        return None  # "not after", "before or after"
    beside = None if is_part or bound not in _STEPS else _beside(words, days, _STEPS[bound])
    if beside is not None:
        named = _Named(beside, len(said) - len(words) + 1)
    else:
        first, last = days
        open_days = {
            "before": (FIRST_DAY, last if is_part else first - _DAY),
            "after": (first if is_part else last + _DAY, LAST_DAY),
            "since": (first, asked_on or LAST_DAY),
            "until": (FIRST_DAY, last),
        }
        named = _Named(open_days[bound], max(0, len(said) - len(words)), bound)
    return named if FIRST_DAY <= named.days[0] <= named.days[1] <= LAST_DAY else None


def _beside(words: Sequence[str], days: Days, step: int) -> Days | None:
    """The days that a unit or a weekday names directly before other days (step -1) or after them (step 1).

    Args:
        words: The words up to the unit: "the week", "on the Monday", "two weeks".
        days: The other days.
        step: The direction.

    Returns:
        The days; None if the words end with no unit, or it is not clear which days are meant.
    """
    *earlier, name = words or [""]
    near = days[0] if step < 0 else days[1]
    unit = name.removesuffix("s")
    if earlier and unit in UNITS and _NUMBER.fullmatch(earlier[-1]):
        is_clear = not any(word in _NOT_BEFORE_A_COUNT or _NUMBER.fullmatch(word) for word in earlier[-2:-1])
        # Like "two weeks ago", said on that day.
        return UNITS[unit](near, step * number_in(earlier[-1])) if is_clear and days[0] == days[1] else None
    if earlier and earlier[-1] not in _BEFORE_A_UNIT:
        return None
    if name in WEEKDAYS:
        return weekday_from(near, name, step)
    if name == "week":
        return (near - 7 * _DAY, near - _DAY) if step < 0 else (near + _DAY, near + 7 * _DAY)
    if name == "weekend":
        is_over = near.weekday() >= WEEKDAYS.index("saturday")
        return UNITS[name](near, -1 if step < 0 else int(is_over))
    # "the month before 9 June" may be May or reach to 8 June.
    is_clear = name == "day" or (name in UNITS and near == UNITS[name](near, 0)[0 if step < 0 else 1])
    return UNITS[name](near, step) if is_clear else None


def _joined(earlier: _Named, later: _Named, between: Sequence[str]) -> _Named | None:
    """What two times name together if the words between them join them; None if each stands for itself."""
    if later.bound == "until" and earlier.bound is None and not between:  # "from 3 March 2021 until 9 April 2021"
        return _Named((earlier.days[0], later.days[1])) if earlier.days[0] <= later.days[1] else None
    is_bound = (earlier.bound is not None, later.bound is not None)
    # "in 2023 before June 2023", "after May 2023 and before July 2023"
    if not (all(is_bound) if set(between) & {"and", "but"} else any(is_bound)) or set(between) - {"and", "but", ","}:
        return None
    first, last = max(earlier.days[0], later.days[0]), min(earlier.days[1], later.days[1])
    return _Named((first, last), bound=earlier.bound) if first <= last else None

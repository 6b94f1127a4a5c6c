"""Resolves time expressions in dialogue and questions, relative to the day on which they were said.

This is done in code because language models often leave "last Saturday" unresolved. The patterns are English; the times
of other languages are translated first (``kg.language.foreign_times``). Each match gives a range of whole days; an
ambiguous expression is left out rather than guessed.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache

from locigraph.kg.language.calendar_names import MONTHS, WEEKDAYS
from locigraph.kg.language.english_tense import NEARBY, side_of, tense_around, tense_before
from locigraph.kg.language.foreign_times import with_english_times
from locigraph.kg.text_caches import cached
from locigraph.kg.times import EARLIEST, LATEST

_AND = r"(?: ?[-–] ?| (?:to|and|or|until|till|through) )"
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "couple of": 2, "a couple of": 2, "three": 3, "four": 4, "five": 5,
    "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30,
    "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "a few": 3,
}  # fmt: skip
_ORDINAL_WEEKS = {"first": 0, "second": 1, "third": 2, "fourth": 3}

#: Pattern of the full name of a month.
MONTH = rf"({'|'.join(MONTHS)})"
_SHORT_MONTH = rf"({'|'.join([*MONTHS, 'sept', *(month[:3] for month in MONTHS)])})\.?"
_WEEKDAY = rf"({'|'.join(WEEKDAYS)})"
# Short forms, of which some are words of their own, so that they count only after "last", "next" and the like.
_SHORT_WEEKDAY = rf"({'|'.join(WEEKDAYS)}|mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)\b\.?"
# After "on", where "sun" and "sat" may be words: "it depends on sun and rain".
_AFTER_A_WEEKDAY = (
    r" ?[^\w ]| ?$| (?:at|around|about|for|with|after|before|my|our|i|we|he|she|they|you|when|because|but|so|if|morning"
    r"|afternoon|evening|night|\d)| (?:and|or) (?:mon|tue|wed|thu|fri|sat|sun)"
)
_ON_SHORT_WEEKDAY = rf"({'|'.join(WEEKDAYS)}|tues?|thu(?:rs?)?|fri|(?:mon|wed|sat|sun)(?={_AFTER_A_WEEKDAY}))\b\.?"
_NO_SUBJECT = "".join(rf"(?<!\b{word} )" for word in ("i", "we", "he", "she", "they", "you"))  # "I last sat there"
# Words before a weekday that make it no particular day ("every Monday", "by Monday"), or are part of other rules.
_NO_DAY_AFTER = "".join(
    rf"(?<!\b{word} )"
    for word in (
        "every", "each", "any", "most", "some", "a", "an", "the", "on", "last", "past", "next", "this", "coming", "of",
        "by", "until", "till", "since", "before", "after", "from", "to", "through", "and", "or", "for", "than", "my",
        "other", "another", "that", "one", "all", "both", "first", "second", "third", "fourth", "fifth", "following",
        "previous", "same", "good", "black", "easter", "ash", "holy", "cyber", "super",
    )
)  # fmt: skip
# Words that may follow "March 12" or "12 May" where it is a day; before other words these may be verbs and a number.
_AFTER_A_DAY = (
    "at|in|on|and|or|to|for|with|by|from|we|i|he|she|they|you|it|the|when|because|but|so|if|was|is|will|as|after|before"
    "|until|till|around|this|that|then|instead|too|also|through|between|morning|afternoon|evening|night|meeting|party"
)
# Words before them that leave no doubt.
_BEFORE_A_DAY = re.compile(
    r"(?:^|[^\w ] ?|\b(?:on|in|by|since|until|till|from|to|of|for|before|after|between|around|and|or|the|this|last|next"
    r"|our|my|born|due|starting|ending) )$"
)
_COUNTED = re.compile(r" (?:times|things|people|beers?|miles|kids|days|weeks|hours|minutes)\b")
_MAY = re.compile(r" (?:be|not|have|also|still|well|never|come|need|want|go|take|get|seem|enter|leave|stay|join)\b")
_LATE_MAY = re.compile(rf"{_MAY.pattern}| (?:help|cost|cause|make|annoy|hurt|work|happen|look|sound|feel|lead|mean)\b")
# Months that are people too: "made by April".
_MADE_BY = re.compile(
    r"\b(?:made|written|told|given|sent|drawn|built|sung|taken|painted|baked|cooked|sat|stood|stopped|chosen|led"
    r"|recommended|suggested|designed|knitted) by (?:april|may|june|august)$"
)
_VERB_AND_NUMBER = re.compile(rf"(?:{_AND}\d+)? (?!(?:{_AFTER_A_DAY})\b)\w")
_BELOW_TEN = "one|two|three|four|five|six|seven|eight|nine"
#: Pattern of a small number in digits or words; ``number_in`` reads it.
COUNT = (
    r"(\d{1,2}|an?|(?:a )?couple of|a few|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    rf"|(?:twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety)(?:[- ](?:{_BELOW_TEN}))?|{_BELOW_TEN})"
)
#: Pattern before ``COUNT``: not the end of a longer number, so that "1.5 years ago", "5-6 years ago" and
#: "half a month ago" are left out.
ALONE = r"(?<![\w-])(?<!\d[.,])(?<!half )(?<!hundred )(?<!hundred and )"
_NUMERAL = r"(\d{1,2})(?:st|nd|rd|th)?"
# A date after a weekday says which one is meant: "on Monday, 4 November", "on Friday the 4th".
_NO_DATE = (
    r"\b(?! (?:mornings|afternoons|evenings|nights)\b)"  # nor a habit
    r"(?!,? (?:the )?(?:\d{1,2}(?:st|nd|rd|th)\b|\d{4}-\d"
    rf"|\d{{1,2}}(?: of)? {_SHORT_MONTH}(?!\w)|{_SHORT_MONTH} \d))"
)
# Not a date of another year: "7 May 2019", "7 May '19".
_NO_YEAR = r"(?!,? (?:\d{4}|['’]\d\d))"
# Words before "of 2000" that make it a number.
_NO_SUM = "".join(
    rf"(?<!\b{word} )"
    for word in (
        "deposit", "total", "sum", "height", "length", "depth", "distance", "crowd", "population", "budget", "price",
        "cost", "rent", "salary", "fee", "loan", "limit", "maximum", "minimum", "average", "weight", "audience",
    )
)  # fmt: skip
_MEASURED = (
    r"(?:euros?|dollars?|pounds?|francs|yen|people|words|pages|steps|calories|kcal|feet|miles|metres|meters|kilometres"
    r"|kilometers|km|m|kg|kilos|watts|tons|tonnes|hours|seats|copies|pieces|books|members|visitors|guests|students)\b"
)
_UNIT = "(?:day|week|weekend|month|year)"

_FAR = timedelta(days=120)


@dataclass(frozen=True, slots=True)
class TimeExpression:
    """Words that name a time, and the first and last day (inclusive) that they refer to."""

    text: str
    first: date
    last: date


def resolve_times(text: str, spoken_on: date | None) -> list[TimeExpression]:
    """Time expressions of a text, in order; where two overlap, the earlier one wins, then the longer one.

    "on Friday" is the last Friday, unless the words before it in its clause speak of the future ("I'm flying to Rome on
    Friday", "the exam is on Friday"). "in two weeks" is left out after a verb in the past, where it is a duration.

    Args:
        text: An utterance or a question.
        spoken_on: The day it was said. With None only absolute dates are resolved, since relative ones need a day.

    Returns:
        Non-overlapping expressions with the days they refer to. An impossible date (30 February) is left out.
    """
    return list(_resolved(text, spoken_on))


# Consolidation reads each sentence and name several times.
@cached(4_096)
def _resolved(text: str, spoken_on: date | None) -> tuple[TimeExpression, ...]:
    lowered = with_english_times(text)
    if lowered != text.lower() or len(lowered) != len(text):  # positions must be valid in both strings
        text = lowered
    found = find_times(lowered, spoken_on, time_rules())
    return tuple(TimeExpression(text[start:end], *days) for start, end, days in found if days is not None)


Days = tuple[date, date]
Reader = Callable[[re.Match[str], date], Days | None]
#: A pattern, the days that a match of it names, and whether these depend on the day on which the words were said.
Rule = tuple[re.Pattern[str], Reader, bool]


def find_times(lowered: str, spoken_on: date | None, rules: Sequence[Rule]) -> list[tuple[int, int, Days | None]]:
    """Start, end and days of the matches of rules, in order; see ``resolve_times``.

    Args:
        lowered: A text in lower case.
        spoken_on: The day it was said; None passes over the rules that need one.
        rules: The rules; of two matches of the same words, that of the earlier rule wins.

    Returns:
        Matches that do not overlap. The days are None where the words name no day or an ambiguous one.
    """
    matches: list[tuple[int, int, Days | None]] = []
    for pattern, read, needs_anchor in rules:
        if needs_anchor and spoken_on is None:
            continue
        for match in pattern.finditer(lowered):
            # An absolute rule never reads the anchor, so any day will do.
            matches.append((match.start(), match.end(), _read(read, match, spoken_on or date.min)))
    matches.sort(key=lambda item: (item[0], -item[1]))
    kept: list[tuple[int, int, Days | None]] = []
    for match_ in matches:
        # An impossible date covers its words all the same: "30 February 2023" does not mean February.
        if not kept or match_[0] >= kept[-1][1]:
            kept.append(match_)
    return kept


def _read(reader: Reader, match: re.Match[str], spoken_on: date) -> Days | None:
    try:
        days = reader(match, spoken_on)
    except (ValueError, OverflowError):  # before the year 1 or after 9999
        return None
    return days if days is not None and days[0] >= EARLIEST.date() and days[1] < LATEST.date() else None


@cache
def time_rules() -> tuple[Rule, ...]:
    """The rules of ``resolve_times``."""
    year = r"((?:19|20)\d\d)"
    absolute: list[tuple[str, Reader]] = [
        (r"\b(\d{4})-(\d\d)-(\d\d)\b", lambda m, _: _day(int(m[1]), int(m[2]), int(m[3]))),
        (rf"(?<![\d./])(\d{{1,2}})([./])(\d{{1,2}})\2{year}(?![./]?\d)", _numeric),
        (
            rf"\b{_NUMERAL}(?: of)? {_SHORT_MONTH},? {year}\b",
            lambda m, _: _day(int(m[3]), month_number(m[2]), int(m[1])),
        ),
        (
            rf"\b{_SHORT_MONTH} {_NUMERAL},? {year}\b",
            lambda m, _: _day(int(m[3]), month_number(m[1]), int(m[2])),
        ),
        (
            rf"\b{_NUMERAL}(?:(?: of)? {_SHORT_MONTH})?{_AND}{_NUMERAL}(?: of)? {_SHORT_MONTH},? {year}\b",
            lambda m, _: _between(int(m[5]), m[2] or m[4], int(m[1]), m[4], int(m[3])),
        ),
        (
            rf"\b{_SHORT_MONTH} {_NUMERAL}{_AND}(?:{_SHORT_MONTH} )?{_NUMERAL},? {year}\b",
            lambda m, _: _between(int(m[5]), m[1], int(m[2]), m[3] or m[1], int(m[4])),
        ),
        (
            rf"\b(?:(?:in|during|since|by|early|late) )?{_SHORT_MONTH}{_AND}{_SHORT_MONTH},? (?:of )?{year}\b",
            lambda m, _: _between(int(m[3]), m[1], 1, m[2], None),
        ),
        (
            rf"\b(?:the )?(first|second|third|fourth) week (?:of|in) {_SHORT_MONTH},? (?:of )?{year}\b",
            lambda m, _: _week_of_month(_month(int(m[3]), month_number(m[2])), _ORDINAL_WEEKS[m[1]]),
        ),
        (rf"\b{_SHORT_MONTH},? (?:of )?{year}\b", lambda m, _: _month(int(m[2]), month_number(m[1]))),
        (rf"\b(?:in|since|during) {year}\b", lambda m, _: _year(int(m[1]))),
        (rf"\b{_NO_SUM}of {year}\b(?! {_MEASURED})", lambda m, _: _year(int(m[1]))),
    ]
    relative: list[tuple[str, Reader]] = [
        (r"\b(today|this morning|this afternoon|this evening|tonight|just now|earlier today)\b", lambda m, d: (d, d)),
        # What these mean depends on the words before them; a rule without days keeps the shorter ones below away.
        (rf"\b(?:before|after) (?:yesterday|tomorrow|(?:last|past|this|next) {_UNIT})\b", _left_out),
        (rf"\blast {_UNIT} of\b", _left_out),
        (rf"\b{COUNT} {_UNIT}s?(?:,| and|, and) {COUNT} {_UNIT}s? ago\b", _left_out),
        (rf"\b{COUNT} (?:or|to) {COUNT} {_UNIT}s? ago\b", _left_out),
        (r"\b(yesterday|last night)\b", lambda m, d: _offset(d, -1)),
        (r"\b(?:the )?day before yesterday\b", lambda m, d: _offset(d, -2)),
        (r"\btomorrow\b", lambda m, d: _offset(d, 1)),
        (r"\b(?:the )?day after tomorrow\b", lambda m, d: _offset(d, 2)),
        (
            rf"{ALONE}{COUNT} (day|week|month|year)s? ago (?:today|tonight)\b",
            lambda m, d: _to_the_day(d, m[2], number_in(m[1])),
        ),
        (rf"{ALONE}{COUNT} (day|week|month|year)s? ago\b", lambda m, d: UNITS[m[2]](d, -number_in(m[1]))),
        (
            rf"\bin {COUNT} (day|week|month)s?\b(?! ago\b)",
            lambda m, d: None if tense_before(m) == "past" else UNITS[m[2]](d, number_in(m[1])),
        ),
        (r"\bhalf a year ago\b", lambda m, d: _month_offset(d, -6)),
        # Not "past year", which may be the last twelve months.
        (r"\b(last|past(?! year)|this|next) (week|weekend|month|year)\b", lambda m, d: UNITS[m[2]](d, _STEPS[m[1]])),
        (
            rf"\b(?:on (?:the )?)?{_NUMERAL}(?: of)? {_SHORT_MONTH},? (?:of )?(last|this|next) year\b",
            lambda m, d: _day(d.year + _STEPS[m[3]], month_number(m[2]), int(m[1])),
        ),
        (
            rf"\b(?:on )?{_SHORT_MONTH} {_NUMERAL},? (?:of )?(last|this|next) year\b",
            lambda m, d: _day(d.year + _STEPS[m[3]], month_number(m[1]), int(m[2])),
        ),
        (
            rf"\b(?:in|during|since|by|early|late) {MONTH},? (?:of )?(last|this|next) year\b",
            lambda m, d: _month(d.year + _STEPS[m[2]], month_number(m[1])),
        ),
        (
            rf"\b(last|this|next) year,? on (?:the )?{_NUMERAL}(?: of)? {_SHORT_MONTH}(?!\w)",
            lambda m, d: _day(d.year + _STEPS[m[1]], month_number(m[3]), int(m[2])),
        ),
        (
            rf"\b(last|this|next) year,? on {_SHORT_MONTH} {_NUMERAL}\b",
            lambda m, d: _day(d.year + _STEPS[m[1]], month_number(m[2]), int(m[3])),
        ),
        (
            rf"\b(last|this|next) year,? in {MONTH}\b",
            lambda m, d: _month(d.year + _STEPS[m[1]], month_number(m[2])),
        ),
        (r"\bthis past weekend\b", lambda m, d: _weekend(d, -1)),
        (rf"\b{_NO_SUBJECT}(?:last|past|this past) {_SHORT_WEEKDAY}{_NO_DATE}", lambda m, d: weekday_from(d, m[1], -1)),
        (
            rf"\bon {_ON_SHORT_WEEKDAY}{_NO_DATE}",
            lambda m, d: weekday_from(d, m[1], 1 if tense_around(m) == "future" else -1),
        ),
        (
            rf"\b{_NO_DAY_AFTER}{_WEEKDAY}{_NO_DATE}(?=(?: (?:morning|afternoon|evening|night)\b)?(?:[.!?,;:\n]|$))",
            lambda m, d: (
                None if (tense := tense_before(m)) is None else weekday_from(d, m[1], 1 if tense == "future" else -1)
            ),
        ),
        (rf"\b(?:on )?{_WEEKDAY} (?:of )?(last|this|next) week\b", lambda m, d: _day_of_week(d, m[1], m[2])),
        (rf"\b(last|this|next) week,? on {_WEEKDAY}{_NO_DATE}", lambda m, d: _day_of_week(d, m[2], m[1])),
        (rf"\b(?:next|this|this coming) {_WEEKDAY}{_NO_DATE}", lambda m, d: weekday_from(d, m[1], 1)),
        (rf"\b(?:next|this coming) {_SHORT_WEEKDAY}{_NO_DATE}", lambda m, d: weekday_from(d, m[1], 1)),
        (rf"\b(?:last|this past) {MONTH}\b", lambda m, d: _nearest_month(d, m[1], -1)),
        (rf"\bnext {MONTH}\b", lambda m, d: _nearest_month(d, m[1], 1)),
        (
            rf"\b(?:the )?(first|second|third|fourth) week (?:of|in) {MONTH}\b(?!,? (?:of )?\d{{4}})",
            lambda m, d: _week_of_month(_nearest_month(d, m[2], 0), _ORDINAL_WEEKS[m[1]]),
        ),
        (
            rf"\b{_NUMERAL}{_AND}{_NUMERAL}(?: of)? {_SHORT_MONTH}(?!\w){_NO_YEAR}",
            lambda m, d: _nearest_days(d, m[3], int(m[1]), int(m[2])),
        ),
        (
            rf"\b{_SHORT_MONTH} {_NUMERAL} ?[-–] ?{_NUMERAL}\b{_NO_YEAR}",
            lambda m, d: _nearest_days(d, m[1], int(m[2]), int(m[3])),
        ),
        (
            rf"\b(?:from|between) {_SHORT_MONTH} {_NUMERAL} (?:to|and|until|till|through) {_NUMERAL}\b"
            rf"(?! {_SHORT_MONTH}){_NO_YEAR}",
            lambda m, d: _nearest_days(d, m[1], int(m[2]), int(m[3])),
        ),
        (
            rf"(?<!\d[.,])\b{_NUMERAL}(?: of)? {_SHORT_MONTH}(?!\w){_NO_YEAR}",
            lambda m, d: None if _is_verb(m, m[2]) else _nearest_days(d, m[2], int(m[1]), int(m[1]), side_of(m)),
        ),
        (
            rf"\b{_SHORT_MONTH} {_NUMERAL}\b{_NO_YEAR}",
            lambda m, d: None if _is_verb(m, m[1]) else _nearest_days(d, m[1], int(m[2]), int(m[2]), side_of(m)),
        ),
        (
            rf"\b(?:in|during|between|from) {MONTH}{_AND}{MONTH}\b(?!,? (?:\d|of \d))",
            lambda m, d: _months(d, m[1], m[2]),
        ),
        (
            rf"\b(?:in|during|since|by|early|late) {MONTH}\b(?!,? (?:\d|of \d))",
            lambda m, d: None if _is_no_month(m) else _nearest_month(d, m[1], 0, side_of(m)),
        ),
    ]
    rules = [(re.compile(p), read, False) for p, read in absolute]
    return tuple(rules + [(re.compile(p), read, True) for p, read in relative])


def number_in(words: str) -> int:
    """The number that a match of ``COUNT`` stands for."""
    if words.isdigit():
        return int(words)
    return _NUMBERS.get(words) or sum(_NUMBERS[word] for word in words.replace("-", " ").split())


def _is_verb(match: re.Match[str], month: str) -> bool:
    """Whether a month beside a number is a verb: "we march 12 miles", "you may 2 or 3 times", "only 2 may enter"."""
    text = match.string
    if _COUNTED.match(text, match.end()) or (month == "may" and _MAY.match(text, match.end())):
        return True
    if month not in ("may", "march") or (match[0][-1].isalpha() and match[0][-3:] in ("st", "nd", "rd", "th")):
        return False
    before = text[max(0, match.start() - NEARBY) : match.start()]
    return _BEFORE_A_DAY.search(before) is None and _VERB_AND_NUMBER.match(text, match.end()) is not None


def _is_no_month(match: re.Match[str]) -> bool:
    """Whether a month after a preposition is a verb or a person: "coming in late may annoy him", "made by April"."""
    text = match.string
    before = text[max(0, match.start() - NEARBY) : match.end()]
    is_verb = match[0] in ("early may", "late may") and _LATE_MAY.match(text, match.end()) is not None
    return is_verb or _MADE_BY.search(before) is not None


def month_number(name: str) -> int:
    """The number of a month by its name, or the first letters of it."""
    return next(i for i, month in enumerate(MONTHS, start=1) if month.startswith(name.rstrip(".")[:3]))


def _day(year: int, month: int, day: int) -> Days:
    value = date(year, month, day)
    return value, value


def _numeric(match: re.Match[str], _: date) -> Days | None:
    """3.9.2024 is a day of September; 3/9/2024 is ambiguous, unless one of the numbers is no month."""
    first, second, year = int(match[1]), int(match[3]), int(match[4])
    if match[2] == "." or first > 12 or first == second:
        return _day(year, second, first)
    return _day(year, first, second) if second > 12 else None


def _between(year: int, month: str, day: int, last_month: str, last_day: int | None) -> Days | None:
    """From a day to one in the year given; None as the last day stands for the end of its month."""
    first, last = month_number(month), month_number(last_month)
    end = date(year, last, last_day or monthrange(year, last)[1])
    begin = date(year - (first > last), first, day)  # "from December 30 to January 2, 2021"
    return (begin, end) if begin <= end else None


def _offset(day: date, days: int) -> Days:
    value = day + timedelta(days=days)
    return value, value


def _week(day: date, weeks: int) -> Days:
    monday = day - timedelta(days=day.weekday()) + timedelta(weeks=weeks)
    return monday, monday + timedelta(days=6)


def _weekend(day: date, weeks: int) -> Days:
    # Said on a weekday, "last weekend" is the one just past; said on a weekend, the one before.
    saturday = day - timedelta(days=day.weekday()) + timedelta(days=5, weeks=weeks)
    return saturday, saturday + timedelta(days=1)


def _month(year: int, month: int) -> Days:
    return date(year, month, 1), date(year, month, monthrange(year, month)[1])


def _month_offset(day: date, months: int) -> Days:
    index = day.year * 12 + day.month - 1 + months
    return _month(index // 12, index % 12 + 1)


def _year(year: int) -> Days:
    return date(year, 1, 1), date(year, 12, 31)


def _year_offset(day: date, years: int) -> Days:
    return _year(day.year + years)


#: For each unit, the days that it covers a number of units after (or before, if negative) the one that holds a day.
UNITS: dict[str, Callable[[date, int], Days]] = {
    "day": _offset, "week": _week, "weekend": _weekend, "month": _month_offset, "year": _year_offset,
}  # fmt: skip
_STEPS = {"last": -1, "past": -1, "this": 0, "next": 1}


def weekday_from(day: date, name: str, direction: int) -> Days:
    """The next weekday of a name after a day, or before it if the direction is negative; never the day itself.

    A short name will do.
    """
    number = next(at for at, each in enumerate(WEEKDAYS) if each.startswith(name[:3]))
    gap = (day.weekday() - number) % 7 if direction < 0 else (number - day.weekday()) % 7
    return _offset(day, direction * (gap or 7))


def _day_of_week(day: date, name: str, week: str) -> Days:
    monday, _ = _week(day, _STEPS[week])
    return _offset(monday, WEEKDAYS.index(name))


def _nearest_month(day: date, name: str, direction: int, side: int = 0) -> Days:
    """The nearest month of a name, after or before the present one by ``direction``; or not beyond it by ``side``."""
    month = month_number(name)
    years = [day.year - 1, day.year, day.year + 1]
    if direction < 0:
        years = [y for y in years if (y, month) < (day.year, day.month)][-1:]
    elif direction > 0:
        years = [y for y in years if (y, month) > (day.year, day.month)][:1]
    apart = {y: (y - day.year) * 12 + month - day.month for y in years}
    nearest = min(years, key=lambda y: abs(apart[y]))
    if abs(apart[nearest]) >= _FAR.days / 30:
        nearest = min((y for y in years if apart[y] * side >= 0), key=lambda y: abs(apart[y]))
    return _month(nearest, month)


def _months(day: date, first: str, last: str) -> Days | None:
    """From the nearest month of a name to the next one of another."""
    begin, _ = _nearest_month(day, first, 0)
    end = _month(begin.year + (month_number(last) < begin.month), month_number(last))[1]
    return begin, end


def _nearest_days(day: date, name: str, first: int, last: int, side: int = 0) -> Days | None:
    month = month_number(name)
    years = [y for y in (day.year - 1, day.year, day.year + 1) if last <= monthrange(y, month)[1]]
    candidates = [(date(y, month, first), date(y, month, last)) for y in years if first <= last]
    nearest = min(candidates, key=lambda c: abs(c[0] - day), default=None)
    if nearest is not None and abs(nearest[0] - day) >= _FAR:
        on_side = [each for each in candidates if (each[0] - day).days * side >= 0]
        return min(on_side or candidates, key=lambda c: abs(c[0] - day))
    return nearest


def _to_the_day(day: date, unit: str, number: int) -> Days | None:
    if unit == "year":
        return _day(day.year - number, day.month, day.day)
    days = {"day": 1, "week": 7}.get(unit)
    return None if days is None else _offset(day, -days * number)


def _left_out(match: re.Match[str], day: date) -> None:
    return None


def _week_of_month(month: Days, week: int) -> Days:
    first, last = month
    start = first + timedelta(days=7 * week)
    return start, min(start + timedelta(days=6), last)

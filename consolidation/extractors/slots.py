"""Finds slots, attributes that have one value at a time: where somebody lives, what something costs, who has the key.

A statement with a new value supersedes the earlier fact, so only a plain statement counts: not what speakers quote,
report, deny, wish for or imagine, nor what was true in the past. Where they live, what they work as and their
favourites are replaced by any other value; what other things are, only if the sentence says that something changed. A
missed statement leaves two facts side by side, whereas a false detection would end a true fact.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from locigraph.kg.language.calendar_names import MONTHS, WEEKDAYS
from locigraph.kg.language.terms import stem
from locigraph.kg.language.tokens import STOP_WORDS, words
from locigraph.kg.types import Attributes, states_same

_ADVERB_WORDS = (
    "now|currently|just|recently|finally|still|already|actually|officially|happily|mostly|definitely|probably"
)
_ADVERB = rf"(?:{_ADVERB_WORDS})"
_ADVERBS = rf"(?: {_ADVERB})*"
_I_AM = rf"\bI(?:['’]m|['’]ve(?: been)?| am| have(?: been)?)?{_ADVERBS}"
_MY = r"\b[Mm]y (?:(?:new|current|absolute|very|all-time) )?"
_WORKING = rf"{_I_AM} (?:work|working|(?:got|started|have) (?:a|my) (?:new )?job)"
_PLACE = r"(?P<value>[A-Z]\w+(?:[ -][A-Z]\w+){0,3})"
# The second word of a kind of work ("financial analyst") is no preposition or verb.
_NO_WORK = (
    "at|in|on|for|with|by|from|of|to|and|but|or|is|was|are|has|begins?|began|starts?|started|ends?|ended|here|there"
    "|now|again|since|until|near|who|which|that|this|these|every|so|because|while|when|where|between|among|besides"
)
_WORK = rf"(?P<value>\w+(?: (?!(?:{_NO_WORK})\b)\w+)?)"
# What a favourite does or is like, instead of what it is: "is playing in May", "is closed", "is in Rome".
_NO_FAVOURITE = (
    r"(?:no|not|so|too|very|really|always|often|never|in|on|at|from|near|under|by|with|about|back|over|out|open|closed"
    r"|closing|gone|sold|coming|expensive|cheap|empty|full|broken|here|there|\w{1,30}ing \w)\b|\w{1,30}ing \w"
)
_SLOTS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "home",
        re.compile(
            rf"{_I_AM} (?:(?:live|living)(?: now| back| over)* in|(?P<moved>moved)(?: now| back| over)* to) {_PLACE}"
            r"(?!['’]s|\w)"
        ),
    ),
    ("work", re.compile(rf"(?:{_WORKING}|\b[Mm]y (?:new|current) job)(?: now)? (?:is )?as an? {_WORK}")),
    (
        "favourite",
        re.compile(rf"{_MY}favou?rite (?P<what>\w+) is (?:{_ADVERB} )*(?!{_NO_FAVOURITE})(?P<value>[\w'’ ]+)"),
    ),
)
# What something has one of, in plain words: "The rent is 900 now", "June has the spare key". Values are names, numbers,
# days and times, since what else something "is" seldom excludes what it was before.
_NUMBER_OR_NAME = r"(?:\d[\w.,:/%-]{0,30}|[A-Z]\w{1,30})(?!\w)"
_A_VALUE = rf"(?<!\w)(?:[€$£] ?)?{_NUMBER_OR_NAME}(?: (?:{_NUMBER_OR_NAME}|of|euros?|dollars?|pounds?|[ap]\.?m)){{0,5}}"
_VALUE = rf"(?P<value>{_A_VALUE})"
_NOUN = rf"(?!(?:is|are|was|were|has|have|been|will|{_ADVERB_WORDS})\b)[a-z][\w-]{{0,30}}"
_THING = rf"(?:(?P<fresh>new|current|latest) )?(?P<what>(?:{_NOUN} )?{_NOUN})"
_SOME = rf"(?:{_ADVERB} )*"
_MOVED = r"(?:(?:has|have|was|were|is) )?(?:been )?(?:moved|changed|postponed|brought forward)"
#: Verbs by what they tell of a thing.
_VERBS = {
    "is": "is|are|will be",
    "amount": "costs?|went up|rose|(?:(?:has|have|was|were|is) )?(?:been )?(?:raised|lowered)",
    "start": f"starts?|begins?|opens?|leaves?|departs?|meets?|takes place|{_MOVED}",
    "end": "ends?|closes?",
    "arrival": "arrives?|lands?",
}
_OWNER = r"\b(?P<owner>[Tt]he|[Mm]y|[Oo]ur|[A-Z]\w{1,30}['’]s)"
_ATTRIBUTES = (
    *(
        (
            name,
            re.compile(
                rf"{_OWNER} {_THING} {_SOME}(?:{verbs})(?: {_ADVERB})*(?: (?:down|up))?"
                rf"(?: from (?:the )?{_A_VALUE}(?= to ))?(?: (?P<how>on|at|to|with|from|called))?(?: the)? {_VALUE}"
            ),
        )
        for name, verbs in _VERBS.items()
    ),
    (
        "holder",
        re.compile(rf"\b(?P<value>[A-Z]\w{{1,30}}) {_SOME}(?:has|keeps|holds) {_SOME}(?:the|my|our) {_THING}\b"),
    ),
    ("given", re.compile(rf"\b(?:gave|given|handed) (?:the|my|our) {_THING} to (?P<value>[A-Z]\w{{1,30}})")),
    (
        "employer",
        re.compile(
            rf"{_I_AM} (?:(?:work|working)(?: now)? (?:at|for)|start(?:ed)? (?P<fresh>a new|my new) job at)"
            rf" (?:the )?(?P<value>[A-Z]\w{{1,30}}(?: [A-Z]\w{{1,30}}){{0,5}})"
        ),
    ),
)
# Things of which there are many, although one says "the".
_NO_THING = STOP_WORDS.union(
    words("name thing one point time day problem question answer best worst first last next other same idea truth")
)
# Of a work or a trip there may be several: "my favourite part is the ending".
_RELATIVE = words("part bit thing scene character memory moment one quote line chapter episode")
# Before the owner: what the value is an attribute of, "the owner of the shop", "the appointment at the bank".
_HEAD = re.compile(r"(?P<head>[A-Za-z][\w-]{1,30} (?:of|for|with|at|in|to|from|on|by|about)) $")
# Words before such a preposition that are no thing: "I think of the shop", "it is in the shop".
_NO_HEAD = STOP_WORDS.union(words("say says said think thinks thought know knows heard hear now note"))
# Of several people and pets each may be new.
_SEVERAL = words(
    "teammate colleague coworker kitten puppy dog cat friend neighbour neighbor baby student member roommate flatmate"
    " classmate intern hire recruit hen chicken fish"
)
_OPENS = re.compile(r"\b(?:opens?|closes?)\b")
# What one still has after one has given it.
_NO_GIFT = words("number email address advice word regards love attention opinion news details contact recipe thanks")
# What several people have at a time, also where one says "the".
_SHARED = words(
    "flu cold measles mumps covid virus fever cough hiccups shivers job right power chance rest most morning afternoon "
    "evening night week weekend"
)
# Words after which a further value stands beside the earlier one.
_ALSO = re.compile(r"\b(?:too|also|as well|either|another|both)\b", re.IGNORECASE)
# What holds on some days or for some purpose stands beside what holds in general: "at 10 on Sundays", "30 for heating".
_FOR_SOME = re.compile(r"[^,;.]{0,20}\b(?:on \w{3,6}days|for (?!now\b|good\b|sure\b|real\b)[a-z])")
_NO_WORKER = words("team pair group couple crew family unit whole rule result treat favour favor hobby bridge")
_NO_VALUE = STOP_WORDS.union(words("everyone nobody somebody someone everybody"))
_TIME = re.compile(
    r"\d{1,2}(?::\d\d)?(?: ?[ap]\.?m)?$|\d{1,4}(?:st|nd|rd|th)\b"
    rf"|(?:[\w:.]{{1,20}} ){{0,5}}(?:{'|'.join([*MONTHS, *WEEKDAYS])})\b",
    re.IGNORECASE,
)
_DAY = re.compile(
    rf"\d{{1,4}}(?:st|nd|rd|th)\b|\d[/-]\d|\d\.\d{{1,2}}\.|\b(?:{'|'.join([*MONTHS, *WEEKDAYS])})\b", re.IGNORECASE
)
# What a number counts, other than money: the same thing has an age, a weight and a distance.
_UNIT = re.compile(
    r" ?(?P<name>%|°|percent|degrees?|kg|kilos?|kilograms?|grams?|g|lbs?|km|kilomet(?:re|er)s?|miles?|m|met(?:re|er)s?"
    r"|cm|feet|foot|inch(?:es)?|lit(?:re|er)s?|years?|months?|weeks?|days?|hours?|minutes?|people|pages?|rooms?)(?!\w)",
    re.IGNORECASE,
)
# Words in the clause of a statement that say that something is not as it was before.
_CHANGED = re.compile(
    r"\b(?:now|nowadays|these days|from now on|as of|no longer|instead|in the end|after all|actually|changed|moved"
    r"|switched|swapped|postponed|brought forward|raised|lowered|went up|rose)\b",
    re.IGNORECASE,
)
_UNLIKE = re.compile(r"\bnot (?:on |at )?(?:the )?(?:\d|[A-Z])")
_CORRECTED = re.compile(
    rf"(?P<value>{_A_VALUE})(?: now)?,? (?:and )?not(?: (?:on|at|in))?(?: the)? (?P<before>{_A_VALUE})"
)
_GONE = re.compile(
    rf"(?:[Tt]he )?(?P<value>{_A_VALUE}) (?:(?:has|have|is|was) )?{_SOME}"
    r"(?:closed|shut|gone|cancelled|full|sold out|quit|left)\b"
)
# With "now" or "actually", or it may be an aside.
_INSTEAD = re.compile(
    rf"(?=.{{0,60}}\b(?:now|[Aa]ctually)\b)(?:(?:[Aa]ctually|[Ss]o|[Aa]nd),? )?[Ii]t['’]?s (?:now |actually )?"
    rf"(?P<value>{_A_VALUE})"
)
_CORRECTS = re.compile(
    r"\b(?:it['’]?s|it is|it will be|that['’]s|actually|sorry|correction|i meant|i mean)\b", re.IGNORECASE
)
# Capitalised words after "in" and "moved to" that are no place: times, departments and software.
_NO_PLACE = frozenset(
    (
        *MONTHS, *WEEKDAYS, "spring", "summer", "autumn", "fall", "winter", "team", "group", "plan", "phase", "level",
        "grade", "year", "marketing", "sales", "engineering", "finance", "hr", "legal", "design", "product", "support",
        "operations", "accounting", "it", "research", "development", "security", "linux", "windows", "macos", "mac",
        "android", "ios", "gmail", "outlook", "python", "github", "gitlab", "slack", "teams", "zoom", "chrome",
        "firefox", "ubuntu", "fedora", "debian", "notion", "excel", "java", "rust", "iphone", "obsidian", "evernote",
        "figma", "spotify", "netflix", "trello", "jira", "discord", "telegram", "whatsapp", "premium",
        "birkenstocks",
    )
)  # fmt: skip
_NO_PLACE_AFTER = frozenset(["time", "plus", "pro", "premium"])
# What one moves to without living there: "to Figma for my drawings", "to Verizon, since my plan was too expensive".
_NO_MOVE = re.compile(
    r"\bfor (?:my|our|the|all) (?:\w+ )?(?:drawings?|designs?|sketch\w*|mails?|e-?mails?|notes?|photos?|writing|music"
    r"|backups?|calendar|hosting|blog|site|website|spreadsheets?|documents?|files|code|invoices)\b"
    r"|,? (?:since )?(?:it|which) (?:keeps|syncs|stores|exports)\b"
    r"|\bbecause (?:my|our|the) (?:old |last |other )?(?:plan|provider|carrier|contract|subscription|app)\b",
    re.IGNORECASE,
)
_IMAGINED = re.compile(
    r"\bin (?:the|a|an|my|this|that|our) (?:\w+ )?(?:game|book|novel|story|dream|film|movie|series|campaign),? $",
    re.IGNORECASE,
)
# Work that people do beside other work.
_BESIDES = re.compile(
    rf"\b(?:volunteer\w*|part[- ]time|on the side|weekends?|evenings?|temporar\w+|(?:{'|'.join(WEEKDAYS)})s)\b",
    re.IGNORECASE,
)
# Words in the clause about work for a while.
_FOR_A_WHILE = re.compile(
    r"\b(?:tonight|besides?|on top of|second job"
    r"|for the (?:\w+ )?(?:summer|winter|season|holidays?|day|night|week|month))\b",
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

_PERSONAL = frozenset(name for name, _ in _SLOTS)
_LONGEST = 1_500  # characters of a sentence that are read, the same as a fact keeps


#: Attribute of a fact that says that a value which is not personal, such as a price, has changed.
CHANGED = "changed"


class Slot(NamedTuple):
    """A slot with its value.

    Attributes:
        name: Speaker and slot, such as "Ann:home".
        value: The value in lower case.
        is_change: Whether the statement ends what was said of the slot before.
    """

    name: str
    value: str
    is_change: bool = True

    def is_personal(self, speaker: str) -> bool:
        """Whether it is one of the speaker's own, such as a home, of which each statement ends the one before."""
        return self.name.removeprefix(f"{speaker}:").partition(":")[0] in _PERSONAL

    def attributes(self, speaker: str) -> dict[str, str | bool]:
        """The attributes of a fact that states it."""
        of_change = {CHANGED: True} if self.is_change and not self.is_personal(speaker) else {}
        return {"slot": self.name, "value": self.value, **of_change}

    def is_favourite(self, speaker: str) -> bool:
        """Whether it is a favourite of the speaker."""
        return self.name.startswith(f"{speaker}:favourite")

    def differs(self, attributes: Attributes) -> bool:
        """Whether a fact with these attributes has another value of the slot, and not only a longer or shorter one."""
        return attributes.get("slot") == self.name and not states_same(attributes.get("value"), self.value)

    def replaces(self, attributes: Attributes) -> bool:
        """Whether the statement ends a fact with these attributes."""
        return self.is_change and self.differs(attributes)


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
            is_no_place = value.split()[0] in _NO_PLACE or value.split()[-1] in _NO_PLACE_AFTER
            if name == "home" and (is_no_place or _IMAGINED.search(before)):
                continue
            if groups.get("moved") and _NO_MOVE.search(sentence, match.end()):
                continue
            if name == "favourite" and groups["what"].lower() in _RELATIVE:
                continue
            if name == "work" and (value.split()[-1] in _NO_WORKER or _BESIDES.search(sentence)):
                continue
            if name == "work" and _FOR_A_WHILE.search(_clause_of(match)):
                continue
            what = f":{groups['what'].lower()}" if "what" in groups else ""
            return Slot(f"{speaker}:{name}{what}", value)
    return _stated_attribute(sentence, speaker)


def _stated_attribute(sentence: str, speaker: str) -> Slot | None:
    """What something that the speaker talks about plainly has one of, such as a price, a date or a holder."""
    for name, pattern in _ATTRIBUTES:
        for match in pattern.finditer(sentence):
            groups = match.groupdict()
            value = groups["value"].strip(" .,:").lower()
            thing = (groups.get("what") or "").lower().split()
            before, after = sentence[: match.start()], sentence[match.end() :]
            if _DENIED.search(f"{_last(_CLAUSE, before)} {match[0]}") or _is_reported(before, after):
                continue
            if value in _NO_VALUE or (thing and thing[-1] in _NO_THING):
                continue
            if name == "employer" and _BESIDES.search(sentence):
                continue
            if name in ("holder", "given") and (thing[-1] in _SHARED or _ALSO.search(f"{match[0]}{after[:40]}")):
                continue
            if name == "given" and thing[-1] in _NO_GIFT:
                continue
            owner = (groups.get("owner") or "the").lower()
            whose = "" if owner in ("the", "my", "our") else f"{owner}:"
            head = _HEAD.search(before)
            if head is not None and head["head"].split()[0].lower() not in _NO_HEAD:
                whose = f"{head['head'].lower()} {whose}"
            what = f":{whose}{' '.join(map(stem, thing))}" if thing else ""
            if _FOR_SOME.match(after):
                continue
            clause = _clause_of(match)
            aspect = _aspect(name, groups.get("how"), value)
            # Another thing may be new, such as a second bakery.
            is_another = (thing and thing[-1] in _SEVERAL) or _OPENS.search(match[0])
            is_fresh = groups.get("fresh") and not is_another
            is_change = bool(is_fresh or name == "given" or _CHANGED.search(clause) or _UNLIKE.search(clause))
            return Slot(f"{speaker}:{aspect}{_kind(aspect, value, after)}{what}", value, is_change)
    return None


def _aspect(name: str, how: str | None, value: str) -> str:
    """What a statement tells of a thing: its amount, its start, its holder and so on, of which each has one value."""
    if name in ("holder", "given") or how == "with":
        return "holder"
    if name in ("end", "arrival", "employer", "amount"):
        return name
    if how in ("from", "called"):
        return how
    if name == "start" or (how in ("on", "at", None) and _TIME.match(value) and (how or not value.isdigit())):
        return "start"
    return "amount" if value.lstrip("€$£ ")[:1].isdigit() else f"name {how or ''}".strip()


def _kind(aspect: str, value: str, after: str) -> str:
    """What kind of value it is, since a time is not replaced by a place, nor an age by a weight; empty if plain.

    Args:
        aspect: What the statement tells of a thing.
        value: The value, in lower case.
        after: What follows it in the sentence.
    """
    if aspect == "amount":
        unit = _UNIT.match(after)
        return f" {stem(unit['name'].lower())}" if unit else ""
    if aspect not in ("start", "end", "arrival"):
        return ""
    if _DAY.search(value):
        return " day"
    return " time" if value[:1].isdigit() else " place"


def corrected_value(sentence: str, *, after: str = "") -> tuple[str, str] | None:
    """(The new value, the old one) of a sentence such as "It's the 14th now, not the 9th"; None if it is none.

    Args:
        sentence: The unquoted part of a sentence.
        after: That of the sentence before it, which may say what has ended: "Lune has closed. It's now Orbit."
    """
    sentence = sentence[:_LONGEST]
    gone, now = _GONE.match(after[:_LONGEST].strip()), _INSTEAD.match(sentence.strip())
    if gone and now and not _NOT_NOW.search(sentence) and not _NOT_NOW.search(after):
        new, old = (match["value"].strip(" .,:").lower() for match in (now, gone))
        return (new, old) if new != old and _is_when(new) == _is_when(old) else None
    match = _CORRECTED.search(sentence)
    if match is None or _NOT_NOW.search(sentence) or not _CORRECTS.search(sentence, 0, match.start()):
        return None
    if _is_reported(sentence[: match.start()], ""):
        return None
    new, old = (match[name].strip(" .,:").lower() for name in ("value", "before"))
    return None if new == old else (new, old)


def _is_when(value: str) -> bool:
    return value[:1].isdigit() or value in ("noon", "midnight") or bool(_TIME.match(value) or _DAY.search(value))


def _is_reported(before: str, after: str) -> bool:
    """Whether a statement may be reported speech, judging by the text before and after it."""
    clause = _last(_REPORT, before)
    clause_after = _REPORTED_AFTER.search(after)
    return ":" in clause or bool(_REPORTED.search(clause) or (clause_after and _REPORTED.search(clause_after[0])))


def _clause_of(match: re.Match[str]) -> str:
    """A statement with the words around it that may be reported together."""
    before, after = match.string[: match.start()], match.string[match.end() :]
    return f"{_last(_REPORT, before)}{match[0]}{_REPORT.split(after, maxsplit=1)[0]}"


def _last(separator: re.Pattern[str], text: str) -> str:
    """What follows the last separator in a text."""
    return text[max((match.end() for match in separator.finditer(text)), default=0) :]

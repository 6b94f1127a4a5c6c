"""Text utilities for the rule-based extractor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from locigraph.kg.language.tokens import STOP_WORDS, words

#: Abbreviations after whose full stop a sentence goes on.
ABBREVIATIONS = ("Dr", "Mr", "Mrs", "Ms", "St", "Prof", "e.g", "i.e", "vs")
_NO_END = "".join(rf"(?<!\b{re.escape(short)}\.)" for short in ABBREVIATIONS)
# After "p.m.", "etc." and "A.I." only a capital letter begins a new sentence; after an initial nothing does.
_BREAK = re.compile(
    rf"(?<=[.!?]){_NO_END}(?<!\b[A-HJ-Z]\.)(?:(?<!\b[ap]\.m\.)(?<!\.[A-Z]\.)(?<!\betc\.)|(?=\s[A-Z]))\s+|\n+|(?<=[。！？])"
)
_QUOTE = re.compile(r'["“”„«»‹›「」『』`]')
_INCHES = re.compile(r'(?<=\d)["”]')
# Single quotation marks are also apostrophes, so match only a pair around words, with apostrophes inside words only.
_SINGLE_QUOTED = re.compile(r"(?<!\w)['‘](?=\w)(?:[^'’‘]|(?<=\w)['’](?=\w))*['’](?!\w)")
_PHRASE_BREAK = re.compile(r"[^\w'\s-]|\d")

# First-person words are replaced by the speaker's name followed by these endings.
_ENDINGS = {
    "i'm": " is", "i am": " is", "i've": " has", "i have": " has", "i'd": " would", "i'll": " will", "i was": " was",
    "i": "", "myself": "", "my": "'s", "mine": "'s", "me": "",
}  # fmt: skip
_BEFORE_NUMERALS = ("War", "Type", "Part", "Chapter", "Phase", "Stage", "Level", "Volume", "Section", "Class")
_NUMBERED = "".join(rf"(?<!\b{word} )" for name in _BEFORE_NUMERALS for word in (name, name.lower()))
_NUMBERED += "".join(rf"(?<!\b{word} )" for word in ("Act", "Scene"))
# "mine" is a pronoun in "a friend of mine", "that's mine" and "Mine is red", and a noun in "a salt mine".
_BEFORE_MINE = "|".join(rf"(?<=\b{word} )" for word in ("of", "is", "are", "was", "were", "than", "like", "me"))
_MINE = (
    rf"(?:{_BEFORE_MINE}|(?<=['’]s ))mine"
    r"|Mine(?= (?:is|are|was|were|has|have|had|too|will|would|can|do|does|did)\b)"
)
# Longest first, so that "I'm" is not read as "I"; in one pass, so that words of an inserted name are not replaced.
_REPLACED_WORDS = re.compile(
    rf"\b(?<!/)(?:{_NUMBERED}(?:I['’](?:m|ve|d|ll)|I am|I have|I was|I)(?![/.-]\w)|[Mm]yself"
    rf"|[Mm]y(?! (?:god|goodness|gosh)\b)|{_MINE}|[Mm]e)\b"
)
# What follows "I'd" where it means "I had".
_HAD = re.compile(
    r" (?:(?:already|just|never|always) )?(?:better|been|done|gone|seen|told|said|had|made|given|taken|written|known"
    r"|thought|bought|brought|heard|left|lost|met|found|kept|felt|got|gotten|sent|spent|taught|won|broken|chosen|eaten"
    r"|forgotten|driven|\w+[^\We]ed)\b"
    r"| (?:already|just)\b"
)
# Verbs that often follow "I" in the present tense. Those whose past is the same, such as "read", are left out.
_PRESENT_VERBS = words(
    "act adore agree aim appreciate ask attend avoid bake battle become begin believe belong bike blame break "
    "bring build buy call care carry catch charge check choose clean climb coach collect come commute consider "
    "cook count crave cycle dance deal decide deserve design dislike doubt draw dread dream drink drive earn eat "
    "end enjoy enter exercise expect explain face fall fear feel fight figure find fix fly focus follow forget "
    "garden get give go grow guess handle hang hate hear help hold hope imagine jog join journal keep know lead "
    "lean learn leave like listen live look lose love make manage mean meditate meet mentor mind miss move need "
    "notice offer order organise organize owe own paint pass pay perform pick plan play practice practise prefer "
    "promise prune push raise reckon recommend record regret relate rely remember rent ride ring run save say see "
    "seem sell send serve share shop show sing sit sleep speak spend stand start stay stick stop struggle study "
    "suffer suggest support suppose swear swim take talk teach tell tend thank think travel treasure treat trust "
    "try turn understand use value visit volunteer wait wake walk want wash watch wear wish wonder work worry "
    "write"
)
_IRREGULAR = {"have": "has", "am": "is"}
_ADVERBS = words(
    "absolutely actually also always almost certainly constantly currently definitely even especially fully "
    "generally genuinely hardly honestly just kinda mainly mostly never normally now often only particularly "
    "probably rarely really regularly seldom simply sometimes sincerely still strongly sure totally truly "
    "typically usually"
)
_PRESENT = re.compile(
    rf"(?P<adverbs>(?:,? (?:{'|'.join(_ADVERBS)}),?){{0,3}} )"
    rf"(?P<verb>do(?: not|n['’]t)?|have|am|{'|'.join(_PRESENT_VERBS)})\b(?!['’]| not\b)"
)
# Words before "I" after which the verb stays as it is.
_BEFORE_BASE_FORM = re.compile(
    r"\b(?:do|does|did|can|could|shall|should|will|would|may|might|must|let|had|have|has)(?:n['’]t)? $"
    r"|\b(?:suggest|recommend|insist|demand|propos|request)(?:s|ed|ing|es)?(?: that)? $",
    re.IGNORECASE,
)
_JOINED = re.compile(r"\b(?:and|or|nor) $", re.IGNORECASE)
_LOOK_BACK = 20  # characters, more than any of these words have


_SAYING = (
    r"(?:says?|said|writes?|wrote|texts?|texted|messaged|repl(?:y|ies|ied)|answers?|answered|asks?|asked|tells?|told"
    r"|shouts?|shouted|goes)(?: [\w'’]{1,30}){0,3}"
)
# What follows is somebody's words: "Tom wrote: I quit", "She told me, I am leaving", "Tom: I lost my keys", and what
# was forwarded. Before "I", a word and a colon may also be a heading of one's own: "Update: I got the job".
_REPORTING = re.compile(
    rf"\b{_SAYING}: (?=\S)|(?<!\bI )\b{_SAYING}, (?=(?:I|[Mm]y)\b)|^\[?(?:Forwarded|Fwd)\b"
    r"|^(?!(?:Update|Edit|Note|News|Plan|Also|Me|Reminder|Today|Yesterday|Tomorrow|Problem|Fact|Confession|Warning|Tip"
    r"|Summary|Question|Answer|Reason|Result|Status|Honestly|Sorry|Background|Context|Goal|Ps|PS|Btw|BTW|FYI)\b)"
    r"[A-Z]\w{1,20}: (?=(?:I|I['’]\w{1,2}|My)\b)"
)
# Before a whole text of somebody else.
_FORWARDED = re.compile(r"\[?Forwarded(?: from\b|:|\])")


def sentences(text: str) -> list[str]:
    """The non-empty sentences of an utterance, without surrounding whitespace."""
    return [part.strip() for part in _BREAK.split(text) if part.strip()]


def is_forwarded(text: str) -> bool:
    """Whether a text begins as one of somebody else does, which is passed on."""
    return _FORWARDED.match(text) is not None


def unquoted(parts: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each sentence of a text together with its part outside quotations, which may span sentences.

    The second text is the first with blanks in place of what is quoted. A sentence that begins with ">", as in e-mails,
    is a quotation, and so is one after a sentence that ends in a colon, and what follows "Tom wrote:" in a sentence.
    A mark after a number that nothing in its sentence closes means inches.
    """
    is_quoted = is_announced = False
    for sentence in parts:
        pieces = _QUOTE.split(sentence)
        if len(pieces) % 2 == 0 and not is_quoted:
            pieces = _QUOTE.split(_INCHES.sub(" ", sentence, count=1))
        own_words = " ".join(_blank(piece) if (at % 2 == 1) != is_quoted else piece for at, piece in enumerate(pieces))
        is_told = not (sentence.startswith(">") or is_announced)
        own_words = _SINGLE_QUOTED.sub(lambda match: _blank(match[0]), own_words) if is_told else _blank(sentence)
        if reporting := _REPORTING.search(own_words):
            own_words = own_words[: reporting.end()] + _blank(own_words[reporting.end() :])
        yield sentence, own_words
        is_quoted ^= len(pieces) % 2 == 0
        is_announced = sentence.endswith(":")


def _blank(text: str) -> str:
    return " " * len(text)


def in_third_person(sentence: str, speaker: str, own_words: str | None = None) -> str:
    """The sentence with "I", "my" and "me" replaced by the speaker's name, and with verbs after "I" made to agree.

    If the result lacks the speaker's name, it is put in front, so that the sentence still shows who said it.

    Args:
        sentence: The sentence.
        speaker: Who said it.
        own_words: The sentence with blanks in place of what is quoted, as ``unquoted`` gives it, since "I" is somebody
            else there; None if nothing is quoted.
    """
    own = sentence if own_words is None else own_words
    pieces, end, is_first = [], 0, True
    for match in _REPLACED_WORDS.finditer(own):
        word = match[0].lower().replace("’", "'")
        ending = " had" if word == "i'd" and _HAD.match(own, match.end()) else _ENDINGS[word]
        pieces += [sentence[end : match.start()], speaker, ending]
        end = match.end()
        verb = _PRESENT.match(own, end) if word == "i" and not _is_base_form(own, match.start(), is_first) else None
        is_first &= not word.startswith("i")
        if verb is not None:
            pieces += [verb["adverbs"], _third_person(verb["verb"])]
            end = verb.end()
    result = "".join([*pieces, sentence[end:]])
    return result if {*words(speaker)} <= {*words(result)} else f"{speaker}: {result}"


def _is_base_form(text: str, place: int, is_first: bool) -> bool:
    """Whether the verb after an "I" does not agree with it alone, since the "I" comes after an auxiliary or a pair.

    After "and", the first "I" of a sentence belongs to a pair ("my wife and I"); a later one begins a clause.
    """
    start = max(0, place - _LOOK_BACK)
    return bool(_BEFORE_BASE_FORM.search(text, start, place) or (is_first and _JOINED.search(text, start, place)))


def _third_person(verb: str) -> str:
    """The form of a verb, or of "do", "do not" and "don't", after "he"."""
    if verb in _IRREGULAR:
        return _IRREGULAR[verb]
    if verb.startswith("do") and verb[2:] in ("", " not", "n't", "n’t"):
        return f"does{verb[2:]}"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ies"
    return f"{verb}es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else f"{verb}s"


def phrases(text: str, *, exclude: frozenset[str] = frozenset(), stop_words: frozenset[str] = STOP_WORDS) -> list[str]:
    """Distinct runs of two to four content words, in order of appearance.

    Args:
        text: The text.
        exclude: Words in lower case that no phrase has, such as the speaker's name.
        stop_words: The function words of its language, which end a phrase.

    Source:
        Rose et al. 2010, "Automatic keyword extraction from individual documents" (RAKE's candidate step).
    """
    distinct: dict[str, None] = {}
    for part in _PHRASE_BREAK.split(text):
        run: list[str] = []
        for word in [*words(part), ""]:
            if word and word not in stop_words and word not in exclude and len(word) > 2:
                run.append(word)
                continue
            if 2 <= len(run) <= 4:
                distinct.setdefault(" ".join(run))
            run = []
    return list(distinct)

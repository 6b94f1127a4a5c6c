"""Reads the text file that WhatsApp's "export chat" writes, without media.

Android writes ``12/03/2024, 18:40 - Ana: Hello``, iOS ``[12/03/2024, 18:40:12] Ana: Hello``, with the date and the
clock of the phone's language; a line without such a beginning continues the previous message. Whether the day or the
month comes first depends on the phone; a number above 12 decides it for the whole file. The times have no zone and are
read as UTC. A message's id is derived from its time, speaker and text, so that it is the same in an export that begins
later, or from which other messages were deleted. Notices, media, deleted messages and empty messages are skipped, and
so are lines that look like the beginning of a message with a clock that is not understood.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import (
    ContentNames,
    Skipped,
    Utterance,
    decode,
    number_turns,
    require_storable,
    stem_of,
)
from locigraph.kg.errors import CorpusFormatError
from locigraph.kg.types import SpaceId

_DATE = r"(\d{1,4}) ?[./\-年년] ?(\d{1,2}) ?[./\-月월] ?(\d{1,4})[日일.]?"
_HALF = r"[^\W\d_.]{1,10}\.?(?: ?[^\W\d_]\.?)?"  # "PM", "p. m.", "오후", "下午"
# Words between date and clock, such as in French, Finnish and Bulgarian.
_AT = r"(?:(?:à|às|at|um|alle|ore|klo|kl\.?|г\.?,?) ?)?"
_LINE = re.compile(
    rf"\[?{_DATE}[,،]? ?{_AT}(?:({_HALF}) ?)?(\d{{1,2}})[:.](\d{{2}})(?:[:.](\d{{2}}))? ?({_HALF})?"
    r"(?:\]| -|: ?(?=\S)) ?(.*)",
    re.DOTALL,
)
_BEGINNING = re.compile(r"(\[?)(\d{1,4}) ?([./\-年년])")
# A line that begins as a message does, but for a clock of an unknown kind.
_ALIKE = re.compile(
    rf"\[?{_DATE}[,،]?(?: [^\s\d]{{1,5}})?,? ?\d{{1,2}}[:.]\d{{2}}(?: ?\S{{1,9}})?(?:\]| -) ?[^\n:]{{1,60}}: "
)
_AM = frozenset(["am", "vorm", "오전", "上午", "午前", "凌晨", "早上", "清晨", "ص", "πμ", "dop", "de", "sa", "öö"])
_PM = frozenset(["pm", "nachm", "오후", "下午", "午後", "晚上", "傍晚", "م", "μμ", "odp", "du", "ch", "ös"])
_NOON = frozenset(["中午"])
# Marks of direction: before what the app itself wrote iOS puts the first, in every language.
_MARK = "\u200e"
_INVISIBLE = str.maketrans({_MARK: ""})
_OTHER_MARKS = "\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"
_SPACES = str.maketrans({"\u202f": " ", "\u00a0": " "} | dict.fromkeys(_OTHER_MARKS, ""))
# What stands for media in exports without them, in the languages of most phones; ``null`` for what it cannot express.
_OMITTED = frozenset(
    text.casefold()
    for text in (
        "Media omitted", "Medien ausgeschlossen", "Multimedia omitido", "Archivo omitido", "Médias omis",
        "Fichier omis", "Mídia oculta", "Ficheiro não revelado", "Arquivo de mídia oculto", "Media omessi",
        "Media weggelaten", "Без медиафайлов", "Файл пропущен", "Pominięto multimedia", "Plik pominięty",
        "Média vynechána", "Media utelämnat", "Media utelatt", "Medier udeladt", "Mediafil udeladt",
        "Mediatiedosto jätettiin pois", "Medya dahil edilmedi", "Media tidak disertakan", "Média kihagyva",
        "Fișier media omis", "Media omise", "Τα πολυμέσα παραλήφθηκαν", "מדיה הושמטה", "تم استبعاد الوسائط",
        "मीडिया छोड़ दिया गया", "미디어 파일을 제외한 내용", "미디어 파일 생략", "メディアなし",
        "メディアは含まれていません", "省略多媒体文件", "忽略多媒體檔", "Bỏ qua tệp phương tiện", "ละเว้นสื่อ",
    )
)  # fmt: skip
# Names of attached files begin with eight digits on iOS.
_ATTACHED = (
    r"(?:\S{1,120}|[^\n]{1,120}\.\w{1,5}) \((?:file attached|Datei angehängt|archivo adjunto|fichier joint"
    r"|file allegato|arquivo anexado|ficheiro anexado|bestand bijgevoegd)\)"
)
_MEDIA = re.compile(
    r"<[^<>\d]{1,20}\d{8}-[^<>]{1,255}>|<View once [^<>]{1,40}>"
    rf"|(?:image|video|audio|sticker|GIF|document|contact card) omitted|null|{_ATTACHED}",
    re.IGNORECASE,
)
# Beside a caption: a file's name on Android, what iOS writes after it.
_OMITTED_ON_IOS = r"(?:omitted|weggelassen|omitid[oa]|absente?|omess[oa]|ocultad[oa]|weggelaten)"
_BESIDE_CAPTION = re.compile(
    rf"\A{_MARK}?{_ATTACHED}\n|{_MARK}<[^<>\n]{{1,300}}>\Z|{_MARK}[^\n<>{_MARK}]{{1,30}} {_OMITTED_ON_IOS}\Z"
    rf"|(?:\A|{_MARK})[^\n•{_MARK}]{{1,255}} • {_MARK}\d{{1,6}} \w{{1,12}} {_MARK}[^\n<>]{{1,30}} {_OMITTED_ON_IOS}\Z",
    re.IGNORECASE,
)
_DELETED = (
    "This message was deleted", "You deleted this message", "Diese Nachricht wurde gelöscht",
    "Du hast diese Nachricht gelöscht", "Se eliminó este mensaje", "Eliminaste este mensaje",
    "Ce message a été supprimé", "Vous avez supprimé ce message", "Questo messaggio è stato eliminato",
    "Hai eliminato questo messaggio", "Esta mensagem foi apagada", "Mensagem apagada", "Dit bericht is verwijderd",
    "Ta wiadomość została usunięta", "Wiadomość została usunięta", "Сообщение удалено", "Данное сообщение удалено",
    "Вы удалили данное сообщение", "Bu mesaj silindi",
)  # fmt: skip
_EDITED = re.compile(
    r"<(?:This message was edited|Diese Nachricht wurde bearbeitet\.?|Se editó este mensaje\.?"
    r"|Ce message a été modifié|Questo messaggio è stato modificato|Mensagem editada|Dit bericht is bewerkt)>\Z"
)
# iOS marks them; on Android only their words tell.
_OF_APP = re.compile(
    rf"{_MARK}(?!<)|(?:Waiting for this message|live location shared|Missed (?:group )?(?:voice|video) call)"
    r"(?:\. This may take a while)?\.?\Z"
)
_DAY = timedelta(days=1)
# Not within a word or after a number, where it is part of a name: ד"ר, 6'2".
_QUOTATION_MARK = re.compile(r'(?<!\w)"|(?<!\d)"(?!\w)|[“”„«»]')
_KOREAN = (0, 1, 2)  # year, month and day in their places
_FIRST_YEAR = 2009  # of WhatsApp
_THAI = 543  # the year 543 before Christ is the first of the Thai calendar


@dataclass
class _Message:
    """Lines of the file that belong together: the first with its date, and those that continue it."""

    line: int
    numbers: tuple[int, int, int]  # of the date, in the order of the file
    clock: tuple[int, int, int]
    is_half_first: bool  # whether the half of the day stands before the clock
    beginning: str
    lines: list[str] = field(default_factory=list)

    @property
    def said(self) -> tuple[str, str] | None:
        """Speaker and words, with marks of direction; None if nobody is named, as in a notice of the app."""
        speaker, colon, first = self.lines[0].partition(": ")
        # A notice may quote a name or subject that contains ": ", so that its quotation is still open there.
        is_open = len(_QUOTATION_MARK.findall(speaker)) % 2
        return None if not colon or is_open else (speaker, "\n".join([first, *self.lines[1:]]).strip())


def read(path: str) -> Corpus:
    """Read an exported chat; the conversation is named after the file without its suffix, and each day is a session.

    Raises:
        CorpusFormatError: If no line is a message, or the days and months of its dates contradict each other.
    """
    skipped = Skipped()
    messages = [*_messages(path, skipped)]
    if not messages:
        skipped.notes(has_turns=False)
        expected = "lines such as '12/03/2024, 18:40 - Ana: Hello'"
        raise CorpusFormatError(path, None, "(file)", decode(path)[:40], expected)
    order, doubt = _order(path, messages)
    timed = []
    for message in messages:
        with skipped.unreadable("messages"):
            timed.append((_time(path, message, order), message))
    utterances, names = [], ContentNames()
    for time, message in _without_pasted(timed):
        said = message.said
        text = "" if said is None else _written(said[1])
        kind = "notices without a speaker" if said is None else _not_said(said[1], text)
        if said is None or kind:
            skipped.count(kind)
            continue
        speaker = said[0].translate(_INVISIBLE).strip().removeprefix("~").strip()  # "~ Ana" is in no address book
        utterances.append(Utterance(names.name(time, speaker, text), time.date().isoformat(), speaker, text, time))
    # signal-export gives every chat the same file name, in a folder with the name of the chat.
    space = SpaceId(Path(path).resolve().parent.name if Path(path).name == "chat.md" else stem_of(path))
    notes = [*skipped.notes(has_turns=bool(utterances))]
    if doubt:
        notes.append(doubt)
    return Corpus((Conversation(space, number_turns(space, utterances)),), notes=tuple(notes))


def _written(words: str) -> str:
    """What somebody has written, without what the app says of an edit or of media beside it."""
    return _EDITED.sub("", _BESIDE_CAPTION.sub("", words).translate(_INVISIBLE)).strip()


def _not_said(words: str, text: str) -> str:
    """What a message is instead of somebody's words (``text``), as it is counted; empty if it is that."""
    if text.removesuffix(".") in _DELETED:
        return "deleted messages"
    if not text or _MEDIA.fullmatch(text) or text.strip("<>").casefold() in _OMITTED:
        return "media and empty messages"
    return "notices of the app" if _OF_APP.match(_BESIDE_CAPTION.sub("", words)) else ""


def _messages(path: str, skipped: Skipped) -> Iterator[_Message]:
    lines = decode(path).translate(_SPACES).split("\n")
    shape = _usual_shape(lines)
    message: _Message | None = None
    is_lost = False
    for number, line in enumerate(lines, start=1):
        header = line.lstrip(_MARK)
        match = _LINE.fullmatch(header) if _shape(header) == shape else None
        clock = None if match is None else _clock(match)
        if match is None or clock is None:
            # Otherwise it would put the words of one into the mouth of another.
            if _shape(header) == shape and _ALIKE.match(header):
                skipped.count("messages with a date or clock that is not understood")
                is_lost = True
            elif message is not None and not is_lost:
                message.lines.append(line)
            continue
        if message is not None:
            yield from _storable(path, message, skipped)
        numbers = int(match[1]), int(match[2]), int(match[3])
        rest = match[9]
        message, is_lost = (
            _Message(number, numbers, clock, match[4] is not None, header.removesuffix(rest), [rest]),
            False,
        )
    if message is not None:
        yield from _storable(path, message, skipped)


def _usual_shape(lines: Sequence[str]) -> str:
    """The form of most dates at the beginning of a line: one of another form was pasted into a message."""
    headers = (line.lstrip(_MARK) for line in lines)
    shapes = Counter(_shape(each) for each in headers if _LINE.fullmatch(each))
    return max(shapes, key=shapes.__getitem__, default="")


def _shape(header: str) -> str:
    """Brackets, the sign between the numbers of the date, and whether the year comes first."""
    match = _BEGINNING.match(header)
    return "" if match is None else f"{match[1]}{match[3]}{len(match[2]) > 2}"


def _storable(path: str, message: _Message, skipped: Skipped) -> Iterator[_Message]:
    with skipped.unreadable("messages"):
        require_storable(path, f"line {message.line}", *message.lines)
        yield message


def _clock(match: re.Match[str]) -> tuple[int, int, int] | None:
    """Hour, minute and second; None if a word before or after them is not known."""
    hour, minute, second = int(match[5]), int(match[6]), int(match[7] or 0)
    words = [re.sub(r"[. ]", "", word).casefold() for word in (match[4], match[8]) if word]
    if not words:
        return hour, minute, second
    (word, *others) = words
    if others or word not in _AM | _PM | _NOON:
        return None
    is_later = word in _PM or (word in _NOON and hour != 11)  # noon begins at eleven
    return hour % 12 + (12 if is_later else 0), minute, second


def _without_pasted(messages: Sequence[tuple[datetime, _Message]]) -> Iterator[tuple[datetime, _Message]]:
    """The messages; lines without a speaker, of days after the next message or before the last, are part of the latter.

    Somebody has pasted them, such as entries of a calendar. Less than a day may be a clock that was set.
    """
    times = [time for time, message in messages if message.said is not None]
    following = iter(times)
    last: tuple[datetime, _Message] | None = None
    upcoming = next(following, None)
    for time, message in messages:
        is_late = upcoming is not None and time > upcoming + _DAY
        if message.said is None and last is not None and (is_late or time < last[0] - _DAY):
            last[1].lines += [message.beginning + message.lines[0], *message.lines[1:]]
            continue
        if message.said is not None:
            upcoming = next(following, None)
        if last is not None:
            yield last
        last = time, message
    if last is not None:
        yield last


def _order(path: str, messages: list[_Message]) -> tuple[tuple[int, int, int], str]:
    """Indexes of year, month and day among the numbers of a date, and a note unless the file determines them.

    A number above 12 does, or else that only one of the two orders lets the chat run forward.
    """
    if messages[0].numbers[0] > 31:  # all have the same form
        return (0, 1, 2), ""
    day_first = [message for message in messages if message.numbers[0] > 12]
    month_first = [message for message in messages if message.numbers[1] > 12]
    if day_first and len(day_first) == len(month_first):
        said = f"the day first, as in line {day_first[0].line}"
        raise CorpusFormatError(path, None, f"line {month_first[0].line}", month_first[0].numbers, said)
    # Few that contradict the others cannot be read, which is counted.
    if day_first or month_first:
        usual, is_known = ((2, 0, 1) if len(month_first) > len(day_first) else (2, 1, 0)), True
    else:  # a chat runs forward
        backward = {order: _steps_back(messages, order) for order in ((2, 1, 0), (2, 0, 1))}
        usual, is_known = min(backward, key=lambda order: backward[order]), len(set(backward.values())) > 1
    is_korean = _is_korean(messages, usual)
    if is_korean:
        return _KOREAN, ""
    if not is_known:
        return usual, "no date shows whether the day or the month comes first; dates were read with the day first"
    first = "month" if usual == (2, 0, 1) else "day"
    return usual, "" if is_korean is False else f"dates may have the year first; they were read with the {first} first"


def _steps_back(messages: Sequence[_Message], order: tuple[int, int, int]) -> int:
    """How often a message has an earlier day than the one before it, if its numbers are read in an order."""
    days = [tuple(message.numbers[place] for place in order) for message in messages]
    return sum(day < before for before, day in pairwise(days))


def _is_korean(messages: Sequence[_Message], usual: tuple[int, int, int]) -> bool | None:
    """Whether the first of three short numbers is the year, as in 24/8/21: more fits than in the usual order.

    Of two orders in which all dates exist and follow each other, the half of the day says it, which stands before the
    clock in few languages. None if it does not, and the chat would be much shorter with the year first.
    """
    this_year = datetime.now(UTC).year
    if not all(_FIRST_YEAR <= message.numbers[0] + 2000 <= this_year for message in messages):
        return False

    def faults(order: tuple[int, int, int]) -> tuple[int, int, int]:
        days = []
        for message in messages:
            with suppress(ValueError):
                days.append(_day(message, order))
        span = (max(days) - min(days)).days if days else 0
        return len(messages) - len(days), _steps_back(messages, order), span

    (*given, span), (*other, other_span) = faults(_KOREAN), faults(usual)
    if given != other:
        return given < other
    if all(message.is_half_first for message in messages):
        return True
    return None if 2 * span < other_span else False


def _day(message: _Message, order: tuple[int, int, int]) -> date:
    """The day of a message; raises ValueError if there is no such day."""
    year, month, day = (message.numbers[place] for place in order)
    return date(_year(year, datetime.now(UTC).year), month, day)


def _time(path: str, message: _Message, order: tuple[int, int, int]) -> datetime:
    try:
        day = _day(message, order)
        return datetime(day.year, day.month, day.day, *message.clock, tzinfo=UTC)
    except ValueError as error:
        where = f"line {message.line}"
        raise CorpusFormatError(path, None, where, message.numbers, f"a date and time ({error})") from None


def _year(number: int, now: int) -> int:
    """The year that a number stands for, with two digits or of the Thai calendar; WhatsApp is of 2009.

    Raises:
        ValueError: If it is of neither this nor the Thai calendar.
    """
    for year in (number, number + 2000, number - _THAI, number + 2500 - _THAI):
        if 2000 <= year <= now + 1:
            return year
    raise ValueError(f"year {number} is neither Gregorian nor Thai")


def _recognises(beginning: str) -> bool:
    lines = (line.lstrip(_MARK) for line in beginning.translate(_SPACES).split("\n")[:20])
    return any(_LINE.fullmatch(line) or _ALIKE.match(line) for line in lines)


FORMAT = CorpusFormat(
    "whatsapp",
    read,
    recognises=_recognises,
    is_export=True,
    makes_ids=True,
    nameless="_chat",  # iOS gives every chat this file name
)

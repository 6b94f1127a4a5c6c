"""Reads mail in mbox format (RFC 4155), as mail programs and Google Takeout export it.

A turn is the subject and the plain text of a mail, without what it quotes. Mails without plain text are skipped.
"""

from __future__ import annotations

import codecs
import re
from email import message_from_bytes, policy
from email.message import MIMEPart
from email.utils import parseaddr
from operator import attrgetter

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat
from locigraph.kg.corpora.parsing import Skipped, Utterance, number_turns, read_bytes, require_storable, stem_of
from locigraph.kg.errors import CorpusFormatError
from locigraph.kg.times import in_utc, is_in_range
from locigraph.kg.types import SpaceId

_FROM = re.compile(r"(?:\A|(?<=\n\n)|(?<=\n\r\n))From [^\r\n]{0,1000}\r?\n(?=[A-Za-z-]{1,60}: )")
# "On Monday Ana wrote:", before what is quoted, which may break in the middle; or a line with an address, or a day and
# a clock. Any other line that ends in a colon may be the writer's own.
_ON = r"(?:On|Am|Le|El|Il|Op|Em)\b"
_SAYS = r"(?:wrote|schrieb|écrit|escribió|scritto|schreef)\b[^\n]{0,60}"
_NAMED = r"[A-ZÀ-Ý][\w.'-]{0,30}(?: [A-ZÀ-Ý][\w.'-]{0,30}){0,3} "
_STAMPED = r"(?=[^\n]{0,200}(?:\S@\S|\d[./-]\d{1,2}\b[^\n]{0,80}\d:\d\d|\d:\d\d[^\n]{0,80}\d[./-]\d{1,2}\b))"
_END = r":\n\n?(?=>)"
_DATED_ON = rf"{_ON}(?=[^\n]{{0,200}}(?:\d:\d\d|\d{{4}}|@))[^\n]{{0,200}}"
_SHORT_ON = rf"{_ON}(?: [^\n ]{{1,30}}){{1,4}} "
_WROTE = re.compile(
    rf"^{_ON}[^\n]{{1,200}}\n(?!{_ON})[^\n]{{0,200}}{_SAYS}{_END}"
    rf"|^(?:{_DATED_ON}|{_SHORT_ON}|{_STAMPED}[^\n]{{0,200}}|{_NAMED}){_SAYS}{_END}"
    rf"|^{_STAMPED}[^\n]{{1,200}}{_END}",
    re.MULTILINE,
)
_ESCAPED = re.compile(r"^>(>{0,9}From )", re.MULTILINE)  # as mailboxes write lines that begin with "From "
_FORWARDED = re.compile(
    r"^-{2,20} ?(?:Original Message|Forwarded message|Ursprüngliche Nachricht|Message d'origine|Mensaje original)"
    r" ?-{2,20}$.*\Z"
    r"|^\*?(?:From|Von|De|Da|Van) ?:\*? [^\n]{1,200}\n\*?(?:Sent|Date|Gesendet|Datum|Envoyé|Enviado|Inviato|Verzonden)"
    r" ?:\*? .*\Z",
    re.MULTILINE | re.DOTALL,
)
_QUOTED = re.compile(r"^>[^\n]*(?:\n|\Z)", re.MULTILINE)
_SIGNATURE = re.compile(r"^-- \n.*\Z", re.MULTILINE | re.DOTALL)


def read(path: str) -> Corpus:
    """Read a mailbox; the conversation is named after the file without its suffix, and each day is a session.

    Raises:
        CorpusFormatError: If the file does not begin as a mailbox does, or no mail can be read.
    """
    skipped = Skipped()
    content = read_bytes(path).removeprefix(codecs.BOM_UTF8).decode("latin-1")  # each mail may have its own encoding
    if not content.startswith("From "):
        raise CorpusFormatError(path, None, "(file)", content[:40], "a mailbox, which begins with 'From '")
    found: dict[str, Utterance] = {}
    for number, mail in enumerate(_FROM.split(content)[1:], start=1):
        with skipped.unreadable("mails"):
            said = _said(path, f"mail {number}", mail.encode("latin-1"))
            if not said.text:
                skipped.count("mails without plain text")
            elif found.setdefault(said.turn_id, said) != said:
                skipped.count("mails with the ID of another")
    space = SpaceId(stem_of(path))
    utterances = sorted(found.values(), key=attrgetter("spoken_at"))
    notes = skipped.notes(has_turns=bool(utterances))
    return Corpus((Conversation(space, number_turns(space, utterances)),), notes=notes)


def _said(path: str, where: str, content: bytes) -> Utterance:
    try:
        mail = message_from_bytes(content, policy=policy.default)
        name, address = parseaddr(str(mail["From"] or ""))
        date, subject = mail["Date"], str(mail["Subject"] or "")
        time = None if date is None else date.datetime
        part = mail.get_body(("plain",))
        body = "" if part is None else _text_of(part)
        turn_id = str(mail["Message-ID"] or "").strip()
    except Exception as error:  # the parser trusts some headers, and fails on others in many ways
        raise CorpusFormatError(path, None, where, content[:40], f"a readable mail ({error})") from None
    text = _own_words(body.replace("\r\n", "\n"))
    speaker = name.strip() or address
    if time is None or not speaker or not turn_id:
        lacking = "Date" if time is None else "Message-ID" if speaker else "From"
        raise CorpusFormatError(path, None, where, mail[lacking], f"a mail with a {lacking} header")
    require_storable(path, where, subject, text, speaker)
    if not is_in_range(time):
        raise CorpusFormatError(path, None, where, str(date), "a date of our time")
    time = in_utc(time)
    words = f"{subject.strip()}\n{text}".strip() if text else ""
    return Utterance(turn_id, time.date().isoformat(), speaker, words, time)


def _text_of(part: MIMEPart) -> str:
    """The text of a part; one in an encoding that nobody knows is read as UTF-8, or else as Latin-1."""
    try:
        return str(part.get_content())
    except LookupError:
        content = bytes(part.get_payload(decode=True) or b"")
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content.decode("latin-1")


def _own_words(body: str) -> str:
    own = _FORWARDED.sub("", _SIGNATURE.sub("", body))
    quoted = _ESCAPED.sub(lambda match: f"\0{match[1]}", own)  # which a mail never holds
    return _QUOTED.sub("", _WROTE.sub("", quoted)).replace("\0", "").strip()


FORMAT = CorpusFormat(
    "mbox", read, recognises=lambda beginning: beginning.startswith("From ") and "\nDate: " in beginning, is_export=True
)

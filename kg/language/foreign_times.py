"""Rewrites the time expressions of other languages in English, so that one set of rules reads them all.

Each language has a table of its words and of the forms in which it puts them. Only the expressions are rewritten, since
the result is read by ``kg.language.dates`` and shown to nobody. Weekdays that are named alone ("am Freitag") are
rewritten only where the sentence says whether they are past or to come.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from locigraph.kg.language.calendar_names import MONTHS, WEEKDAYS
from locigraph.kg.language.languages import LANGUAGES, Language, language_of
from locigraph.kg.registry import Table

_UNITS = ("day", "week", "weekend", "month", "year")
_DIGITS = "一二三四五六七八九"  # one to nine in Chinese and Japanese
_SENTENCE_END = re.compile(r"[.!?;。！？\n](?!\d)")
_NEARBY = 200  # characters of a sentence before and after a weekday that tell its tense
_LATIN = "\u0250"  # the first character after the Latin letters


@dataclass(frozen=True)
class TimeWords:
    """The words for times of a language: regular expressions over lower-case letters without accents.

    In a form, ``{day}``, ``{number}`` (a month in digits), ``{year}``, ``{month}``, ``{weekday}``, ``{unit}`` and
    ``{count}`` stand for one of these; ``{when}`` for a weekday, unit or month. The same names in its translation stand
    for their English.

    Attributes:
        name: The language's code.
        months: Of January to December.
        weekdays: Of Monday to Sunday.
        units: Of day, week, weekend, month and year.
        counts: Of one to twelve, and of "a few".
        forms: Expressions and their English.
        before: What stands before a date that is the end of a range, and its English.
        past: Signs that a sentence is about the past.
        future: Signs that it is about what is to come.
        on: What stands before a weekday that is named alone; None if there is no such form.
    """

    name: str
    months: Sequence[str]
    weekdays: Sequence[str]
    units: Sequence[str]
    counts: Sequence[str]
    forms: Sequence[tuple[str, str]]
    before: Sequence[tuple[str, str]] = ()
    past: str = r"(?!)"
    future: str = r"(?!)"
    on: str | None = None

    @cached_property
    def rules(self) -> Sequence[tuple[re.Pattern[str], str]]:
        """The compiled forms, each with its English."""
        is_spaced = LANGUAGES[self.name].is_spaced
        # Without spaces the end of a longer number would be taken for a small one.
        alone = "" if is_spaced else rf"(?<![\d十百千万几幾])(?<!(?<![期拜周週])[{_DIGITS}])"
        tens = "" if is_spaced else rf"|[{_DIGITS}]?十[{_DIGITS}]?"
        alternatives = {
            "month": "|".join(self.months),
            "weekday": "|".join(self.weekdays),
            "unit": "|".join(self.units),
            "count": rf"{alone}(?:\d{{1,2}}{tens}|{'|'.join(self.counts)})",
            "day": r"\d{1,2}",
            "number": rf"{alone}\d{{1,2}}",
            "year": rf"{alone}(?:19|20)\d\d",
        }
        alternatives["when"] = "|".join((alternatives["weekday"], alternatives["unit"], alternatives["month"]))
        groups = {name: f"(?P<{name}>{pattern})" for name, pattern in alternatives.items()}
        ends = "|".join(form for form, _ in self.before) or "(?!)"
        begin, end = (rf"(?<!\w)(?P<before>(?:{ends}) )?", r"(?!\w)") if is_spaced else ("", "")
        forms = [*self.forms, *([] if self.on is None else [(self.on, "on {weekday}")])]
        rules = [(re.compile(f"{begin}(?:{_filled(form, groups)}){end}"), english) for form, english in forms]
        if self.before:  # a month alone is often a name or a verb
            rules.append((re.compile(rf"(?<!\w)(?P<before>{ends}) {groups['month']}{end}"), "{month}"))
        return rules

    @cached_property
    def tenses(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Patterns of signs of the past, and of what is to come."""
        return re.compile(rf"\b(?:{self.past})\b"), re.compile(rf"\b(?:{self.future})\b")

    def translated(self, text: str) -> str:
        """The text in lower case and without accents, with its time expressions in English.

        Of two expressions that overlap, the earlier one wins, then the longer one.
        """
        plain = "".join(map(_plain, text.lower()))
        matches = [(match, english) for pattern, english in self.rules for match in pattern.finditer(plain)]
        pieces, end = [], 0
        for match, translation in sorted(matches, key=lambda found: (found[0].start(), -found[0].end())):
            english = self._english(match, translation) if match.start() >= end else None
            if english is not None:
                pieces += [plain[end : match.start()], f" {english} "]
                end = match.end()
        return " ".join("".join([*pieces, plain[end:]]).split())

    def _english(self, match: re.Match[str], translation: str) -> str | None:
        """The English of an expression; None if it names a weekday whose tense is not clear."""
        values = {name: self._value(name, said) for name, said in match.groupdict().items() if said is not None}
        if translation == "on {weekday}":
            tense = self._tense(match)
            translation = {None: "", "past": "last {weekday}", "future": "next {weekday}"}[tense]
            if not translation:
                return None
        before = ""
        if values.get("before"):
            before = next(english for form, english in self.before if re.fullmatch(form, values["before"])) + " "
            translation = translation.removeprefix("in ")
        return f"{before}{translation.format(**values)}"

    def _value(self, name: str, said: str) -> str:
        tables = {
            "month": (self.months, MONTHS),
            "weekday": (self.weekdays, WEEKDAYS),
            "unit": (self.units, _UNITS),
            "count": (self.counts, [*map(str, range(1, 13)), "a few"]),
        }
        if name == "number":
            return MONTHS[int(said) - 1] if 1 <= int(said) <= 12 else said
        if name == "count" and "十" in said:
            tens, ones = (_DIGITS.index(digit) + 1 if digit else 0 for digit in said.partition("十")[::2])
            return str(10 * (tens or 1) + ones)
        for kind in ("weekday", "unit", "month") if name == "when" else (name,) if name in tables else ():
            for pattern, english in zip(*tables[kind], strict=True):
                if re.fullmatch(pattern, said):
                    return english
        return said.strip()

    def _tense(self, match: re.Match[str]) -> str | None:
        text = match.string
        before = _SENTENCE_END.split(text[max(0, match.start() - _NEARBY) : match.start()])[-1]
        sentence = before + _SENTENCE_END.split(text[match.end() : match.end() + _NEARBY])[0]
        past, future = self.tenses
        if future.search(sentence):
            return "future"
        return "past" if past.search(sentence) else None


def _filled(form: str, groups: dict[str, str]) -> str:
    for name, group in groups.items():
        form = form.replace(f"{{{name}}}", group)
    return form


def _split(*listed: str) -> tuple[str, ...]:
    return tuple(" ".join(listed).split())


_ISO_DAY_FIRST = (r"{day}/{number}/{year}", "{day} {number} {year}")
TIME_WORDS = Table(
    "language with time expressions",
    [
        TimeWords(
            "de",
            months=_split(
                "januar|jan\\.?|janner februar|feb\\.? marz|mrz\\.? april|apr\\.? mai juni|jun\\.? juli|jul\\.?",
                "august|aug\\.? september|sept?\\.? oktober|okt\\.? november|nov\\.? dezember|dez\\.?",
            ),
            weekdays=_split("montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag"),
            units=_split("tag(?:en|e|es|s)? wochen? wochenenden?s? monat(?:en|es|e|s)? jahr(?:en|es|e|s)?"),
            counts=(
                "ein(?:e[mnrs]?)?",
                *_split("zwei drei vier funf sechs sieben acht neun zehn elf zwolf"),
                "ein paar",
            ),
            forms=[
                (r"vorgestern", "the day before yesterday"),
                (r"gestern(?: (?:morgen|fruh|mittag|nachmittag|abend|nacht))?", "yesterday"),
                (r"heute(?: (?:morgen|fruh|mittag|nachmittag|abend|nacht))?", "today"),
                (r"ubermorgen", "the day after tomorrow"),
                (r"(?<!am )(?<!guten )(?<!jeden )(?<!den )morgen(?: (?:fruh|mittag|nachmittag|abend))?", "tomorrow"),
                (r"(?:am |im |in der |den |das |die )?(?:letzte|vorige|vergangene)[nrms]? {when}", "last {when}"),
                (r"(?:am |im |in der |den |das |die )?(?:nachste|kommende)[nrms]? {when}", "next {when}"),
                (r"(?:an |in )?diese[nrms]? {unit}", "this {unit}"),
                (r"heute vor {count} {unit}", "{count} {unit}s ago today"),
                (r"vor {count} {unit}", "{count} {unit}s ago"),
                (r"in {count} {unit}", "in {count} {unit}s"),
                (r"(?:am |den |der |dem |vom )?{day}\. ?{number}\. ?{year}", "{day} {number} {year}"),
                (r"(?:am |den |der |dem |vom ){day}\. ?{number}\.", "{day} {number}"),
                (r"(?:am |den |der |dem |vom )?{day}\.? ?{month},? {year}", "{day} {month} {year}"),
                (r"(?:am |den |der |dem |vom )?{day}\.? ?{month}", "{day} {month}"),
                (r"(?:im |anfang |mitte |ende )?{month},? {year}", "in {month} {year}"),
                (r"(?:im |anfang |mitte |ende ){month}", "in {month}"),
                (r"(?:im jahre? |im sommer |im winter ){year}", "in {year}"),
            ],
            before=[
                ("vor(?: dem)?", "before"),
                ("nach(?: dem)?", "after"),
                ("seit(?: dem)?", "since"),
                ("bis(?: zum)?", "until"),
            ],
            past=(
                r"war(?:en|st|t)?|hatten?|hattest|ging(?:en)?|kam(?:en)?|gab|wurden?|ge\w{2,30}(?:t|en)"
                r"|\w{2,4}ge\w{2,30}(?:t|en)|(?:ver|be|er|ent)\w{2,30}t"
            ),
            future=r"werden?|wirst|wird|will|wollen|willst|muss|mussen|soll|sollen|plane|planen|kommt|findet",
            on=r"(?:am ){weekday}(?!,? (?:den |dem )?\d)",
        ),
        TimeWords(
            "fr",
            months=_split(
                "janvier|janv\\.? fevrier|fevr\\.? mars avril|avr\\.? mai juin juillet|juil\\.? aout",
                "septembre|sept\\.? octobre|oct\\.? novembre|nov\\.? decembre|dec\\.?",
            ),
            weekdays=_split("lundi mardi mercredi jeudi vendredi samedi dimanche"),
            units=("jours?|journees?", "semaines?", "week-?ends?", "mois", "ans?|annees?"),
            counts=(*_split("une? deux trois quatre cinq six sept huit neuf dix onze douze"), "quelques"),
            forms=[
                (r"avant[- ]hier", "the day before yesterday"),
                (r"hier(?: (?:matin|midi|soir|apres-midi))?", "yesterday"),
                (r"aujourd['’ ]hui|ce matin|ce soir|cet apres-midi", "today"),
                (r"apres[- ]demain", "the day after tomorrow"),
                (r"demain(?: (?:matin|midi|soir|apres-midi))?", "tomorrow"),
                (r"(?:le |la |l['’]|en )?{when} (?:dernier|derniere|passe|passee)", "last {when}"),
                (r"(?:le |la |l['’]|en )?{when} (?:prochaine?|qui vient)", "next {when}"),
                (r"(?:cette|ce|cet) {unit}(?:-ci)?", "this {unit}"),
                (r"il y a {count} {unit}", "{count} {unit}s ago"),
                (r"dans {count} {unit}", "in {count} {unit}s"),
                _ISO_DAY_FIRST,
                (r"(?:le |du |au )?{day}(?:er)? {month},? {year}", "{day} {month} {year}"),
                (r"(?:le |du |au )?{day}(?:er)? {month}", "{day} {month}"),
                (r"(?:en |au mois de |au mois d['’]|debut |fin |mi-)?{month} {year}", "in {month} {year}"),
                (r"(?:en |au mois de |au mois d['’]|debut |fin |mi-){month}", "in {month}"),
                (r"en {year}", "in {year}"),
            ],
            before=[
                ("avant(?: le)?", "before"),
                ("apres(?: le)?", "after"),
                ("depuis(?: le)?", "since"),
                ("jusqu['’](?:au|a|en)", "until"),
            ],
            past=(
                r"ai|avons|avez|ont|etaient|etais|etait|avait|avais|est (?:alle|venu|parti|arrive|reste|ne)\w{0,3}"
                r"|a (?:ete|eu|fait|dit|pris|mis|vu|achete|trouve|demenage|commence|perdu|gagne|recu)\w{0,2}"
            ),
            future=(
                r"vais|vas|va|allons|allez|vont|ira|veux|veut|dois|doit"
                r"|\w{2,30}(?:erai|eras|erons|eront|irai|irons|iront)"
            ),
            on=r"(?<!chaque )(?<!tous les )(?:le )?{weekday}(?!,? \d)",
        ),
        TimeWords(
            "es",
            months=_split(
                "enero febrero marzo abril mayo junio julio agosto septiembre|setiembre octubre noviembre diciembre"
            ),
            weekdays=_split("lunes martes miercoles jueves viernes sabado domingo"),
            units=("dias?", "semanas?", "fin(?:es)? de semana", "mes(?:es)?", "anos?"),
            counts=(
                *_split("un[ao]? dos tres cuatro cinco seis siete ocho nueve diez once doce"),
                "unos|unas|un par de",
            ),
            forms=[
                (r"anteayer|antes de ayer|antier", "the day before yesterday"),
                (r"ayer(?: por la (?:manana|tarde|noche))?|anoche", "yesterday"),
                (r"hoy|esta (?:manana|tarde|noche)", "today"),
                (r"pasado manana", "the day after tomorrow"),
                (r"(?<!la )(?<!esta )manana(?: por la (?:manana|tarde|noche))?", "tomorrow"),
                (r"(?:el |la |en )?{when} pasad[oa]", "last {when}"),
                (r"(?:el |la )?(?:pasad[oa]|ultim[oa]) {when}", "last {when}"),
                (r"(?:el |la )?(?:proxim[oa]) {when}", "next {when}"),
                (r"(?:el |la )?{when} que viene", "next {when}"),
                (r"est[ae] {unit}", "this {unit}"),
                (r"hace {count} {unit}", "{count} {unit}s ago"),
                (r"(?:dentro de|en) {count} {unit}", "in {count} {unit}s"),
                _ISO_DAY_FIRST,
                (r"(?:el |al |del )?{day} de {month},? (?:del? )?{year}", "{day} {month} {year}"),
                (r"(?:el |al |del )?{day} de {month}", "{day} {month}"),
                (r"(?:en |a principios de |a finales de )?{month} (?:del? )?{year}", "in {month} {year}"),
                (r"(?:en |a principios de |a finales de |a mediados de ){month}", "in {month}"),
                (r"en (?:el )?{year}", "in {year}"),
            ],
            before=[
                ("antes del?", "before"),
                ("despues del?", "after"),
                ("desde(?: el)?", "since"),
                ("hasta(?: el)?", "until"),
            ],
            past=(
                r"fue|fui|fuimos|fueron|era|eran|estuv\w{1,9}|tuv\w{1,9}|hizo|hice|hicimos|vin[eo]|he|ha|hemos|han|habia\w{0,5}"
                r"|\w{3,30}(?:aron|ieron|aste|iste)|(?:compr|lleg|qued|empez|encontr|pag|nac|conoc)(?:e|o|io|imos|amos)"
            ),
            future=(
                r"voy|vas|va|vamos|van|quiero|quiere|tengo que|tiene que"
                r"|(?:ser|estar|ir|har|tendr|vendr|podr|llegar|saldr|viajar|empezar)(?:e|as|a|emos|an)"
            ),
            on=r"(?<!todos )(?<!cada )el {weekday}(?!,? \d)",
        ),
        TimeWords(
            "it",
            months=_split(
                "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre"
            ),
            weekdays=_split("lunedi martedi mercoledi giovedi venerdi sabato domenica"),
            units=("giorn[oi]", "settiman[ae]", "fine settimana|week-?end", "mes[ei]", "ann[oi]"),
            counts=(
                *_split("un[ao]?['’]? due tre quattro cinque sei sette otto nove dieci undici dodici"),
                "un paio di|qualche",
            ),
            forms=[
                (r"l['’]altro ieri|ieri l['’]altro|avantieri", "the day before yesterday"),
                (r"ieri(?: (?:mattina|sera|notte|pomeriggio))?", "yesterday"),
                (r"oggi|stamattina|stamani|stasera|stanotte|questa (?:mattina|sera)", "today"),
                (r"dopodomani", "the day after tomorrow"),
                (r"domani(?: (?:mattina|sera|pomeriggio))?", "tomorrow"),
                (r"(?:il |la |lo |l['’]|nel |nella )?{when} (?:scors[oa]|passat[oa])", "last {when}"),
                (r"(?:il |la |lo |nel |nella )?(?:scors[oa]|ultim[oa]) {when}", "last {when}"),
                (r"(?:il |la |l['’])?{when} (?:prossim[oa])", "next {when}"),
                (r"(?:il |la )?(?:prossim[oa]) {when}", "next {when}"),
                (r"quest[oa'’] ?{unit}", "this {unit}"),
                (r"{count} ?{unit} fa", "{count} {unit}s ago"),
                (r"(?:tra|fra) {count} ?{unit}", "in {count} {unit}s"),
                _ISO_DAY_FIRST,
                (r"(?:il |l['’]|dal |al )?{day}°? {month},? {year}", "{day} {month} {year}"),
                (r"(?:il |l['’]|dal |al )?{day}°? {month}", "{day} {month}"),
                (r"(?:a |in |nel |di |a inizio |a fine |a meta )?{month} (?:del )?{year}", "in {month} {year}"),
                (r"(?:a |in |nel |a inizio |a fine |a meta |inizio |fine ){month}", "in {month}"),
                (r"nel {year}", "in {year}"),
            ],
            before=[
                ("prima (?:di|del|dell['’])", "before"),
                ("dopo(?: il| l['’])?", "after"),
                ("da|dal|dall['’]", "since"),
                ("fino (?:ad?|al|all['’])", "until"),
            ],
            past=(
                r"ho|hai|ha|abbiamo|hanno|sono (?:andat|venut|stat|arrivat|partit|nat)\w"
                r"|e (?:andat|venut|stat|arrivat|partit|nat)\w|era|ero|erano|aveva\w{0,5}"
            ),
            future=(
                r"vado|vai|va|andiamo|vanno|voglio|vuole|devo|deve|dobbiamo"
                r"|(?:sar|andr|far|avr|verr|potr|dovr|star|partir|arriver|inizier)(?:o|ai|a|emo|anno)"
            ),
            on=r"(?<!ogni )(?<!di )(?:il )?{weekday}(?!,? \d)",
        ),
        TimeWords(
            "pt",
            months=_split("janeiro fevereiro marco abril maio junho julho agosto setembro outubro novembro dezembro"),
            weekdays=tuple(
                f"{day}(?:-feira)?" if day not in ("sabado", "domingo") else day
                for day in _split("segunda terca quarta quinta sexta sabado domingo")
            ),
            units=("dias?", "semanas?", "(?:fim|fins|final|finais) de semana", "mes(?:es)?", "anos?"),
            counts=(*_split("uma? dois|duas tres quatro cinco seis sete oito nove dez onze doze"), "alguns|algumas"),
            forms=[
                (r"anteontem|antes de ontem", "the day before yesterday"),
                (r"ontem(?: (?:de manha|a tarde|a noite))?", "yesterday"),
                (r"hoje|esta (?:manha|tarde|noite)", "today"),
                (r"depois de amanha", "the day after tomorrow"),
                (r"amanha(?: (?:de manha|a tarde|a noite))?", "tomorrow"),
                (r"(?:n[oa] |em )?{when} passad[oa]", "last {when}"),
                (r"(?:n[oa] |[oa] )?(?:ultim[oa]|passad[oa]) {when}", "last {when}"),
                (r"(?:n[oa] |[oa] )?proxim[oa] {when}", "next {when}"),
                (r"(?:n[oa] |[oa] )?{when} que vem", "next {when}"),
                (r"n?est[ae] {unit}", "this {unit}"),
                (r"(?:ha|faz) {count} {unit}(?: atras)?", "{count} {unit}s ago"),
                (r"{count} {unit} atras", "{count} {unit}s ago"),
                (r"(?:daqui a|dentro de|em) {count} {unit}", "in {count} {unit}s"),
                _ISO_DAY_FIRST,
                (r"(?:n?o dia |em |a |d?e )?{day} de {month},? (?:de )?{year}", "{day} {month} {year}"),
                (r"(?:n?o dia |em |a )?{day} de {month}", "{day} {month}"),
                (r"(?:em |no inicio de |no fim de )?{month} (?:de )?{year}", "in {month} {year}"),
                (r"(?:em |no inicio de |no fim de |no final de |em meados de ){month}", "in {month}"),
                (r"em {year}", "in {year}"),
            ],
            before=[
                ("antes d[eo](?: dia)?", "before"),
                ("depois d[eo](?: dia)?|apos(?: o dia)?", "after"),
                ("desde(?: o dia| o)?", "since"),
                ("ate(?: ao?| o)?(?: dia)?", "until"),
            ],
            past=(
                r"foi|fui|fomos|foram|era|eram|estive|esteve|tive|teve|fiz|fez|veio|vim"
                r"|\w{3,30}(?:amos|aram|eram|iram|ou|iu)|(?:compr|cheg|fiqu|comec|encontr|pagu)ei"
            ),
            future=(
                r"vou|vais|vai|vamos|vao|quero|quer|tenho que|tem que"
                r"|(?:ser|estar|ir|far|ter|vir|poder|chegar|comecar)(?:ei|as|a|emos|ao)"
            ),
            on=r"(?:n[oa] ){weekday}(?!,? \d)",
        ),
        TimeWords(
            "nl",
            months=_split(
                "januari|jan\\.? februari|feb\\.? maart|mrt\\.? april|apr\\.? mei juni|jun\\.? juli|jul\\.?",
                "augustus|aug\\.? september|sept?\\.? oktober|okt\\.? november|nov\\.? december|dec\\.?",
            ),
            weekdays=_split("maandag dinsdag woensdag donderdag vrijdag zaterdag zondag"),
            units=("dag(?:en)?", "week|weken", "weekend(?:en)?", "maand(?:en)?", "jaar|jaren"),
            counts=(*_split("een twee drie vier vijf zes zeven acht negen tien elf twaalf"), "een paar"),
            forms=[
                (r"eergisteren", "the day before yesterday"),
                (r"gisteren(?:ochtend|middag|avond)?|gisteravond|gisterochtend|gistermiddag", "yesterday"),
                (r"vandaag|vanmorgen|vanochtend|vanmiddag|vanavond|vannacht", "today"),
                (r"overmorgen", "the day after tomorrow"),
                (r"(?<!goede )(?<!elke )morgen(?:ochtend|middag|avond)?", "tomorrow"),
                (r"(?:in het |in de |op )?(?:afgelopen|vorige?|verleden|laatste) {when}", "last {when}"),
                (r"(?:in het |in de |op )?(?:volgende?|komende?|aanstaande) {when}", "next {when}"),
                (r"(?:deze|dit) {unit}", "this {unit}"),
                (r"{count} {unit} geleden", "{count} {unit}s ago"),
                (r"over {count} {unit}", "in {count} {unit}s"),
                (r"(?:op )?{day}[-/]{number}[-/]{year}", "{day} {number} {year}"),
                (r"(?:op |de )?{day}(?:e|ste|de)? {month},? {year}", "{day} {month} {year}"),
                (r"(?:op |de )?{day}(?:e|ste|de)? {month}", "{day} {month}"),
                (r"(?:in |begin |eind |half )?{month} {year}", "in {month} {year}"),
                (r"(?:in |begin |eind |half ){month}", "in {month}"),
                (r"in {year}", "in {year}"),
            ],
            before=[("voor", "before"), ("na", "after"), ("sinds", "since"), ("tot(?: en met)?", "until")],
            past=r"was|waren|had|hadden|ging|gingen|kwam|kwamen|werd|heb|hebt|ge\w{2,30}(?:t|d|en)",
            future=r"zal|zult|zullen|wil|willen|moet|moeten|gaan",
            on=r"(?:op ){weekday}(?!,? \d)",
        ),
        TimeWords(
            "ja",
            months=tuple(f"{month}月" for month in range(12, 0, -1))[::-1],
            weekdays=tuple(f"{day}曜日?" for day in "月火水木金土日"),
            units=("日", "週間?", "週末", "[かヶカケ箇]?月", "年"),
            counts=(*"一二三四五六七八九十", "十一", "十二", "数"),
            forms=[
                (r"一昨日|おととい", "the day before yesterday"),
                (r"昨日|きのう|昨夜|昨晩|ゆうべ", "yesterday"),
                (r"今日|きょう|今朝|今夜|今晩", "today"),
                (r"明後日|あさって", "the day after tomorrow"),
                (r"明日|あした", "tomorrow"),
                (r"先週の?{weekday}", "{weekday} of last week"),
                (r"今週の?{weekday}", "{weekday} of this week"),
                (r"来週の?{weekday}", "{weekday} of next week"),
                (r"先週末", "last weekend"),
                (r"先週", "last week"),
                (r"今週", "this week"),
                (r"来週", "next week"),
                (r"先月", "last month"),
                (r"今月", "this month"),
                (r"来月", "next month"),
                (r"去年|昨年", "last year"),
                (r"今年", "this year"),
                (r"来年", "next year"),
                (r"(?:前の|この前の|先日の){weekday}", "last {weekday}"),
                (r"次の{weekday}", "next {weekday}"),
                (r"{count}{unit}前", "{count} {unit}s ago"),
                (r"{count}{unit}後", "in {count} {unit}s"),
                (r"(?:去年|昨年)の?{number}月{day}日", "{day} {number} last year"),
                (r"来年の?{number}月{day}日", "{day} {number} next year"),
                (r"{year}年{number}月{day}日", "{day} {number} {year}"),
                (r"{number}月{day}日", "{day} {number}"),
                (r"{year}年{number}月", "in {number} {year}"),
                (r"{number}月(?!曜)", "in {number}"),
                (r"{year}年", "in {year}"),
            ],
        ),
        TimeWords(
            "zh",
            months=tuple(f"{month}月" for month in range(1, 13)),
            weekdays=tuple(f"(?:星期|周|週|礼拜|禮拜){day}" for day in ("一", "二", "三", "四", "五", "六", "[日天]")),
            units=("天|日", "周|週|[个個]?星期|[个個]?礼拜", "周末|週末", "[个個]?月", "年"),
            counts=("一", "[二两兩]", *"三四五六七八九十", "十一", "十二", "几|幾"),
            forms=[
                (r"(?<!大)前天", "the day before yesterday"),
                (r"昨天|昨晚", "yesterday"),
                (r"今天|今早|今晚", "today"),
                (r"(?<!大)[后後]天", "the day after tomorrow"),
                (r"明天|明早|明晚", "tomorrow"),
                (r"(?<!上)上[个個]?{weekday}", "{weekday} of last week"),
                (r"(?<!下)下[个個]?{weekday}", "{weekday} of next week"),
                (r"(?<!上)上[个個]?(?:周|週|星期|礼拜|禮拜)末", "last weekend"),
                (r"(?<!上)上[个個]?(?:周|週|星期|礼拜|禮拜)", "last week"),
                (r"(?<!下)下[个個]?(?:周|週|星期|礼拜|禮拜)", "next week"),
                (r"(?<!上)上[个個]?月", "last month"),
                (r"(?<!下)下[个個]?月", "next month"),
                (r"去年", "last year"),
                (r"今年", "this year"),
                (r"明年", "next year"),
                (r"{count}{unit}前", "{count} {unit}s ago"),
                (r"{count}{unit}[后後]", "in {count} {unit}s"),
                (r"去年{number}月{day}[日号號]", "{day} {number} last year"),
                (r"明年{number}月{day}[日号號]", "{day} {number} next year"),
                (r"{year}年{number}月{day}[日号號]", "{day} {number} {year}"),
                (r"{number}月{day}[日号號]", "{day} {number}"),
                (r"{year}年{number}月", "in {number} {year}"),
                (r"{number}月", "in {number}"),
                (r"{year}年", "in {year}"),
            ],
        ),
    ],
)


def with_english_times(text: str) -> str:
    """The text in lower case, with its time expressions in English if it is in a language of the table.

    For readers of times alone: in texts of those languages accents are left out, too.
    """
    words = TIME_WORDS.get(language_of(text).name)
    return text.lower() if words is None else words.translated(text)


def names_a_time(name: str, language: Language) -> bool:
    """Whether a name is that of a month or weekday in a language, as in "Samstag"."""
    words = TIME_WORDS.get(language.name)
    if words is None:
        return False
    plain = "".join(map(_plain, name.lower()))
    return any(re.fullmatch(pattern, plain) for pattern in (*words.months, *words.weekdays))


def _plain(sign: str) -> str:
    return unicodedata.normalize("NFKD", sign)[0] if sign < _LATIN else sign

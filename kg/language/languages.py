"""Tells in which language a text is, by its script and its function words, and holds what search needs of a language.

Each text is looked at for itself, so that a space may mix languages, and no setting has to be made before the first
turn. A short text without function words counts as English.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import Stemmer
import stop_words as listed

from locigraph.kg.language.tokens import STOP_WORDS, words
from locigraph.kg.registry import Table
from locigraph.kg.text_caches import cached

_WORDS = {
    "basque": """
        al anitz arabera asko baina bat batean batek bati batzuk bera beraiek beste bezala da dago dira ditu du dut edo
        egin ere eta eurak ez gara gu gutxi guzti haiei haiek haietan hainbeste hala han handik hango hari hau hauei
        hauek hemen hona honek honi hor hori horiek horko hura izan naiz ni noiz nola non nondik nongo nor nora nire
        oso zara zen zer zergatik zu zuek zuten
        """,
    "esperanto": """
        al ankaŭ antaŭ aŭ ĉar ĉe ĉi ĉu da de dum ebla el en ene eĉ ekde esti estas estis for ĝi ĝis ĝin ili iĝis jam je
        kaj ke kia kial kiam kie kiel kio kiu kun kvankam la laŭ li mi mia mian ne ni nia nun nur oni per por post pri
        sed sen ses sia sin sur sub super ŝi tamen tie tiel tio tiu tre via vi
        """,
    "estonian": """
        aga ei et ja jah kas kui kõik ma me mida midagi mind minu mis mu mul mulle nad nii oled olen oli oma on pole sa
        seda see selle siin siis ta te ära kus millal kes aastal või juba veel väga ning ka olid
        """,
    "irish": """
        a ach ag agus an aon ar arna as ba beirt bhúr ceathair cuig de den do don dá é faoi gan go gur i iad idir is
        le leis mar mé mo na nach ní níos níl ó os sa san sé sí sin siad sinn sna tá tú um bhí agam agat
        """,
    "lithuanian": """
        aš apie ar bet bei bus buvo čia dabar dar dėl iki ir iš jau jei ji jie jis jo jos jų ką kad kaip kai kas kur
        labai man mano mane mes mus ne nes nėra nuo o per po prie su šis ši tai taip tas tau tavo to tu turi už visi
        yra jūs kada
        """,
    "serbian": """
        a ali bi bila bili bilo bio biti će ću da do dok ga gde i ili ima imam iz ja je jer još joj ju kad kada kako kao
        koja koje koji li me mi moj moja mu na nam ne nego ni nije nisam no o od on ona oni po pre sa sam samo se si smo
        su sve šta što ta te ti to toga tu u uz već vi za
        """,
    "turkish": """
        acaba ama ancak aslında az bana bazı belki ben benden beni benim bile bir biri birkaç birşey biz bize bizi bizim
        böyle bu buna bunda bundan bunu bunun burada çok çünkü da daha de defa değil diye dolayı en gibi göre hangi
        hatta hem hep hepsi her hiç için ile ise kadar kendi ki kim kime kimi mı mi mu mü nasıl ne neden nerede nereye
        niye o olan olarak oldu olduğu on ona ondan onlar onu onun orada oysa sana sanki seni senin siz sizin şey şu
        tüm var ve veya ya yani yine yok zaten
        """,
}  # function words of languages that the package of lists lacks, or has in a damaged form

# Words that are frequent in chat and tell a language, beside its function words; search does not leave them out.
_TELLING = {
    "catalan": "gràcies avui ahir demà bon dia",
    "czech": "díky ahoj dnes včera zítra děkuji týden",
    "danish": "tak goddag dag går morgen ved endnu uge",
    "dutch": """
        bedankt vandaag gisteren morgen wanneer waar liggen ligt gaan gaat leuk jij jullie ons onze wel maandag
        dinsdag woensdag donderdag vrijdag zaterdag zondag januari maart juni juli oktober gedaan
        """,
    "finnish": "kiitos hei tänään eilen huomenna viikko",
    "french": """
        merci bonjour salut demain hier oui non beaucoup il viens vient vais viendra quel quelle combien lundi mardi
        mercredi jeudi vendredi samedi dimanche janvier février juin juillet août septembre octobre décembre semaine
        """,
    "german": """
        danke hallo heute gestern morgen abend gibt gab bitte nein gern gerne guten wann wer wieviel seit montag
        dienstag mittwoch donnerstag freitag samstag sonntag januar märz juni juli oktober dezember woche gemacht
        """,
    "hungarian": "köszönöm szia ma tegnap holnap hét hol múlt",
    "italian": """
        grazie ciao oggi ieri domani sì ti ci serve vediamo abita dove quando perché buona buongiorno lunedì martedì
        mercoledì giovedì venerdì sabato domenica gennaio giugno luglio settembre ottobre dicembre settimana
        """,
    "norwegian": "takk hei dag går morgen uke",
    "polish": "dzięki cześć dzisiaj wczoraj jutro tydzień tygodniu gdzie kiedy",
    "portuguese": """
        obrigado obrigada olá hoje ontem amanhã onde quando quanto mora sim semana uma pro pra dia alguma coisa aí
        vai vocês viram tanto nada quer vez ele ela dele dela segunda terça quarta quinta sexta sábado domingo
        janeiro junho julho setembro outubro dezembro
        """,
    "romanian": "mulțumesc bună azi ieri mâine săptămâna trecută unde când",
    "spanish": """
        gracias hola hoy ayer mañana sí vamos dónde cuándo cuánto semana lunes martes miércoles jueves viernes
        sábado domingo enero febrero junio julio septiembre octubre diciembre
        """,
    "swedish": "tack hej idag igår imorgon vecka veckan",
    "turkish": "teşekkürler merhaba bugün dün yarın hafta şimdi nerede kaç henüz",
}


# Words with a meaning of their own that the lists of function words have all the same.
_CONTENT = frozenset(
    words(
        """
        trabaja trabajais trabajamos trabajan trabajar trabajas trabajo tiempo verdad fuerza lugar ejemplo nuevo nueva
        nuevos nuevas empleo lavoro comprare promesso persona persone caminho comprido ligado desligado quieto trabalhar
        trabalho verdade nouveau nouveaux parole personne personnes valeur choses chose
        """
    )
)


@dataclass(frozen=True)
class Language:
    """A row of the table.

    Attributes:
        name: Its code of ISO 639-1.
        english_name: As the lists of function words call it.
        stemmer: The Snowball stemmer; None where there is none, and words are compared as they are.
        script: Where the letters of its script begin and end in Unicode; None for the Latin script.
    """

    name: str
    english_name: str
    stemmer: str | None = None
    script: str | None = None

    @property
    def is_spaced(self) -> bool:
        """Whether it writes blanks between words."""
        return self.name not in ("ja", "zh", "th")

    @property
    def stop_words(self) -> frozenset[str]:
        """Its function words, in lower case; empty where no list is known."""
        return _stop_words(self.english_name)

    @property
    def telling(self) -> frozenset[str]:
        """Words that tell that a text is in this language: its function words and others that are frequent in chat."""
        return _telling(self.english_name)

    def stem(self, word: str) -> str:
        """The stem of a word in lower case."""
        return word if self.stemmer is None else _stem(self.stemmer, word)


def _of_snowball(name: str, english_name: str, script: str | None = None) -> Language:
    return Language(name, english_name, english_name, script)


_CYRILLIC, _ARABIC, _HEBREW = "Ѐ-ӿ", "\u0600-\u06ff\u0750-\u077f", "\u0590-\u05ff"
#: Of languages that share a script, one that has as many function words in a text as another comes first.
LANGUAGES = Table(
    "language",
    [
        _of_snowball("en", "english"),
        _of_snowball("es", "spanish"),
        _of_snowball("de", "german"),
        _of_snowball("fr", "french"),
        _of_snowball("pt", "portuguese"),
        _of_snowball("it", "italian"),
        _of_snowball("nl", "dutch"),
        _of_snowball("pl", "polish"),
        _of_snowball("tr", "turkish"),
        _of_snowball("sv", "swedish"),
        _of_snowball("da", "danish"),
        _of_snowball("no", "norwegian"),
        _of_snowball("fi", "finnish"),
        _of_snowball("cs", "czech"),
        Language("sk", "slovak"),
        _of_snowball("ro", "romanian"),
        _of_snowball("hu", "hungarian"),
        _of_snowball("id", "indonesian"),
        Language("ms", "malaysian", "indonesian"),
        Language("vi", "vietnamese"),
        _of_snowball("ca", "catalan"),
        _of_snowball("eu", "basque"),
        _of_snowball("et", "estonian"),
        _of_snowball("lt", "lithuanian"),
        _of_snowball("ga", "irish"),
        _of_snowball("eo", "esperanto"),
        _of_snowball("sr", "serbian"),
        _of_snowball("ru", "russian", _CYRILLIC),
        Language("uk", "ukrainian", script=_CYRILLIC),
        Language("bg", "bulgarian", script=_CYRILLIC),
        _of_snowball("el", "greek", "\u0370-\u03ff\u1f00-\u1fff"),
        _of_snowball("hy", "armenian", "\u0530-\u058f"),
        _of_snowball("ar", "arabic", _ARABIC),
        _of_snowball("fa", "persian", _ARABIC),
        Language("he", "hebrew", script=_HEBREW),
        _of_snowball("yi", "yiddish", _HEBREW),
        _of_snowball("hi", "hindi", "\u0900-\u097f"),
        _of_snowball("ne", "nepali", "\u0900-\u097f"),
        Language("gu", "gujarati", script="\u0a80-\u0aff"),
        _of_snowball("ta", "tamil", "\u0b80-\u0bff"),
        Language("zh", "chinese", script="\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"),
        Language("ja", "japanese", script="\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"),
        Language("ko", "korean", script="\u1100-\u11ff\uac00-\ud7af"),
        Language("th", "thai", script="\u0e00-\u0e7f"),
    ],
)
ENGLISH = LANGUAGES["en"]
# Frequent English words beside the function words, which share many short texts with words of other languages.
_FREQUENT = frozenset(
    words(
        """
        ach aw aww bye ca care come dont email fine feel go going good great ha happy hard hello hey hi home hope ii iii
        im iv ix know last later like love man mine new next night oh ok okay said say see send sent soon sorry sounds
        sure take talk tell tells text thank thanks think today tomorrow ty u ur vi vii viii went whats wow work ya year
        years yep yesterday
        """
    )
)
# English words and first names that other languages have as function words; alone they tell nothing.
_ALSO_ENGLISH = frozenset(
    words(
        """
        ad ao bare bat bay bet bin bo bus car cat chose comment dal del des design die dies dig dock dog door due el end
        et ex exact face fan fin god gran ham hat hay hem hit ill jam jo jota kai kr la lake lei mam mate mayor men met
        min mind mint mode mon nora nun op pan per plus point pole post pour prof quay sale san sang sea sense sin sit
        solo son song te ted ten theo tie till tin ton total tue um un van via want
        ada al ali anders asa ben cara dan della ed eli em esa hal hans jen kim les mai meg mia mina mo ned nell nia oli
        ona otto sam sana sara sean sia sim sue tam tim tom una xi
        """
    )
)
_LATIN = [row for row in LANGUAGES.values() if row.script is None and row is not ENGLISH]
_LATIN_LETTER = "\u024f"  # the last one before other scripts
_SPEAKER = re.compile(r"[^\W_][^:\n]{0,40}: ")  # a name before what was said
_FEWEST = 2  # function words that tell a language, unless the text is short and has none of English
_SHORT = range(3, 11)  # words; one or two may be a name
_READ = 2_000  # characters; more of a text in the Latin script tells nothing new
_CLEARLY = 6  # how many times as many words of English leave no doubt
_COMPARED = 4  # languages
_local = threading.local()  # a Snowball stemmer keeps state between calls and must not be shared by threads


@lru_cache(maxsize=200_000)
def _stem(stemmer: str, word: str) -> str:
    made = vars(_local).get(stemmer)
    if made is None:
        made = vars(_local)[stemmer] = Stemmer.Stemmer(stemmer)
    stemmed: str = made.stemWord(word)
    return stemmed


@cache
def _stop_words(english_name: str) -> frozenset[str]:
    if english_name == "english":
        return STOP_WORDS
    if english_name in _WORDS:
        return frozenset(words(_WORDS[english_name]))
    try:
        found = listed.get_stop_words(english_name)
    except listed.StopWordError:
        return frozenset()
    return frozenset(part for word in found for part in words(word)) - _CONTENT


@cache
def _telling(english_name: str) -> frozenset[str]:
    return _stop_words(english_name).union(words(_TELLING.get(english_name, "")))


@cache
def _markers() -> dict[str, list[Language]]:
    """The languages of the Latin script by telling word, without those that are also frequent English words."""
    english = STOP_WORDS | _FREQUENT | _ALSO_ENGLISH
    found: dict[str, list[Language]] = {}
    for language in _LATIN:
        for word in language.telling - english:
            if len(word) > 1:
                found.setdefault(word, []).append(language)
    return found


@cache
def _scripts() -> list[tuple[Callable[[str], Sequence[str]], list[Language]]]:
    by_script: dict[str, list[Language]] = {}
    for language in LANGUAGES.values():
        if language.script is not None:
            by_script.setdefault(language.script, []).append(language)
    return [(re.compile(f"[{script}]").findall, languages) for script, languages in by_script.items()]


def _beginning(text: str) -> int:
    """Where a text begins after the name of its speaker, as in the descriptions of turns."""
    speaker = _SPEAKER.match(text)
    return speaker.end() if speaker is not None and speaker.end() < len(text) else 0


@cached(2**12)
def language_of(text: str) -> Language:
    """The language in which most of a text is.

    A text whose letters are mostly of another script is of that script's language. Of the languages of the Latin script
    it is the one with most telling words in the text, if more of these are its own than are of English alone, and at
    least two; one is enough in a text of three to ten words that has none of English alone.
    """
    if not text.isascii():
        letters = sum(sign.isalpha() for sign in text)
        if 2 * sum(sign.isalpha() and sign > _LATIN_LETTER for sign in text) > letters:
            return _of_script(text)
    said = words(text[_beginning(text) : _READ])
    markers = _markers()
    marking = [word for word in said if word in markers]
    english = [word for word in said if word in STOP_WORDS or word in _FREQUENT]
    if not marking or len(marking) * _CLEARLY < len(english):
        return ENGLISH
    marked = Counter(language.name for word in marking for language in markers[word])
    # Several languages share most words of a text; those that are also English decide between them.
    candidates = sorted((LANGUAGES[name] for name, _ in marked.most_common(_COMPARED)), key=_LATIN.index)
    best = max(candidates, key=lambda language: sum(word in language.telling for word in said))
    own = [word for word in said if word in best.telling and word not in english]
    only_english = sum(word not in best.telling for word in english)
    is_enough = len({*own}) >= _FEWEST or (not only_english and len(said) in _SHORT)
    return best if len(own) > only_english and is_enough else ENGLISH


def _of_script(text: str) -> Language:
    lowered = words(text)
    counts = [(len(letters(text)), languages) for letters, languages in _scripts()]
    most, languages = max(counts, key=lambda item: item[0])
    if not most:
        return ENGLISH
    hits: Counter[str] = Counter(row.name for row in languages for word in lowered if word in row.stop_words)
    return max(languages, key=lambda row: (hits[row.name], -languages.index(row)))

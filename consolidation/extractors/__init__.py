"""Extractors, which turn utterances into changes of the graph; to add one, add a file and a row here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from locigraph.consolidation.extractors.names import SpacyNames
from locigraph.consolidation.extractors.recorded import RecordedExtractor
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.protocols import Extractor
from locigraph.kg.corpora import Conversation
from locigraph.kg.registry import Table

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient

#: Makes the client of the language model that a stage asks, such as ``architect``; raises where none is configured.
Clients = Callable[[str], "ChatClient"]


@dataclass(frozen=True, slots=True)
class ExtractorRow:
    """A choice of extractor.

    Attributes:
        name: What users type, and the extractor's own name.
        description: One sentence for help texts.
        build: Makes the extractor; one that replays takes the conversations, one that asks language models their
            clients.
        is_replay: Whether it only replays what was recorded of conversations, and is of no use for what is added.
        asks_models: Whether it asks language models, for which what is added waits.
    """

    name: str
    description: str
    build: Callable[[Sequence[Conversation], Clients], Extractor]
    is_replay: bool = False
    asks_models: bool = False


def _llm(conversations: Sequence[Conversation], clients: Clients) -> Extractor:
    from locigraph.consolidation.extractors.language_model import LLMExtractor  # pydantic takes a moment to import

    return LLMExtractor(clients("architect"), clients("scribe"))


_SPACY_RULES = "rules-spacy"
_spacy_names = cache(SpacyNames)  # its model takes a second to load, and a reading of a turn is known by its finder


def rules_of(name: str | None) -> RuleExtractor:
    """The extractor by rules that finds again what was drawn from turns by the extractor of a name.

    That is the one of this name if it follows rules, and the plain one for all others.

    Raises:
        NameModelError: If that extractor needs a package that is not installed.
    """
    return RuleExtractor(_spacy_names(), _SPACY_RULES) if name == _SPACY_RULES else RuleExtractor()


EXTRACTORS: Table[ExtractorRow] = Table(
    "extractor",
    [
        ExtractorRow(
            "rules",
            "Copies memorable sentences by fixed rules; needs no model.",
            lambda conversations, clients: RuleExtractor(),
        ),
        ExtractorRow(
            _SPACY_RULES,
            "The same with names found by spaCy (pip install 'locigraph[spacy]').",
            lambda conversations, clients: rules_of(_SPACY_RULES),
        ),
        ExtractorRow(
            "recorded",
            "Replays the extractions that a language model made of the corpus earlier.",
            lambda conversations, clients: RecordedExtractor(conversations),
            is_replay=True,
        ),
        ExtractorRow(
            "llm",
            "Asks language models, an architect and a scribe, about every turn (--llm).",
            _llm,
            asks_models=True,
        ),
    ],
)

"""Extractors: what turns a turn of dialogue into changes of the graph; another one is one file and one row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from locigraph.consolidation.extractors.recorded import RecordedExtractor
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.protocols import Extractor
from locigraph.kg.corpora import Corpus
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
        build: Makes the extractor for a corpus; one that asks language models takes their clients.
    """

    name: str
    description: str
    build: Callable[[Corpus, Clients], Extractor]


def _llm(corpus: Corpus, clients: Clients) -> Extractor:
    from locigraph.consolidation.extractors.language_model import LLMExtractor  # pydantic takes a moment to import

    return LLMExtractor(clients("architect"), clients("scribe"))


EXTRACTORS: Table[ExtractorRow] = Table(
    "extractor",
    [
        ExtractorRow(
            "rules",
            "Copies memorable sentences by fixed rules; needs no model.",
            lambda corpus, clients: RuleExtractor(),
        ),
        ExtractorRow(
            "recorded",
            "Replays the extractions that a language model made of the corpus earlier.",
            lambda corpus, clients: RecordedExtractor(corpus.conversations),
        ),
        ExtractorRow("llm", "Asks language models, an architect and a scribe, about every turn (--llm).", _llm),
    ],
)

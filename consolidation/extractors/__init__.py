"""Extractors, which turn utterances into changes of the graph; to add one, add a file and a row here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from locigraph.consolidation.extractors.recorded import RecordedExtractor
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.protocols import Extractor
from locigraph.kg.corpora import Conversation
from locigraph.kg.registry import Table

if TYPE_CHECKING:
    from locigraph.consolidation.llm import ChatClient

#: Returns the client of the language model for a stage such as ``architect``; raises if none is configured.
Clients = Callable[[str], "ChatClient"]


@dataclass(frozen=True, slots=True)
class ExtractorRow:
    """A choice of extractor.

    Attributes:
        name: The name that users type, which is also the extractor's ``name``.
        description: One sentence for help texts.
        build: Makes the extractor, from the conversations if it replays recordings, or from clients if it calls
            language models.
        is_replay: Whether it only replays recorded extractions, so that it cannot consolidate newly added turns.
        asks_models: Whether it calls language models, for whose replies newly added turns must wait.
    """

    name: str
    description: str
    build: Callable[[Sequence[Conversation], Clients], Extractor]
    is_replay: bool = False
    asks_models: bool = False


def _llm(conversations: Sequence[Conversation], clients: Clients) -> Extractor:
    from locigraph.consolidation.extractors.language_model import LLMExtractor  # pydantic takes a moment to import

    return LLMExtractor(clients("architect"), clients("scribe"))


EXTRACTORS: Table[ExtractorRow] = Table(
    "extractor",
    [
        ExtractorRow(
            "rules",
            "Copies memorable sentences by fixed rules; needs no model.",
            lambda conversations, clients: RuleExtractor(),
        ),
        ExtractorRow(
            "recorded",
            "Replays extractions that others have made of the corpus, which are part of it or in corpus.extractions.",
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

"""Extractors: what turns a turn of dialogue into changes of the graph; another one is one file and one row here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from locigraph.consolidation.extractors.recorded import RecordedExtractor
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.protocols import Extractor
from locigraph.kg.corpora import Corpus
from locigraph.kg.registry import Table


@dataclass(frozen=True, slots=True)
class ExtractorRow:
    """A choice of extractor.

    Attributes:
        name: What users type, and the extractor's own name.
        description: One sentence for help texts.
        build: Makes the extractor for a corpus.
    """

    name: str
    description: str
    build: Callable[[Corpus], Extractor]


EXTRACTORS: Table[ExtractorRow] = Table(
    "extractor",
    [
        ExtractorRow("rules", "Copies memorable sentences by fixed rules; needs no model.", lambda _: RuleExtractor()),
        ExtractorRow(
            "recorded",
            "Replays the extractions that a language model made of the corpus earlier.",
            lambda corpus: RecordedExtractor(corpus.conversations),
        ),
    ],
)

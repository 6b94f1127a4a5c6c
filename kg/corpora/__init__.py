"""Readers of conversation corpora: they turn files into turns, questions and recorded extractions."""

from locigraph.kg.corpora.corpus import Conversation, Corpus, CorpusFormat, Extractions, RecordedEvent, RecordedItem
from locigraph.kg.corpora.formats import FORMATS
from locigraph.kg.corpora.reading import load_corpus

__all__ = [
    "FORMATS",
    "Conversation",
    "Corpus",
    "CorpusFormat",
    "Extractions",
    "RecordedEvent",
    "RecordedItem",
    "load_corpus",
]

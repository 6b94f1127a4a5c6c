"""Readers of conversation corpora: files in, turns, questions and recorded extractions out."""

from locigraph.kg.corpora.corpus import Conversation, Corpus, Extractions, RecordedEvent, RecordedItem
from locigraph.kg.corpora.reading import FORMATS, load_corpus

__all__ = [
    "FORMATS",
    "Conversation",
    "Corpus",
    "Extractions",
    "RecordedEvent",
    "RecordedItem",
    "load_corpus",
]

"""The table of corpus formats; to add a format, add a file and a row here."""

from __future__ import annotations

from locigraph.kg.corpora import chatgpt, jsonl, locomo, longmemeval, messages, slack, whatsapp
from locigraph.kg.corpora.corpus import CorpusFormat
from locigraph.kg.registry import Table

FORMATS: Table[CorpusFormat] = Table(
    "corpus format",
    [
        locomo.FORMAT,
        longmemeval.FORMAT,
        jsonl.FORMAT,
        messages.FORMAT,
        chatgpt.FORMAT,
        slack.FORMAT,
        whatsapp.FORMAT,
    ],
)

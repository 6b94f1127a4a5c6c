"""The formats that corpora may have; another format is one file and one row here."""

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

"""The table of corpus formats; to add a format, add a file and a row here.

A file whose format is not named has the one that ``kg.corpora.recognition`` sees in it; of two, the first row here.
"""

from __future__ import annotations

from locigraph.kg.corpora import (
    chatgpt,
    claude,
    discord,
    imessage,
    jsonl,
    locomo,
    longmemeval,
    mbox,
    messages,
    slack,
    telegram,
    whatsapp,
)
from locigraph.kg.corpora.corpus import CorpusFormat
from locigraph.kg.registry import Table

FORMATS: Table[CorpusFormat] = Table(
    "corpus format",
    [
        locomo.FORMAT,
        longmemeval.FORMAT,
        jsonl.FORMAT,
        chatgpt.FORMAT,
        claude.FORMAT,
        telegram.FORMAT,
        discord.FORMAT,
        messages.FORMAT,
        slack.FORMAT,
        whatsapp.FORMAT,
        imessage.FORMAT,
        mbox.FORMAT,
    ],
)

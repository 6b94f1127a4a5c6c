"""Finds out which format a file has from its beginning."""

from __future__ import annotations

import re
from pathlib import Path

from locigraph.kg.corpora.corpus import CorpusFormat
from locigraph.kg.corpora.formats import FORMATS
from locigraph.kg.corpora.parsing import decode, read_bytes
from locigraph.kg.errors import CorpusFormatError

_LOOKED_AT = 4 * 2**20  # characters; a first conversation may be long
_KEY = re.compile(r'(?<!\\)"([A-Za-z_]{1,40})"\s*:')


def recognised(path: str) -> CorpusFormat | None:
    """The first format whose signs a file or folder shows; None if there is none."""
    if Path(path).is_dir():
        return next((row for row in FORMATS.values() if row.reads_folders), None)
    try:
        beginning = decode(path)[:_LOOKED_AT]
    except CorpusFormatError:  # mail may be in any encoding
        beginning = read_bytes(path).decode("latin-1")[:_LOOKED_AT]
    is_json = beginning.lstrip().startswith(("{", "["))
    keys = frozenset(_KEY.findall(beginning)) if is_json else frozenset[str]()
    for row in FORMATS.values():
        if row.keys <= keys if row.keys else row.recognises is not None and row.recognises(beginning):
            return row
    return None

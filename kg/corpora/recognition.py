"""Finds out which format a file has from its beginning."""

from __future__ import annotations

import re
from pathlib import Path

from locigraph.kg.corpora.corpus import CorpusFormat
from locigraph.kg.corpora.formats import FORMATS
from locigraph.kg.corpora.parsing import decode, read_bytes
from locigraph.kg.errors import CorpusFormatError

_LOOKED_AT = 4 * 2**20  # characters; a first conversation may be long
_JSON = re.compile(r"\{|\[\s{0,100}[\[{]")  # a chat in plain text may begin with a date in brackets
# A string that has no end takes the rest of the text, or every quotation mark in it would be tried as a beginning.
_TOKEN = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"(\s{0,20}:)?|\\?\Z)|[{}\[\]]', re.DOTALL)


def recognised(path: str) -> CorpusFormat | None:
    """The format whose signs a file or folder shows; None if there is none.

    Of several JSON formats it is the one whose keys stand nearest to the top, since what people send each other may
    hold any keys.
    """
    if Path(path).is_dir():
        return next((row for row in FORMATS.values() if row.reads_folders), None)
    try:
        beginning = decode(path)[:_LOOKED_AT]
    except CorpusFormatError:  # mail may be in any encoding
        beginning = read_bytes(path).decode("latin-1")[:_LOOKED_AT]
    depths = _depths(beginning) if _JSON.match(beginning.lstrip()) else {}
    found = [row for row in FORMATS.values() if row.keys and row.keys <= depths.keys()]
    if found:
        return min(found, key=lambda row: max(depths[key] for key in row.keys))
    return next((row for row in FORMATS.values() if row.recognises and row.recognises(beginning)), None)


def _depths(beginning: str) -> dict[str, int]:
    """The keys of a JSON document, which may be cut off, and how deep each stands where it is nearest to the top."""
    depths: dict[str, int] = {}
    depth = 0
    for token in _TOKEN.finditer(beginning):
        if token[0][0] == '"':
            if token[2] and depth < depths.get(token[1], depth + 1):
                depths[token[1]] = depth
        else:
            depth += 1 if token[0] in "{[" else -1
    return depths

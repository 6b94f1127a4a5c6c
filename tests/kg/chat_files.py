"""Files of chats for tests, and what was read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from locigraph.kg.corpora import Corpus


def written(tmp_path: Path, name: str, content: Any) -> str:
    """Write a file, with JSON unless the content is a text; returns its path."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def said(corpus: Corpus) -> list[tuple[str, str, str]]:
    """Space, speaker and text of every turn."""
    return [(str(t.space), t.speaker, t.text) for c in corpus.conversations for t in c.turns]

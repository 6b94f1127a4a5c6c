"""Writes ``docs/tutorial.ipynb`` from the blocks of ``docs/tutorial.md``: ``python -m tests.tutorial_notebook``."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.packages import ROOT

TUTORIAL, NOTEBOOK = ROOT / "docs" / "tutorial.md", ROOT / "docs" / "tutorial.ipynb"
#: A block that a reader runs: whether it is marked as slow, its language, its code.
BLOCK = re.compile(r"(<!-- slow -->\n)?```(bash|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ABOUT = """

This notebook is made from `tutorial.md` by `python -m tests.tutorial_notebook`. Copy it into an empty folder, run
the cells in order, and leave out those tagged `slow` at first: they take minutes."""


def notebook() -> str:
    """The notebook as JSON (format 4.5): prose as Markdown, Python as it is, commands as cells of ``%%bash``."""
    cells = [_cell(f"cell-{number}", *given) for number, given in enumerate(_parts(TUTORIAL.read_text()), start=1)]
    found = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(found, ensure_ascii=False, indent=1) + "\n"


def _parts(text: str) -> list[tuple[str, str, bool]]:
    """The page as its parts in order: of each the language, the text, and whether it is slow."""
    title, _, rest = text.partition("\n")
    prose, *others = BLOCK.split(rest)
    parts = [("markdown", title + _ABOUT, False), ("markdown", prose, False)]
    for mark, language, code, after in zip(*(others[at::4] for at in range(4)), strict=True):
        # Each cell is a shell of its own, which without -e would go on after a command that failed.
        parts.append((language, code if language == "python" else f"%%bash -e\n{code}", bool(mark)))
        parts.append(("markdown", after, False))
    return [(language, words.strip(), is_slow) for language, words, is_slow in parts if words.strip()]


def _cell(name: str, language: str, text: str, is_slow: bool) -> dict[str, Any]:
    cell = {"id": name, "metadata": {"tags": ["slow"]} if is_slow else {}, "source": text.splitlines(keepends=True)}
    if language == "markdown":
        return {"cell_type": "markdown", **cell}
    return {"cell_type": "code", "execution_count": None, "outputs": [], **cell}


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook())

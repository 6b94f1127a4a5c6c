"""Fills the parts of the documents that repeat records and manifests: ``python -m tests.filled``.

A part is between ``<!-- filled: NAME ARGUMENT ... -->`` and ``<!-- /filled -->``. NAME is ``card`` in a model card, or
a table of ``tests.record_tables``, usually with the name of a record in ``docs/results`` as argument.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests import model_cards, record_tables

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "docs" / "confidence.md",
    ROOT / "docs" / "experiments.md",
    ROOT / "docs" / "languages.md",
    ROOT / "docs" / "experiments" / "tables.md",
    *model_cards.CARDS,
]
_PART = re.compile(r"(<!-- filled: (.*?) -->)\n.*?(<!-- /filled -->)", flags=re.DOTALL)


def filled(document: Path) -> str:
    """The document with its filled parts generated again.

    Raises:
        ValueError: If a mark names an unknown table; the message lists the known ones.
    """

    def part(found: re.Match[str]) -> str:
        name, *arguments = shlex.split(found[2])
        if name == "card":
            body = model_cards.facts(document.parent)
        elif name in record_tables.TABLES:
            body = record_tables.TABLES[name](*arguments)
        else:
            known = ", ".join(["card", *record_tables.TABLES])
            raise ValueError(f"{document}: unknown table {name!r}; choose one of {known}")
        return f"{found[1]}\n\n{body}\n\n{found[3]}"

    return _PART.sub(part, document.read_text())


if __name__ == "__main__":
    for each in DOCUMENTS:
        each.write_text(filled(each))

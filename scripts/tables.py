"""Plain-text tables for the terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

from retrieval.protocols import Hit


def hits_table(hits: Sequence[Hit]) -> str:
    """Hits with score, signals, source turns and text, wrapped to the terminal; says so when there are none."""
    if not hits:
        return "nothing found"
    width = max(60, shutil.get_terminal_size((110, 24)).columns)
    lines = []
    for rank, hit in enumerate(hits, start=1):
        signals = "  ".join(f"{name} {value:.3f}" for name, value in sorted(hit.signals.items()))
        turns = ", ".join(hit.turn_ids[:6]) + (f" and {len(hit.turn_ids) - 6} more" if len(hit.turn_ids) > 6 else "")
        lines.append(f"{rank:>3}  {hit.score:.4f}  {hit.type}  turns {turns}  [{signals}]")
        lines += textwrap.wrap(hit.description, width=width - 6, initial_indent=" " * 5, subsequent_indent=" " * 5)[:3]
    return "\n".join(lines)

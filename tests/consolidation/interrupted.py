"""Builds a small graph, and kills its own process with SIGKILL at a given SQL statement of the consolidation.

python -m tests.consolidation.interrupted STORE STATEMENT     (0: never)
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from locigraph.assembly.build_context import HybridContext
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.pipeline import Consolidator
from locigraph.kg.store import Store
from tests.fakes import SPACE, FakeEncoder, make_turns

TURNS = make_turns(
    ["I live in Porto and I repair old wooden boats.", "I met Carla yesterday at the Blue Harbour cafe.", "How nice!"],
    [
        "I repair old wooden boats in Porto, as I said.",
        "I bought a red racing bicycle last week.",
        "I moved to Lisbon on 6 January 2024 with Carla.",
        "I sold the red racing bicycle yesterday.",
    ],
    ["My favourite food is fresh bread.", "I live in Lisbon now.", "My favourite food is grilled fish."],
)


def build(path: Path, *, kill_at: int = 0) -> None:
    """Consolidate all turns by rules over v1's context."""
    encoder = FakeEncoder()
    with Store(path) as store:
        store.append_turns(TURNS)
        statements = 0

        def count(*_: Any) -> None:
            nonlocal statements
            statements += 1
            if statements == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        if kill_at:
            sa.event.listen(sa.Engine, "before_cursor_execute", count)
        context = HybridContext(store, encoder)
        Consolidator(store, RuleExtractor(), encoder, context).run(SPACE)


if __name__ == "__main__":
    build(Path(sys.argv[1]), kill_at=int(sys.argv[2]))

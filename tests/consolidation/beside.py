"""Changes a space while a build of it is in progress, as a process of its own.

python -m tests.consolidation.beside STORE CHANGE
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from locigraph.assembly.build_context import HybridContext
from locigraph.consolidation.cassette import Cassette
from locigraph.consolidation.classification import Classifier
from locigraph.consolidation.extractors.rules import RuleExtractor
from locigraph.consolidation.linking import Linker
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.consolidation.merging import Merger
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.reflection import Reflector
from locigraph.kg.store import Store
from locigraph.kg.types import TurnId
from tests.consolidation.stub_server import Stub, concluded, stub_server
from tests.fakes import MONDAY, SPACE, FakeEncoder, make_turn, make_turns

ENCODER = FakeEncoder(512)
#: "Blue Harbour" and "Harbour Blue" are merged, and both are named again later.
TURNS = make_turns(
    ["I met Carla at Blue Harbour.", "I live in Porto with Carla.", "I live in Porto.", "I met Carla at Harbour Blue."],
    ["My favourite food is bread.", "I moved to Lisbon because of Harbour Blue.", "My favourite food is fish now."],
    ["I like Harbour Blue.", "I live in Lisbon.", "Carla likes Blue Harbour and Harbour Blue."],
)


def _build_too(store: Store) -> None:
    """Add a turn, and consolidate it and all that the other build has not come to yet."""
    store.append_turns([make_turn(10, "I like Harbour Blue.", session=4, spoken_at=MONDAY + timedelta(days=30))])
    Consolidator(store, RuleExtractor(), ENCODER, HybridContext(store, ENCODER)).run(SPACE)


def _reflect(store: Store) -> None:
    with TemporaryDirectory() as folder, stub_server(Stub(concluded)) as stub:
        Reflector(store, ENCODER).run(SPACE, ChatClient(Endpoint(stub.url, "m"), Cassette(Path(folder, "c.sqlite"))))


AFTER = 6  # turns that are consolidated before the change
CHANGES: Mapping[str, Callable[[Store], object]] = MappingProxyType(
    {
        "resolve": lambda store: Merger(store, ENCODER).run(SPACE),
        "classify": lambda store: Classifier(store, ENCODER).run(SPACE),
        "reflect": _reflect,
        "link": lambda store: Linker(store).run(SPACE),
        "forget": lambda store: store.forget(SPACE, [TurnId("t1"), TurnId("t4")]),
        "forget what is due": lambda store: store.forget(SPACE, [TurnId("t6"), TurnId("t9")]),
        "forget and resolve": lambda store: (CHANGES["forget"](store), CHANGES["resolve"](store)),
        "build": _build_too,
        "add earlier": lambda store: store.append_turns(
            [make_turn(11, "I live in Faro.", session=5, spoken_at=MONDAY - timedelta(days=9))]
        ),
    }
)

if __name__ == "__main__":
    with Store(Path(sys.argv[1]), access="write") as opened:
        CHANGES[sys.argv[2]](opened)

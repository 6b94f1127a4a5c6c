"""A small memory on which tries are made: a corpus, commands with a fake text encoder, and its whole state."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from locigraph.kg.errors import LocigraphError
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts import build, forget, opening, recall, refresh, verify
from locigraph.scripts.settings import CorpusSettings
from tests.fakes import FakeEncoder
from tests.fakes_graph import TEXT_DIM, small_checkpoint

SPACES = ("harbor", "meadow")
TURNS = (
    "I repair old wooden boats in Porto.", "I met Carla yesterday at the Blue Harbour cafe.", "How nice!",
    "I bought a red racing bicycle last week.", "I moved to Lisbon on 6 January 2024 with Carla.",
)  # fmt: skip
_SPEAKERS = ("Ann", "Ben")


class FakeCachedEncoder(CachedTextEncoder):
    """The cache as it is, over a hashed bag of words."""

    def load(self) -> None:
        pass

    def _run(self, texts: Any) -> Any:
        return FakeEncoder(TEXT_DIM).encode(texts)


def conversation(space: str, turns: tuple[str, ...] = TURNS) -> dict[str, Any]:
    """A conversation of the project's own format."""
    said = [{"turn_id": f"t{i}", "speaker": _SPEAKERS[i % 2], "text": text} for i, text in enumerate(turns)]
    session = {"session_id": "s1", "started_at": "2024-01-01T10:00:00Z", "turns": said}
    return {"conversation_id": space, "sessions": [session], "questions": []}


def prepare(folder: Path) -> None:
    """Write corpus and checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(conversation(space)) for space in SPACES]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    small_checkpoint(text_encoder="fake").save(folder / "checkpoint")


def commands(folder: Path) -> dict[str, Callable[[], None]]:
    """Commands on the memory in a folder, as a user would give them."""
    store = str(folder / "graph.sqlite")
    corpus = CorpusSettings(path=str(folder / "corpus.jsonl"))
    checkpoint = str(folder / "checkpoint")
    opening.text_encoder = lambda settings: FakeCachedEncoder("fake", cache=folder / "cache.sqlite")
    return {
        "build": lambda: build.build(corpus=corpus, store=store),
        "forget": lambda: forget.forget(space="harbor", turns=["t1", "t3"], store=store),
        "rebuild": lambda: verify.verify(store=store, rebuild=True),
        "refresh": lambda: refresh.refresh(store=store, checkpoint=checkpoint),
        "verify": lambda: verify.verify(store=store),
        "recall": lambda: recall.recall("Who repairs boats?", space="harbor", store=store),
        "recall_bm25": lambda: recall.recall("Who repairs boats?", space="harbor", store=store, strategy="bm25"),
        "recall_v2": lambda: recall.recall(
            "Who repairs boats?", space="harbor", store=store, strategy="v2", checkpoint=checkpoint
        ),
    }


def run(folder: Path, command: str) -> tuple[int, str]:
    """A command's exit code with what it printed, or with its error, as ``locigraph`` would end."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            commands(folder)[command]()
        except LocigraphError as error:
            return 2, str(error)
        except OSError as error:
            if error.filename is None:
                raise
            return 2, f"{error.filename}: {error.strerror}"
        except KeyboardInterrupt:
            return 2, "interrupted"
        except SystemExit as stop:
            return int(stop.code or 0), out.getvalue()
    return 0, out.getvalue()


def state(folder: Path) -> dict[str, Any]:
    """All that a memory holds, without keys and counters, which an interruption may change."""
    tables = {
        "turns": "SELECT space, turn_id, position, speaker, text, state, error FROM turns ORDER BY space, turn_id",
        "nodes": "SELECT space, id, type, label, description, status, created_at, valid_from, valid_to, attributes "
        "FROM nodes ORDER BY space, id",
        "edges": "SELECT r.space, s.id, r.label, t.id, r.weight, r.created_at FROM relations r JOIN nodes s "
        "ON s.key = r.source JOIN nodes t ON t.key = r.target ORDER BY 1, 2, 3, 4",
        "sources": "SELECT n.space, n.id, t.turn_id, p.worded FROM provenance p JOIN nodes n ON n.key = p.node_key "
        "JOIN turns t ON t.key = p.turn_key ORDER BY 1, 2, 3",
        "vectors": "SELECT n.space, n.id, e.model, e.vector FROM embeddings e JOIN nodes n ON n.key = e.node_key "
        "ORDER BY 1, 2, 3",
        "settings": "SELECT name, value FROM settings WHERE name LIKE 'extractor/%' ORDER BY name",
        "tombstones": "SELECT space, COUNT(*) FROM tombstones GROUP BY space ORDER BY space",
        "due": "SELECT COUNT(*) FROM outbox",
    }
    with closing(sqlite3.connect(folder / "graph.sqlite")) as connection:
        found: dict[str, Any] = {name: connection.execute(query).fetchall() for name, query in tables.items()}
    with MilvusIndex(str(folder / "graph.index.db")) as index:
        for name in index.collections():
            collection = index.open(name)
            found[f"rows of {name}"] = sorted(
                (space, row.node_id, row.type, row.recorded_at, row.turn_ids)
                for space in collection.spaces()
                for row in collection.rows(space).values()
            )
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without progress bars and other output."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield

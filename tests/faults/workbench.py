"""A small memory for tries: its corpora, commands with a fake text encoder, and its whole state."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from locigraph.assembly import graphs, opening
from locigraph.assembly.settings import CorpusSettings, LLMSettings, ModelSettings
from locigraph.kg.embedded_text import TURN_BEFORE, WINDOWS
from locigraph.kg.errors import LocigraphError
from locigraph.memory import Memory
from locigraph.retrieval.index.descriptions import DESCRIPTIONS
from locigraph.retrieval.index.graph_collections import GRAPH_ALIAS
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.text.text_adapter import TextAdapter
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts.commands.memory import build, classify, forget, link, recall, reflect, resolve, verify
from locigraph.scripts.commands.training import average, refresh
from tests.consolidation.stub_server import Stub, concluded, extracted, stub_server
from tests.fakes import FakeEncoder
from tests.fakes_graph import TEXT_DIM, small_checkpoint

SPACES = ("harbor", "meadow")
TURNS = (
    "I repair old wooden boats in Porto.", "I met Carla yesterday at the Blue Harbour cafe.", "How nice!",
    "I bought a red racing bicycle last week.", "I moved to Lisbon on 6 January 2024 with Carla.",
)  # fmt: skip
_EARLIER = ("I was born in Porto in 1980.",)
#: Together with the earlier turns, the last one leads to a list of places and to a merged name.
_LATER = (
    "I sold the red bicycle to Carla.", "I live in Faro now.", "I went to Rome and visited the Blue Harbours again.",
)  # fmt: skip
_SPEAKERS = ("Ann", "Ben")
_QUESTION = "Who repairs boats?"


class FakeCachedEncoder(CachedTextEncoder):
    """The real text cache over a hashed bag of words."""

    #: All texts that this process has encoded.
    texts: ClassVar[list[str]] = []

    def load(self) -> None:
        pass

    @property
    def model_id(self) -> str:
        """The ID of an encoder that reads texts at once, as this one does."""
        return super().model_id.replace(WINDOWS, "")

    def _run(self, texts: Any) -> Any:
        self.texts.extend(texts)
        return FakeEncoder(TEXT_DIM).encode(texts)


class AdaptedEncoder(FakeCachedEncoder):
    """The fake text encoder with an adapter, which changes its name and reads a turn with the one before it.

    Args:
        cache: SQLite file of the cache.
    """

    def __init__(self, cache: Path) -> None:
        super().__init__("fake", cache=cache)
        details = {"identity": {"train": [], "validation": [], "config": {"turn_before": True}}}
        self.adapter = TextAdapter(cache.parent, "fake", "0" * 12, details)

    def without_adapter(self) -> FakeCachedEncoder:
        return FakeCachedEncoder("fake", cache=self._cache)


#: ID of that text encoder.
ADAPTED = f"fake+{'0' * 12}{TURN_BEFORE}"


def coining(request: dict[str, Any]) -> Any:
    """``extracted``, with a relation label that is described in the words of the turn."""
    reply = extracted(request)
    known = json.loads(request["messages"][1]["content"]).get("known_nodes")
    if known and reply.get("add"):
        edge = {"source": "n1", "label": "SAID_AFTER", "target": known[0]["id"]}
        reply["coin"] = [edge | {"description": reply["add"][0]["draft"][:200]}]
    return reply


def conversation(space: str, turns: Sequence[str] = TURNS, *, session: str = "s1", month: int = 1) -> dict[str, Any]:
    """A conversation of the project's own format."""
    first = "" if session == "s1" else session
    said = [{"turn_id": f"{first}t{i}", "speaker": _SPEAKERS[i % 2], "text": text} for i, text in enumerate(turns)]
    begun = {"session_id": session, "started_at": f"2024-{month:02}-01T10:00:00Z", "turns": said}
    return {"conversation_id": space, "sessions": [begun], "questions": []}


def prepare(folder: Path) -> None:
    """Write corpora and checkpoints. The second corpus continues one conversation and adds earlier turns to another."""
    folder.mkdir(parents=True, exist_ok=True)
    first = [conversation(SPACES[0]), conversation(SPACES[1], month=2)]
    later = [conversation(SPACES[0], _LATER, session="s3", month=3), conversation(SPACES[1], _EARLIER, session="s0")]
    for name, told in (("corpus", first), ("later", later)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in told))
    for seed, name in enumerate(("checkpoint", "other")):
        small_checkpoint(text_encoder=ADAPTED, seed=seed).save(folder / name)


def commands(folder: Path) -> dict[str, Callable[[], None]]:
    """Commands on the memory in a folder, as a user would give them."""
    store, checkpoint = str(folder / "graph.sqlite"), str(folder / "checkpoint")
    opening.text_encoder = lambda settings: AdaptedEncoder(folder / "cache.sqlite")

    def built(corpus: str, checkpoint: str | None) -> None:
        build.build(corpus=CorpusSettings(path=str(folder / corpus)), store=store, checkpoint=checkpoint)

    def ask(strategy: str) -> None:
        recall.recall(_QUESTION, space="harbor", store=store, strategy=strategy, checkpoint=checkpoint)

    def add() -> None:
        turn = {"session": "s9", "speaker": "Ann", "turn_id": "t9", "spoken_at": "2024-04-01T10:00", "user": "ann"}
        with Memory.open(store, checkpoint=checkpoint) as memory:
            memory.add(space="harbor", text="I sail to the islands.", **turn)
            assert "t9" in {turn for hit in memory.recall(_QUESTION, user="ann", top_k=99) for turn in hit.turn_ids}

    def add_late() -> None:
        said = {"speaker": "Ann", "turn_id": "t8", "text": "I live in Porto, near the Blue Harbour cafe."}
        insert(folder, "harbor", said)

    def build_by_models(rate: float = 0.0) -> None:
        with stub_server(Stub(coining, rate=rate, faults=("surplus field", "cut off"))) as stub:
            models = LLMSettings(base_url=stub.url, model="m", cassette=str(folder / "replies.sqlite"))
            read = CorpusSettings(path=str(folder / "corpus.jsonl"))
            build.build(
                corpus=read, store=store, consolidation="llm", checkpoint=None, llm=models, retry_failed=not rate
            )

    def reflect_by_model() -> None:
        with stub_server(Stub(concluded)) as stub:
            model = ModelSettings(base_url=stub.url, model="m", cassette=str(folder / "replies.sqlite"))
            reflect.reflect(store=store, llm=model)

    return {
        "build_by_models": build_by_models,
        "build_by_failing_models": lambda: build_by_models(0.7),  # leaves failed turns, with the replies
        "build": lambda: built("corpus.jsonl", None),
        "append": lambda: built("later.jsonl", checkpoint),
        "add": add,
        "add_late": add_late,
        "forget": lambda: forget.forget(space="harbor", turns=["t1", "t3"], store=store),
        "forget_space": lambda: forget.forget(space="harbor", yes=True, store=store),
        "forget_user": lambda: forget.forget(user="ann", yes=True, store=store),
        "restore": lambda: forget.forget(space="harbor", turns=["t1"], restore=True, store=store),
        "rebuild": lambda: verify.verify(store=store, rebuild=True),
        "classify": lambda: classify.classify(store=store, once=True),
        "resolve": lambda: resolve.resolve(store=store, once=True),
        "reflect": reflect_by_model,
        "link": lambda: link.link(store=store, once=True),
        "average": lambda: average.average(
            checkpoints=[checkpoint, str(folder / "other")], output=str(folder / "mean")
        ),
        "refresh": lambda: refresh.refresh(store=store, checkpoint=checkpoint),
        "verify": lambda: verify.verify(store=store),
        "recall": lambda: ask("v1"),
        "recall_bm25": lambda: ask("bm25"),
        "recall_v2": lambda: ask("v2"),
    }


def insert(folder: Path, space: str, said: Mapping[str, Any], *, before: str | None = None) -> None:
    """Add a turn to a memory that puts it between the others, which are not consolidated again.

    Args:
        folder: Where the memory is.
        space: The space.
        said: The turn.
        before: ID of the turn of the same session before which it is put; None to put it before all others.
    """
    opening.text_encoder = lambda settings: AdaptedEncoder(folder / "cache.sqlite")

    def episodes() -> set[int]:
        with closing(sqlite3.connect(folder / "graph.sqlite")) as connection:
            rows = connection.execute("SELECT key FROM nodes WHERE space = ? AND type = 'episode'", (space,))
            return {key for (key,) in rows}

    with (
        patch.object(graphs, "_MOST_REDONE", 2),  # so that a small space, too, is not consolidated again
        Memory.open(folder / "graph.sqlite", checkpoint=str(folder / "checkpoint")) as memory,
    ):
        memory.recall(_QUESTION, space=space)
        there = episodes()
        if before is None:
            memory.add(space=space, session="before", spoken_at="2023-12-24T10:00", **said)
        else:
            (next_one,) = memory.turns(space, turn_ids=before)
            given = {"space": space, "session": next_one.session_id, "spoken_at": next_one.spoken_at}
            known = {"speaker": next_one.speaker, "text": next_one.text, "turn_id": before}
            memory.add_many([given | dict(said), given | known])
        assert there <= episodes()  # a repeated call adds none
        found = memory.recall(_QUESTION, space=space, top_k=99, fold=None)
        assert said["turn_id"] in {turn for hit in found for turn in hit.turn_ids}


def words(folder: Path) -> dict[str, list[str]]:
    """Some of these commands as command lines; call ``commands`` first, since it sets the text encoder."""
    store, checkpoint = (f"--store={folder / 'graph.sqlite'}", f"--checkpoint={folder / 'checkpoint'}")
    return {
        "build": ["build", f"--corpus.path={folder / 'corpus.jsonl'}", store, "--checkpoint=null"],
        "append": ["build", f"--corpus.path={folder / 'later.jsonl'}", store, checkpoint],
        "forget": ["forget", "--space=harbor", "--turns=t1,t3", store],
        "forget_space": ["forget", "--space=harbor", "--yes=true", store],
        "rebuild": ["verify", "--rebuild=true", store],
        "classify": ["classify", "--once=true", store],
        "resolve": ["resolve", "--once=true", store],
        "reflect": ["reflect", "--once=true", store],
        "link": ["link", "--once=true", store],
        "refresh": ["refresh", store, checkpoint],
    }


def run(folder: Path, command: str) -> tuple[int, str]:
    """Run a command; returns the exit code that ``locigraph`` would have, and the output or the error."""
    return ended(commands(folder)[command])


def ended(action: Callable[[], None]) -> tuple[int, str]:
    """The exit code with which ``locigraph`` would end after an action, and the output or the error."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            action()
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


def run_all(folder: Path, *names: str) -> None:
    """Run commands that must all succeed; a build whose models fail exits with code 1 if any turn did."""
    for name in names:
        code, said = run(folder, name)
        assert code in (0, name == "build_by_failing_models"), f"{name}: {code} {said}"


def run_each(folder: Path) -> None:
    """Run every command once, on a new memory."""
    prepare(folder)
    run_all(folder, "build", "refresh")
    for name in commands(folder):
        run(folder, name)
    state(folder)


def state(folder: Path) -> dict[str, Any]:
    """Everything that a memory holds, except keys and counters, which an interruption may change."""
    tables = {
        "spaces": "SELECT space, user, agent FROM spaces ORDER BY space",
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
        "changed": "SELECT space FROM changed_spaces ORDER BY space",
    }
    with closing(sqlite3.connect(folder / "graph.sqlite")) as connection:
        found: dict[str, Any] = {name: connection.execute(query).fetchall() for name, query in tables.items()}
    with MilvusIndex(str(folder / "graph.index.db")) as index:
        for name in (DESCRIPTIONS, GRAPH_ALIAS):  # the alias, since keys are part of its collection's name
            if index.has(name):
                collection = index.open(name)
                found[f"rows of {name}"] = sorted(
                    (space, row.node_id, row.type, row.recorded_at, row.turn_ids)
                    for space in collection.counts()
                    for row in collection.rows(space).values()
                )
    if (folder / "mean").exists():
        found["mean"] = (folder / "mean" / "checkpoint" / "model.safetensors").read_bytes()
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress progress bars and other output."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield

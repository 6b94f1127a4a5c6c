"""Small stand-ins shared by the tests: an encoder, an extractor, a context source, and builders of tiny data."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from locigraph.consolidation.blueprint import AddNode, Blueprint, Wording, needs_words
from locigraph.consolidation.protocols import Context, Found
from locigraph.kg.corpora import Conversation, Extractions
from locigraph.kg.schema import plannable_types
from locigraph.kg.types import GraphChange, NewNode, NewRelation, Node, NodeId, NodeUpdate, SpaceId, Turn, TurnId

#: A Monday; the first turn of every built conversation is spoken then.
MONDAY = datetime(2024, 1, 1, 12, tzinfo=UTC)
SPACE = SpaceId("harbor")
OTHER_SPACE = SpaceId("meadow")


class FakeEncoder:
    """Hashed bag of words: texts with the same words get the same vector, and no model is loaded.

    Args:
        dim: Dimension of the vectors.
        model_id: Name under which the vectors are stored.
    """

    def __init__(self, dim: int = 32, model_id: str = "fake-bow") -> None:
        self.dim = dim
        self._model_id = model_id
        #: How many texts were encoded.
        self.encoded = 0
        #: It has no adapter.
        self.adapter = None

    @property
    def model_id(self) -> str:
        return self._model_id

    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        """float32 [texts, dim], rows of length 1; a text without words is the first unit vector."""
        self.encoded += len(texts)
        rows = np.zeros((len(texts), self.dim), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                digest = zlib.crc32(word.encode())
                row[digest % self.dim] += 1.0 if digest & 0x10000 else -1.0
            if not row.any():
                row[0] = 1.0
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows


class UnusedEncoder(FakeEncoder):
    """A text encoder that must not be called."""

    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        raise AssertionError(f"{len(texts)} texts were encoded")


class PlainEncoder(FakeEncoder):
    """A fake with the little that building a graph asks beyond encoding."""

    adapter = None

    def without_adapter(self) -> PlainEncoder:
        return self


class FakeContext:
    """A context source that shows every node it has observed, oldest first, whatever the turn says."""

    def __init__(self) -> None:
        self.shown: dict[SpaceId, list[NodeId]] = {}
        self.observed: list[Node] = []

    def find(self, turn: Turn, *, limit: int) -> Found:
        return Found(self.shown.get(turn.space, [])[:limit])

    def observe(self, space: SpaceId, nodes: Sequence[Node], vectors: NDArray[np.float32]) -> None:
        assert len(nodes) == len(vectors)
        self.observed.extend(nodes)
        self.shown.setdefault(space, []).extend(n.id for n in nodes if n.type in plannable_types())

    def drop(self, space: SpaceId) -> None:
        """Does nothing: it still shows what it has observed."""


PlanMaker = Callable[[Turn, Context], Blueprint]


def one_fact(turn: Turn, context: Context) -> Blueprint:
    """A plan that makes one fact from every turn."""
    return Blueprint((AddNode("n0", "knowledge_node", f"{turn.speaker} said: {turn.text}", (turn.turn_id,)),))


class FakeExtractor:
    """An extractor whose architect calls a function and whose scribe repeats the drafts.

    Args:
        plan: Makes the plan of a turn; a ConsolidationError raised there is a refusal of the architect.
        name: Name of the extractor, which is recorded for the space.
    """

    def __init__(self, plan: PlanMaker = one_fact, name: str = "fake") -> None:
        self.name = name
        self._plan = plan
        #: The turns that were planned, and those for which texts were written.
        self.planned: list[TurnId] = []
        self.written: list[TurnId] = []

    def plan(self, turn: Turn, context: Context) -> Blueprint:
        self.planned.append(turn.turn_id)
        return self._plan(turn, context)

    def write(self, turn: Turn, plan: Blueprint, context: Context) -> Mapping[str, Wording]:
        self.written.append(turn.turn_id)
        made: dict[str, Wording] = {}
        for operation in plan.operations:
            name = needs_words(operation)
            if name is not None:
                draft = getattr(operation, "draft", None) or ""
                made[name] = Wording(draft[:40], draft)
        return made

    def expected_texts(self, turns: Sequence[Turn]) -> Sequence[str]:
        return []


def make_turn(
    position: int,
    text: str,
    *,
    space: SpaceId = SPACE,
    speaker: str | None = None,
    session: int = 1,
    spoken_at: datetime | None = None,
    dated: bool = True,
    image_caption: str | None = None,
) -> Turn:
    """Turn ``t<position>``; Ann speaks at even positions and Ben at odd ones, one minute apart from ``MONDAY``."""
    when = spoken_at or (MONDAY + timedelta(minutes=position) if dated else None)
    return Turn(
        space=space,
        turn_id=TurnId(f"t{position}"),
        conversation_id=str(space),
        session_id=f"s{session}",
        position=position,
        speaker=speaker or ("Ann" if position % 2 == 0 else "Ben"),
        text=text,
        spoken_at=when,
        image_caption=image_caption,
    )


def make_turns(
    *sessions: Sequence[str], space: SpaceId = SPACE, first: datetime = MONDAY, days_between: int = 7
) -> tuple[Turn, ...]:
    """Turns of several sessions, each given as its utterances; sessions are ``days_between`` days apart."""
    turns: list[Turn] = []
    for session, texts in enumerate(sessions, start=1):
        start = first + timedelta(days=days_between * (session - 1))
        for minute, text in enumerate(texts):
            when = start + timedelta(minutes=minute)
            turns.append(make_turn(len(turns), text, space=space, session=session, spoken_at=when))
    return tuple(turns)


def make_conversation(
    *sessions: Sequence[str], space: SpaceId = SPACE, extractions: Extractions | None = None
) -> Conversation:
    """A conversation of such turns."""
    return Conversation(space, make_turns(*sessions, space=space), extractions or Extractions())


def change_of(
    turn: Turn,
    *,
    nodes: Sequence[NewNode] = (),
    relations: Sequence[NewRelation] = (),
    updates: Sequence[NodeUpdate] = (),
    encoder: FakeEncoder | None = None,
) -> GraphChange:
    """The change of a turn, with its episode (ref ``episode``) first; with embeddings if an encoder is given."""
    episode = NewNode(
        "episode", "episode", turn.turn_id, turn.utterance, (turn.turn_id,), turn.spoken_at, turn.spoken_at
    )
    made = [episode, *nodes]
    if encoder is not None:
        vectors = encoder.encode([node.description for node in made])
        made = [
            NewNode(
                n.ref, n.type, n.label, n.description, n.provenance, n.valid_from, n.valid_to, n.attributes, vector
            )
            for n, vector in zip(made, vectors, strict=True)
        ]  # fmt: skip
    return GraphChange(
        turn.space,
        turn.recorded_at,
        turn.turn_id,
        tuple(made),
        tuple(updates),
        tuple(relations),
        None if encoder is None else encoder.model_id,
    )


def fact(ref: str, description: str, *turns: Turn, kind: str = "knowledge_node") -> NewNode:
    """A new node that was extracted from turns; its label is its description."""
    return NewNode(ref, kind, description[:40], description, tuple(turn.turn_id for turn in turns))


def side_by_side(work: Callable[[int], None], number: int) -> None:
    """Call ``work`` with 0 to ``number`` - 1, each in a thread of its own; raises the error of any of them."""
    with ThreadPoolExecutor(number) as pool:
        for each in [pool.submit(work, each) for each in range(number)]:
            each.result()

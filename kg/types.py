"""The data model: turns, nodes, relations, and the change that one turn makes to the graph.

A *space* is a separate memory, with its own conversation and graph; IDs of turns and nodes are unique within it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Any, NewType

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.times import TIME_RANGE, is_in_range

SpaceId = NewType("SpaceId", str)
TurnId = NewType("TurnId", str)
NodeId = NewType("NodeId", str)
#: A value of metadata.
Scalar = str | int | float | bool
Attributes = Mapping[str, str | int | float | bool | list[str]]


def states_same(value: object, other: object) -> bool:
    """Whether two facts, given the attribute ``value`` of each, state the same, one of them perhaps in more words."""
    if value is None or other is None:
        return False
    return f"{value} ".startswith(f"{other} ") or f"{other} ".startswith(f"{value} ")


#: Recorded time of undated turns: earlier than every real date, so that they are visible at any ``as_of``.
UNDATED = datetime(1970, 1, 1, tzinfo=UTC)

#: Longest name, in bytes of UTF-8: it must fit in an index row, for a space with "@" and a time appended.
MAX_NAME_BYTES = 240
#: What ``is_name`` requires, for error messages.
NAME_RULE = f"1 to {MAX_NAME_BYTES} bytes without control characters, not blank"
#: Longest text of a turn, and longest caption of its image, in bytes of UTF-8.
MAX_TEXT_BYTES = 1_000_000
#: Letters of what a node says that is no turn.
MAX_DESCRIPTION = 2_000
_MAX_POSITION = 2**31
_SHARES = "[shares "  # in an utterance, begins the caption of a shared image
#: Characters that not every database can store: lone surrogates are not valid UTF-8, and PostgreSQL refuses NUL.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def is_name(text: str) -> bool:
    """Whether a text is a valid name of a space, turn, session or speaker: not blank, short, no control characters."""
    is_plain = not any(sign < " " or sign == "\x7f" or "\ud800" <= sign <= "\udfff" for sign in text)
    return is_plain and bool(text.strip()) and len(text.encode()) <= MAX_NAME_BYTES


def is_text(text: str) -> bool:
    """Whether every supported database can store a text: not too long, no NUL characters or lone surrogates."""
    return not UNSTORABLE.search(text) and len(text.encode()) <= MAX_TEXT_BYTES


def title_of(given: object) -> str | None:
    """A title as it is stored: one line of at most as many bytes as a name may have; None if nothing is left."""
    if not isinstance(given, str):
        return None
    line = " ".join("".join(sign for sign in word if sign.isprintable()) for word in given.split())
    return line.encode(errors="ignore")[:MAX_NAME_BYTES].decode(errors="ignore").strip() or None


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of a space: a user, an agent, or both. All spaces of one owner can be searched together.

    For the owner of a space, None means that none was given; in a search, None matches any.
    """

    user: str | None = None
    agent: str | None = None

    def __bool__(self) -> bool:
        return self != ANYBODY

    def __str__(self) -> str:
        named = (
            f"{field} {name!r}" for field, name in (("user", self.user), ("agent", self.agent)) if name is not None
        )
        return " and ".join(named) or "anybody"

    def covers(self, other: Scope) -> bool:
        """Whether a search in this scope includes a space that belongs to ``other``."""
        return self.user in (None, other.user) and self.agent in (None, other.agent)


ANYBODY = Scope()


class TurnState(StrEnum):
    """Whether a turn still has to be consolidated, was consolidated, or failed."""

    PENDING = "pending"
    DONE = "done"
    FAILED = "failed"


class NodeStatus(StrEnum):
    """Whether searches can find a node; an archived node stays in the store but is not found."""

    ACTIVE = "active"
    ARCHIVED = "archived"


@dataclass(frozen=True, slots=True)
class Turn:
    """One utterance as it was said: the source record, whose content never changes.

    ``spoken_at`` comes from the data, never from the wall clock; None where the corpus gives no date. Relative dates in
    the text are resolved on the day in UTC; give local times without a time zone if days should be local.
    ``position`` counts the turns of a conversation from 0, in the order they were spoken. The store assigns it: the
    positions of turns that are being appended only give their order relative to each other. ``metadata`` are for
    filters (see ``kg.metadata``), and at ``expires_at`` the turn is to be forgotten; neither is part of the content.
    """

    space: SpaceId
    turn_id: TurnId
    conversation_id: str
    session_id: str
    position: int
    speaker: str
    text: str
    spoken_at: datetime | None = None
    image_caption: str | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    expires_at: datetime | None = None

    @property
    def recorded_at(self) -> datetime:
        """The time from which the graph knows this turn."""
        return self.spoken_at or UNDATED

    @property
    def said(self) -> Said:
        """What is known of the turn beside its words."""
        return Said(self.turn_id, self.session_id, self.speaker, self.spoken_at, self.metadata, self.expires_at)

    @property
    def utterance(self) -> str:
        """The text that is embedded and searched: speaker, words, and the caption of a shared image."""
        caption = f" {_SHARES}{self.image_caption}]" if self.image_caption else ""
        return f"{self.speaker}: {self.text}{caption}"

    @staticmethod
    def text_of(utterance: str, speaker: str) -> str:
        """Only the words of an ``utterance``, without speaker and image caption."""
        return Turn.without_speaker(utterance, speaker).partition(f" {_SHARES}")[0]

    @staticmethod
    def without_speaker(utterance: str, speaker: str) -> str:
        """An ``utterance`` without the speaker's name at its beginning."""
        return utterance.removeprefix(f"{speaker}: ")

    @staticmethod
    def shares_image(utterance: str) -> bool:
        """Whether an ``utterance`` contains the mark of a shared image, even if the speaker typed it."""
        return _SHARES in utterance

    @property
    def fault(self) -> tuple[str, object, str] | None:
        """The first invalid field, its value, and what is expected; None for a valid turn."""
        for name in ("conversation_id", "space", "turn_id", "session_id", "speaker"):
            if not is_name(getattr(self, name)):
                return name, getattr(self, name), NAME_RULE
        for name in ("text", "image_caption"):
            if not is_text(getattr(self, name) or ""):
                return name, getattr(self, name), f"at most {MAX_TEXT_BYTES} bytes without NUL or lone surrogates"
        for name in ("spoken_at", "expires_at"):
            time = getattr(self, name)
            if time is not None and not is_in_range(time):
                return name, str(time), TIME_RANGE
        if not 0 <= self.position < _MAX_POSITION:
            return "position", self.position, f"0 or more, below {_MAX_POSITION}"
        return None


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the store holds it. Times are in UTC.

    ``valid_from`` / ``valid_to`` say when the statement is true or the event happened (None: open);
    ``created_at`` / ``update_time`` say when the graph learnt of it, and of its last change.
    """

    space: SpaceId
    id: NodeId
    type: str
    label: str
    description: str
    status: NodeStatus
    created_at: datetime
    update_time: datetime
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    attributes: Attributes = field(default_factory=dict)
    provenance: tuple[TurnId, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """What is known of a turn beside its words."""

    turn_id: TurnId
    session: str
    speaker: str
    spoken_at: datetime | None = None
    metadata: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Replacement:
    """What has replaced a node, or most of what a turn says.

    Attributes:
        said: The turn that says what holds instead.
        at: When it was learnt.
        nodes: The new fact, and the node of its turn.
    """

    said: Said
    at: datetime
    nodes: tuple[NodeId, ...]

    @property
    def day(self) -> date | None:
        """The day on which it was learnt; None if the turn has no time, since what it says then counts as of 1970."""
        return None if self.said.spoken_at is None else self.at.date()


@dataclass(frozen=True, slots=True)
class Relation:
    """A directed, labelled edge between two nodes of one space."""

    source: NodeId
    label: str
    target: NodeId
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node to be created. ``ref`` is a temporary name by which relations in the same change refer to it.

    What a late turn states may have ended meanwhile: its ``valid_to`` is known only from ``open_until`` on, when that
    was learnt; None if it has been known from the beginning.
    """

    ref: str
    type: str
    label: str
    description: str
    provenance: tuple[TurnId, ...]
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    attributes: Attributes = field(default_factory=dict)
    embedding: NDArray[np.float32] | None = None
    status: NodeStatus = NodeStatus.ACTIVE
    open_until: datetime | None = None


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """A new version of a node. None leaves a field unchanged; ``add_provenance`` adds to the present source turns."""

    id: NodeId
    label: str | None = None
    description: str | None = None
    status: NodeStatus | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    attributes: Attributes | None = None
    add_provenance: tuple[TurnId, ...] = ()
    embedding: NDArray[np.float32] | None = None

    @property
    def changed(self) -> dict[str, Any]:
        """The fields that get new values; a node's history records these, but not further source turns."""
        given = {field_.name: getattr(self, field_.name) for field_ in fields(self)}
        return {
            name: value for name, value in given.items() if name not in ("id", "add_provenance") and value is not None
        }


@dataclass(frozen=True, slots=True)
class NewRelation:
    """An edge to be created; each end is a ``NewNode.ref`` of the same change or an existing node id."""

    source: str
    label: str
    target: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class GraphChange:
    """All that one turn changes in the graph; it is committed in one transaction or not at all.

    ``embedding_model`` names the model that made the embeddings of the nodes in this change.
    The same transaction marks the turn ``turn_id`` done, or failed if ``failure`` gives a reason; ``turn_id`` is None
    for changes that no turn caused. It also writes ``remembered``, settings of the store by name. ``coined`` maps
    relation labels that the extractor invented, which the graph network does not read, to their descriptions.
    ``dropped`` lists edges to remove, as (source, label, target); those that do not exist are ignored.
    ``revision`` is the revision of the space on which the change is based; the store refuses the change if the space
    has another one by then. With None it accepts any.
    """

    space: SpaceId
    recorded_at: datetime
    turn_id: TurnId | None = None
    nodes: tuple[NewNode, ...] = ()
    updates: tuple[NodeUpdate, ...] = ()
    relations: tuple[NewRelation, ...] = ()
    embedding_model: str | None = None
    failure: str | None = None
    remembered: Mapping[str, str] = field(default_factory=dict)
    coined: Mapping[str, str] = field(default_factory=dict)
    dropped: tuple[tuple[NodeId, str, NodeId], ...] = ()
    revision: int | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one space with its gold evidence.

    ``evidence`` holds turn ids; ``evidence_sessions`` holds session ids, where the corpus cites sessions.
    ``asked_at`` is the time as of which the graph may be used; None means that the whole conversation is known.
    """

    space: SpaceId
    question_id: str
    text: str
    category: str
    evidence: tuple[TurnId, ...]
    evidence_sessions: tuple[str, ...] = ()
    asked_at: datetime | None = None
    answer: str | None = None

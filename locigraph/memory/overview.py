"""What a space is about, before anything is asked: its sessions, who speaks in it, and its most frequent topics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.retrieval.hit_filters import is_kept


@dataclass(frozen=True, slots=True)
class SessionOverview:
    """A session of a space.

    Attributes:
        session: Its ID.
        turns: Number of its turns.
        begins_at: When its first turn was spoken; None if no turn has a time.
    """

    session: str
    turns: int
    begins_at: datetime | None


@dataclass(frozen=True, slots=True)
class Overview:
    """What a space holds, without what has expired.

    Attributes:
        sessions: Its sessions, in the order of the conversation.
        speakers: Numbers of turns by speaker, the most frequent first.
        topics: Numbers of turns by topic, the most frequent first; topics of a single turn are left out.
    """

    sessions: tuple[SessionOverview, ...]
    speakers: dict[str, int]
    topics: dict[str, int]


def overview_of(graph: Store, space: SpaceId, *, most_topics: int, now: datetime) -> Overview:
    """The overview of a space.

    Raises:
        UnknownSpaceError: If there is no such space.
    """
    turns = [turn for turn in graph.turns(space) if is_kept(turn, now)]
    counts = Counter(turn.session_id for turn in turns)
    begun: dict[str, datetime] = {}
    for turn in turns:
        if turn.spoken_at is not None:
            begun[turn.session_id] = min(turn.spoken_at, begun.get(turn.session_id, turn.spoken_at))
    speakers = Counter(turn.speaker for turn in turns)
    return Overview(
        tuple(SessionOverview(session, number, begun.get(session)) for session, number in counts.items()),
        dict(sorted(speakers.items(), key=lambda each: (-each[1], each[0]))),
        {
            topic.replace("_", " "): number
            for topic, number in graph.topics_of(space, now=now, most=most_topics).items()
        },
    )

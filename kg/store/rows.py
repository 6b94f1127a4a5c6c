"""Converts turns and nodes to and from the rows of their tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from locigraph.kg.errors import TurnConflictError, same_beginning, shortened
from locigraph.kg.store.sequence import NEW
from locigraph.kg.times import moment, optional_epoch, optional_moment
from locigraph.kg.types import Node, NodeId, NodeStatus, Said, SpaceId, Turn, TurnId, TurnState


def turn_row(turn: Turn) -> dict[str, Any]:
    """A new turn as a row: pending, and not yet placed in the conversation."""
    is_new = {"position": NEW, "state": TurnState.PENDING, "error": None}
    beside = {"metadata": dict(turn.metadata) or None, "expires_at": optional_epoch(turn.expires_at)}
    return {"space": turn.space, "turn_id": turn.turn_id, **content_of(turn), **beside, **is_new}


def turn_of(row: Any) -> Turn:
    """A row as a turn."""
    return Turn(
        SpaceId(row.space), TurnId(row.turn_id), row.conversation_id, row.session_id, row.position, row.speaker,
        row.text, optional_moment(row.spoken_at), row.image_caption, row.metadata or {},
        optional_moment(row.expires_at),
    )  # fmt: skip


def said_of(row: Any) -> Said:
    """What a row says of a turn beside its words."""
    return Said(
        TurnId(row.turn_id), row.session_id, row.speaker, optional_moment(row.spoken_at), row.metadata or {},
        optional_moment(row.expires_at),
    )  # fmt: skip


def require_same(stored: Turn, turn: Turn) -> None:
    """Raise TurnConflictError unless both turns have the same content; positions are not compared.

    Metadata must be the same if the second turn has any: they cannot be changed, and ignoring them would be silent.
    """
    was, now = content_of(stored), content_of(turn)
    if turn.metadata:
        was, now = was | {"metadata": _as_text(stored.metadata)}, now | {"metadata": _as_text(turn.metadata)}
    for name in was:
        if was[name] != now[name]:
            raise TurnConflictError(
                f"space {turn.space!r}: turn {turn.turn_id!r} is stored with a different {name} "
                f"({', not '.join(_apart(was[name], now[name]))}); give the new turn a new id"
            )


def _as_text(metadata: Mapping[str, Any]) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False, sort_keys=True)


def _apart(was: object, now: object) -> tuple[str, str]:
    """Two values shortened for an error message; long texts begin shortly before the first difference."""
    same = 0
    if isinstance(was, str) and isinstance(now, str):
        same = same_beginning(was, now)
    if same <= 40:
        return shortened(was), shortened(now)
    return shortened(f"...{str(was)[same - 20 :]}"), shortened(f"...{str(now)[same - 20 :]}")


def content_of(turn: Turn) -> dict[str, str | int | None]:
    """All fields of a turn that define its content: all but space, id, position, metadata and the time to forget it."""
    return {
        "conversation_id": turn.conversation_id, "session_id": turn.session_id, "text": turn.text,
        "speaker": turn.speaker, "image_caption": turn.image_caption, "spoken_at": optional_epoch(turn.spoken_at),
    }  # fmt: skip


def node_of(space: SpaceId, row: Any, sources: tuple[TurnId, ...]) -> Node:
    """A row as a node with its source turns."""
    attributes = row.attributes
    if isinstance(attributes, str):  # a textual query returns JSON undecoded
        attributes = json.loads(attributes)
    return Node(
        space, NodeId(row.id), row.type, row.label, row.description, NodeStatus(row.status), moment(row.created_at),
        moment(row.update_time), optional_moment(row.valid_from), optional_moment(row.valid_to), attributes, sources,
    )  # fmt: skip

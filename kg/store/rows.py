"""Converts turns and nodes to and from the rows of their tables."""

from __future__ import annotations

import json
from typing import Any

from locigraph.kg.errors import TurnConflictError
from locigraph.kg.times import moment, optional_epoch
from locigraph.kg.types import Node, NodeId, NodeStatus, SpaceId, Turn, TurnId, TurnState


def turn_row(turn: Turn) -> dict[str, Any]:
    """A pending turn as a row."""
    return {
        "space": turn.space, "turn_id": turn.turn_id, "conversation_id": turn.conversation_id,
        "session_id": turn.session_id, "position": turn.position, "speaker": turn.speaker, "text": turn.text,
        "image_caption": turn.image_caption, "spoken_at": optional_epoch(turn.spoken_at),
        "state": TurnState.PENDING, "error": None,
    }  # fmt: skip


def turn_of(row: Any) -> Turn:
    """A row as a turn."""
    return Turn(
        SpaceId(row.space), TurnId(row.turn_id), row.conversation_id, row.session_id, row.position, row.speaker,
        row.text, moment(row.spoken_at), row.image_caption,
    )  # fmt: skip


def require_same(held: Turn, turn: Turn) -> None:
    """Raise TurnConflictError unless both hold the same content."""
    was, now = _comparable(held), _comparable(turn)
    differing = [name for name in was if was[name] != now[name]]
    if differing == ["position"]:
        raise TurnConflictError(
            f"space {turn.space!r}: turn {turn.turn_id!r} is stored at position {held.position} of its conversation, "
            f"not {turn.position}; a file may gain turns at its end, but those before must stay (a forgotten turn too: "
            "it is read again). To build without them, forget the whole space and build it anew"
        )
    if differing:
        name = differing[0]
        raise TurnConflictError(
            f"space {turn.space!r}: turn {turn.turn_id!r} is stored with another {name} "
            f"({str(was[name])[:40]!r} against {str(now[name])[:40]!r}); give the new turn a new id"
        )


def _comparable(turn: Turn) -> dict[str, object]:
    return {
        "conversation_id": turn.conversation_id, "session_id": turn.session_id, "text": turn.text,
        "speaker": turn.speaker, "image_caption": turn.image_caption, "spoken_at": optional_epoch(turn.spoken_at),
        "position": turn.position,
    }  # fmt: skip


def node_of(space: SpaceId, row: Any, sources: tuple[TurnId, ...]) -> Node:
    """A row as a node with its source turns."""
    attributes = row.attributes
    if isinstance(attributes, str):  # a textual query returns JSON undecoded
        attributes = json.loads(attributes)
    created, updated = moment(row.created_at), moment(row.update_time)
    assert created is not None
    assert updated is not None
    return Node(
        space, NodeId(row.id), row.type, row.label, row.description, NodeStatus(row.status), created, updated,
        moment(row.valid_from), moment(row.valid_to), attributes, sources,
    )  # fmt: skip

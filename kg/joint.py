"""Joins the graphs of several spaces, with IDs of nodes and turns prefixed with their space.

Without the prefix, these IDs are unique only within their space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

import numpy as np

from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import NodeId, SpaceId

_Name = TypeVar("_Name", bound=str)
_Value = TypeVar("_Value")


def joint_name(space: str, name: _Name) -> _Name:
    """``space:name``, unique for each pair: a colon in the space becomes ``%3A``, a percent sign ``%25``."""
    joined: _Name = f"{space.replace('%', '%25').replace(':', '%3A')}:{name}"  # type: ignore[assignment]  # a str
    return joined


def parted(joined: _Name) -> tuple[SpaceId, _Name]:
    """Inverse of ``joint_name``: the space, and the name within it."""
    space, _, name = joined.partition(":")
    return SpaceId(space.replace("%3A", ":").replace("%25", "%")), name  # type: ignore[return-value]  # a str


def read_by_space(
    joined: Iterable[NodeId], read: Callable[[SpaceId, list[NodeId]], Mapping[NodeId, _Value]]
) -> dict[NodeId, _Value]:
    """Call ``read`` once for each space of the given nodes; returns its values by joint name."""
    by_space: dict[SpaceId, list[NodeId]] = {}
    for name in joined:
        space, node = parted(name)
        by_space.setdefault(space, []).append(node)
    return {
        joint_name(space, node): value
        for space, nodes in by_space.items()
        for node, value in read(space, nodes).items()
    }


def side_by_side(snapshots: Sequence[Snapshot], name: SpaceId) -> Snapshot:
    """One snapshot that holds several spaces one after another, ordered by first turn; no edge crosses spaces.

    Node rows are ordered by key within a space only.
    """
    held = sorted(snapshots, key=_began)
    nodes = [0, *accumulate(each.num_nodes for each in held)][:-1]  # rows at which the spaces begin
    turns = [0, *accumulate(len(each.turn_ids) for each in held)][:-1]
    begins = np.array([nodes, turns], dtype=np.int64).T
    width = max((each.embeddings.shape[1] for each in held if each.num_nodes), default=0)
    return Snapshot(
        space=name,
        keys=np.concatenate([each.keys for each in held]),
        ids=tuple(joint_name(each.space, node) for each in held for node in each.ids),
        types=np.concatenate([each.types for each in held]),
        labels=tuple(label for each in held for label in each.labels),
        descriptions=tuple(text for each in held for text in each.descriptions),
        active=np.concatenate([each.active for each in held]),
        recorded_at=np.concatenate([each.recorded_at for each in held]),
        valid_from=np.concatenate([each.valid_from for each in held]),
        valid_to=np.concatenate([each.valid_to for each in held]),
        # The embeddings of a space without nodes have width 0.
        embeddings=np.concatenate([each.embeddings.reshape(each.num_nodes, width) for each in held]),
        source=np.concatenate([each.source + first for each, first in zip(held, nodes, strict=True)]),
        target=np.concatenate([each.target + first for each, first in zip(held, nodes, strict=True)]),
        relations=np.concatenate([each.relations for each in held]),
        families=np.concatenate([each.families for each in held]),
        weights=np.concatenate([each.weights for each in held]),
        turn_ids=tuple(joint_name(each.space, turn) for each in held for turn in each.turn_ids),
        speakers=tuple(speaker for each in held for speaker in each.speakers),
        session_ids=tuple(joint_name(each.space, session) for each in held for session in each.session_ids),
        spoken_at=np.concatenate([each.spoken_at for each in held]),
        provenance=np.concatenate([each.provenance + begin for each, begin in zip(held, begins, strict=True)]),
    )


def _began(snapshot: Snapshot) -> tuple[int, str]:
    dated = snapshot.spoken_at[snapshot.spoken_at != NO_TIME]
    return int(dated.min(initial=np.iinfo(np.int64).max)), snapshot.space

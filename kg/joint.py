"""Joins the graphs of several spaces, with IDs of nodes and turns prefixed with their space.

Without the prefix, these IDs are unique only within their space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

import numpy as np

from locigraph.kg.snapshot import NO_TIME, Snapshot
from locigraph.kg.types import SpaceId

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


def by_space(joined: Iterable[_Name]) -> dict[SpaceId, list[_Name]]:
    """The names within each space of the given joint names of nodes or turns."""
    found: dict[SpaceId, list[_Name]] = {}
    for joint in joined:
        space, name = parted(joint)
        found.setdefault(space, []).append(name)
    return found


def read_by_space(
    joined: Iterable[_Name], read: Callable[[SpaceId, list[_Name]], Mapping[_Name, _Value]]
) -> dict[_Name, _Value]:
    """Call ``read`` once for each space of the given nodes or turns; returns its values by joint name."""
    return {
        joint_name(space, name): value
        for space, names in by_space(joined).items()
        for name, value in read(space, names).items()
    }


def side_by_side(snapshots: Sequence[Snapshot], name: SpaceId) -> Snapshot:
    """One snapshot that holds several spaces one after another, ordered by first turn; no edge crosses spaces.

    Node rows are ordered by key within a space only.
    """
    parts = sorted(snapshots, key=_began)
    nodes = [0, *accumulate(part.num_nodes for part in parts)][:-1]  # rows at which the spaces begin
    turns = [0, *accumulate(len(part.turn_ids) for part in parts)][:-1]
    begins = np.array([nodes, turns], dtype=np.int64).T
    width = max((part.embeddings.shape[1] for part in parts if part.num_nodes), default=0)
    return Snapshot(
        space=name,
        keys=np.concatenate([part.keys for part in parts]),
        ids=tuple(joint_name(part.space, node) for part in parts for node in part.ids),
        types=np.concatenate([part.types for part in parts]),
        labels=tuple(label for part in parts for label in part.labels),
        descriptions=tuple(text for part in parts for text in part.descriptions),
        active=np.concatenate([part.active for part in parts]),
        recorded_at=np.concatenate([part.recorded_at for part in parts]),
        valid_from=np.concatenate([part.valid_from for part in parts]),
        valid_to=np.concatenate([part.valid_to for part in parts]),
        # The embeddings of a space without nodes have width 0.
        embeddings=np.concatenate([part.embeddings.reshape(part.num_nodes, width) for part in parts]),
        source=np.concatenate([part.source + first for part, first in zip(parts, nodes, strict=True)]),
        target=np.concatenate([part.target + first for part, first in zip(parts, nodes, strict=True)]),
        relations=np.concatenate([part.relations for part in parts]),
        families=np.concatenate([part.families for part in parts]),
        weights=np.concatenate([part.weights for part in parts]),
        turn_ids=tuple(joint_name(part.space, turn) for part in parts for turn in part.turn_ids),
        speakers=tuple(speaker for part in parts for speaker in part.speakers),
        session_ids=tuple(joint_name(part.space, session) for part in parts for session in part.session_ids),
        spoken_at=np.concatenate([part.spoken_at for part in parts]),
        provenance=np.concatenate([part.provenance + begin for part, begin in zip(parts, begins, strict=True)]),
    )


def _began(snapshot: Snapshot) -> tuple[int, str]:
    dated = snapshot.spoken_at[snapshot.spoken_at != NO_TIME]
    return int(dated.min(initial=np.iinfo(np.int64).max)), snapshot.space

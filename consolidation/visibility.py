"""Since when a graph may show what a second pass made of its nodes: not before they had their present wording."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from locigraph.kg.store import Store
from locigraph.kg.types import UNDATED, NodeId, SpaceId


def worded_since(store: Store, space: SpaceId, nodes: Collection[NodeId]) -> datetime:
    """When the last of the given nodes was created or changed; ``UNDATED`` if all have been erased meanwhile.

    A question as of an earlier time would otherwise see later words, in a text that was made of these nodes.
    """
    found = store.nodes(space, ids=sorted(nodes), include_archived=True)
    return max((node.update_time for node in found), default=UNDATED)

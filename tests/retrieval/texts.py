"""Reads the texts of hits from snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import NodeId, SpaceId
from locigraph.retrieval.protocols import NodeTexts
from tests.fakes_graph import lexical_of


def texts_of(*snapshots: Snapshot) -> NodeTexts:
    """Texts of searchable nodes; a space that none of the snapshots is of is unknown."""
    lexical = lexical_of(*snapshots)

    def read(space: SpaceId, node_ids: Sequence[NodeId], as_of: datetime | None) -> dict[NodeId, str]:
        lexical.load(space, as_of)
        found = [lexical.document(space, node_id, as_of=as_of) for node_id in node_ids]
        return {document.node_id: document.description for document in found if document is not None}

    return read

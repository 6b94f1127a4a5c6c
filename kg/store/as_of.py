"""SQL that reads the graph as it was known at a time; parameters are ``:space`` and ``:t`` (seconds since 1970).

Each query reads a whole space, or the part that conditions choose. Such a condition takes the place of that on the
space, so that databases look rows up by their keys instead of reading all rows of the space.
"""

from __future__ import annotations

from collections.abc import Sequence

from locigraph.kg.store.tables import VERSIONED


def nodes(condition: str = "n.space = :space") -> str:
    """SQL for nodes ``n`` as known at :t: the present row of each, or the version that was current at that time."""
    return f"""
SELECT n.key AS key, n.id AS id, n.type AS type, n.created_at AS created_at,
       {", ".join(f"CASE WHEN v.key IS NULL THEN n.{name} ELSE v.{name} END AS {name}" for name in VERSIONED)}
FROM nodes n
LEFT JOIN node_versions v
  ON v.key = n.key AND n.update_time > :t AND v.update_time <= :t AND v.recorded_until > :t
WHERE {condition} AND n.created_at <= :t
"""


def edges(condition: str = "r.space = :space") -> str:
    """SQL for edges ``r``; ``label`` is the position of the relation label among ``LABELS``."""
    return f"""
SELECT r.source AS source, r.target AS target, r.weight AS weight,
       (SELECT COUNT(*) FROM relation_labels k WHERE k.name < r.label) AS label
FROM relations r
WHERE {condition} AND r.created_at <= :t
"""


LABELS = "SELECT name, family FROM relation_labels ORDER BY name"


def turns(condition: str = "space = :space") -> str:
    """SQL for turns."""
    return f"""
SELECT key, position, turn_id, speaker, session_id, spoken_at FROM turns
WHERE {condition} AND COALESCE(spoken_at, 0) <= :t
"""


def provenance(condition: str = "t.space = :space") -> str:
    """SQL for pairs ``p`` of a node and a turn ``t``."""
    return f"""
SELECT p.node_key AS node_key, p.turn_key AS turn_key
FROM provenance p JOIN turns t ON t.key = p.turn_key JOIN nodes n ON n.key = p.node_key
WHERE {condition} AND p.recorded_at <= :t AND COALESCE(t.spoken_at, 0) <= :t AND n.created_at <= :t
"""


def vectors(condition: str) -> str:
    """SQL for the vectors of nodes ``n``, each for the node's text as of :t."""
    return f"""
SELECT x.key AS key, e.vector AS vector
FROM ({nodes(condition)}) AS x
JOIN embeddings e ON e.node_key = x.key AND e.text_hash = x.text_hash AND e.model = :model
"""


def among(keys: Sequence[int], *columns: str) -> str:
    """The condition that each of the columns is one of the keys."""
    listed = ",".join(map(str, keys)) or "NULL"
    return " AND ".join(f"{column} IN ({listed})" for column in columns)

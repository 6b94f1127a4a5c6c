"""SQL that reads the graph as it was known at a time; parameters are ``:space`` and ``:t`` (seconds since 1970)."""

from locigraph.kg.store.tables import VERSIONED

# A node as known at :t is its present row, or the earlier version that was current at that time.
NODES = f"""
SELECT n.key AS key, n.id AS id, n.type AS type, n.created_at AS created_at,
       {", ".join(f"CASE WHEN v.key IS NULL THEN n.{name} ELSE v.{name} END AS {name}" for name in VERSIONED)}
FROM nodes n
LEFT JOIN node_versions v
  ON v.key = n.key AND n.update_time > :t AND v.update_time <= :t AND v.recorded_until > :t
WHERE n.space = :space AND n.created_at <= :t
"""
#: ``label`` is the position of the relation label among ``LABELS``.
EDGES = """
SELECT r.source AS source, r.target AS target, r.weight AS weight,
       (SELECT COUNT(*) FROM relation_labels k WHERE k.name < r.label) AS label
FROM relations r
WHERE r.space = :space AND r.created_at <= :t
"""
LABELS = "SELECT name, family FROM relation_labels ORDER BY name"
TURNS = """
SELECT key, position, turn_id, speaker, session_id, spoken_at FROM turns
WHERE space = :space AND COALESCE(spoken_at, 0) <= :t
"""
PROVENANCE = """
SELECT p.node_key AS node_key, p.turn_key AS turn_key
FROM provenance p JOIN turns t ON t.key = p.turn_key JOIN nodes n ON n.key = p.node_key
WHERE t.space = :space AND p.recorded_at <= :t AND COALESCE(t.spoken_at, 0) <= :t AND n.created_at <= :t
"""
#: Vectors of the nodes with keys from :low to :high, each for the node's text as of :t.
VECTORS = f"""
SELECT x.key AS key, e.vector AS vector
FROM ({NODES} AND n.key BETWEEN :low AND :high) AS x
JOIN embeddings e ON e.node_key = x.key AND e.text_hash = x.text_hash AND e.model = :model
"""

"""SQL that reads the graph as it was known at a time; parameters are ``:space`` and ``:t`` (seconds since 1970)."""

# A node as known at :t is its present row, or the earlier version that was current at that time.
NODES = """
SELECT n.key AS key, n.id AS id, n.type AS type, n.created_at AS created_at,
       CASE WHEN v.key IS NULL THEN n.label ELSE v.label END AS label,
       CASE WHEN v.key IS NULL THEN n.description ELSE v.description END AS description,
       CASE WHEN v.key IS NULL THEN n.text_hash ELSE v.text_hash END AS text_hash,
       CASE WHEN v.key IS NULL THEN n.status ELSE v.status END AS status,
       CASE WHEN v.key IS NULL THEN n.update_time ELSE v.update_time END AS update_time,
       CASE WHEN v.key IS NULL THEN n.valid_from ELSE v.valid_from END AS valid_from,
       CASE WHEN v.key IS NULL THEN n.valid_to ELSE v.valid_to END AS valid_to,
       CASE WHEN v.key IS NULL THEN n.attributes ELSE v.attributes END AS attributes
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

"""The store's tables. Times are ``kg.times``' seconds; ``key`` is a node's integer name inside the database."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite gives ids by itself only to a column that is exactly INTEGER PRIMARY KEY.
_KEY = BigInteger().with_variant(Integer, "sqlite")


spaces = Table("spaces", metadata, Column("space", String, primary_key=True))

settings = Table("settings", metadata, Column("name", String, primary_key=True), Column("value", Text, nullable=False))

node_types = Table(
    "node_types",
    metadata,
    Column("name", String, primary_key=True),
    Column("parent", String, ForeignKey("node_types.name")),
    Column("description", Text, nullable=False),
)

relation_labels = Table(
    "relation_labels",
    metadata,
    Column("name", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("family", String, nullable=False),
    Column("description", Text, nullable=False),
)

turns = Table(
    "turns",
    metadata,
    Column("key", _KEY, primary_key=True),
    Column("space", String, ForeignKey("spaces.space"), nullable=False),
    Column("turn_id", String, nullable=False),
    Column("conversation_id", String, nullable=False),
    Column("session_id", String, nullable=False),
    Column("position", Integer, nullable=False),
    Column("speaker", String, nullable=False),
    Column("text", Text, nullable=False),
    Column("image_caption", Text),
    Column("spoken_at", BigInteger),
    Column("state", String, nullable=False),
    Column("error", Text),
    Index("uq_turns_space_turn_id", "space", "turn_id", unique=True),
    Index("ix_turns_space_state", "space", "state"),
)

nodes = Table(
    "nodes",
    metadata,
    Column("key", _KEY, primary_key=True),
    Column("space", String, ForeignKey("spaces.space"), nullable=False),
    Column("id", String, nullable=False),
    Column("type", String, ForeignKey("node_types.name"), nullable=False),
    Column("label", String, nullable=False),
    Column("description", Text, nullable=False),
    Column("text_hash", String, nullable=False),
    Column("status", String, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("update_time", BigInteger, nullable=False),
    Column("valid_from", BigInteger),
    Column("valid_to", BigInteger),
    Column("attributes", JSON, nullable=False),
    Index("uq_nodes_space_id", "space", "id", unique=True),
    Index("ix_nodes_space_type", "space", "type"),
    sqlite_autoincrement=True,  # a key is never given twice, so an index row cannot point at another node
)

# What a node was before its last update: visible to as_of(t) with update_time <= t < recorded_until.
node_versions = Table(
    "node_versions",
    metadata,
    Column("key", _KEY, ForeignKey("nodes.key", ondelete="CASCADE"), primary_key=True),
    Column("recorded_until", BigInteger, primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("label", String, nullable=False),
    Column("description", Text, nullable=False),
    Column("text_hash", String, nullable=False),
    Column("status", String, nullable=False),
    Column("update_time", BigInteger, nullable=False),
    Column("valid_from", BigInteger),
    Column("valid_to", BigInteger),
    Column("attributes", JSON, nullable=False),
)

provenance = Table(
    "provenance",
    metadata,
    Column("node_key", _KEY, ForeignKey("nodes.key", ondelete="CASCADE"), primary_key=True),
    Column("turn_key", _KEY, ForeignKey("turns.key", ondelete="CASCADE"), primary_key=True),
    Column("recorded_at", BigInteger, nullable=False),
    Index("ix_provenance_turn_key", "turn_key"),
)

relations = Table(
    "relations",
    metadata,
    Column("space", String, ForeignKey("spaces.space"), nullable=False),
    Column("source", _KEY, nullable=False, primary_key=True),
    Column("label", String, ForeignKey("relation_labels.name"), nullable=False, primary_key=True),
    Column("target", _KEY, nullable=False, primary_key=True),
    Column("weight", Float, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("valid_from", BigInteger),
    Column("valid_to", BigInteger),
    Column("turn_id", String),  # the turn whose consolidation made the edge
    ForeignKeyConstraint(["source"], ["nodes.key"], ondelete="CASCADE"),
    ForeignKeyConstraint(["target"], ["nodes.key"], ondelete="CASCADE"),
    Index("ix_relations_space", "space"),
    Index("ix_relations_target", "target"),
)

# Keyed by the text as well as the node, so that an earlier version of a node keeps its vector.
embeddings = Table(
    "embeddings",
    metadata,
    Column("node_key", _KEY, ForeignKey("nodes.key", ondelete="CASCADE"), primary_key=True),
    Column("model", String, primary_key=True),
    Column("text_hash", String, primary_key=True),
    Column("vector", LargeBinary, nullable=False),  # float32, little-endian
)

outbox = Table(
    "outbox",
    metadata,
    Column("seq", _KEY, primary_key=True),
    Column("space", String, nullable=False),
    Column("node_key", BigInteger, nullable=False),
    Column("action", String, nullable=False),  # "upsert" or "delete"
    sqlite_autoincrement=True,
)

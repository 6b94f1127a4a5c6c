"""Initial schema.

A migration describes the past, so it spells the tables out instead of importing them from ``kg.store.tables``.
A test compares the result with ``kg.store.tables``.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table("spaces", sa.Column("space", sa.String, primary_key=True))
    op.create_table(
        "settings", sa.Column("name", sa.String, primary_key=True), sa.Column("value", sa.Text, nullable=False)
    )
    op.create_table(
        "node_types",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("parent", sa.String, sa.ForeignKey("node_types.name")),
        sa.Column("description", sa.Text, nullable=False),
    )
    op.create_table(
        "relation_labels",
        sa.Column("name", sa.String, primary_key=True),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("family", sa.String, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
    )
    op.create_table(
        "turns",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("space", sa.String, sa.ForeignKey("spaces.space"), nullable=False),
        sa.Column("turn_id", sa.String, nullable=False),
        sa.Column("conversation_id", sa.String, nullable=False),
        sa.Column("session_id", sa.String, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("speaker", sa.String, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("image_caption", sa.Text),
        sa.Column("spoken_at", sa.BigInteger),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("error", sa.Text),
    )
    op.create_index("uq_turns_space_turn_id", "turns", ["space", "turn_id"], unique=True)
    op.create_index("ix_turns_space_state", "turns", ["space", "state"])
    op.create_table(
        "nodes",
        sa.Column("key", KEY, primary_key=True),
        sa.Column("space", sa.String, sa.ForeignKey("spaces.space"), nullable=False),
        sa.Column("id", sa.String, nullable=False),
        sa.Column("type", sa.String, sa.ForeignKey("node_types.name"), nullable=False),
        sa.Column("label", sa.String, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("text_hash", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("update_time", sa.BigInteger, nullable=False),
        sa.Column("valid_from", sa.BigInteger),
        sa.Column("valid_to", sa.BigInteger),
        sa.Column("attributes", sa.JSON, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_nodes_space_id", "nodes", ["space", "id"], unique=True)
    op.create_index("ix_nodes_space_type", "nodes", ["space", "type"])
    op.create_table(
        "node_versions",
        sa.Column("key", KEY, sa.ForeignKey("nodes.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("recorded_until", sa.BigInteger, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("label", sa.String, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("text_hash", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("update_time", sa.BigInteger, nullable=False),
        sa.Column("valid_from", sa.BigInteger),
        sa.Column("valid_to", sa.BigInteger),
        sa.Column("attributes", sa.JSON, nullable=False),
    )
    op.create_table(
        "provenance",
        sa.Column("node_key", KEY, sa.ForeignKey("nodes.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("turn_key", KEY, sa.ForeignKey("turns.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("recorded_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_provenance_turn_key", "provenance", ["turn_key"])
    op.create_table(
        "relations",
        sa.Column("space", sa.String, sa.ForeignKey("spaces.space"), nullable=False),
        sa.Column("source", KEY, primary_key=True),
        sa.Column("label", sa.String, sa.ForeignKey("relation_labels.name"), primary_key=True),
        sa.Column("target", KEY, primary_key=True),
        sa.Column("weight", sa.Float, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("valid_from", sa.BigInteger),
        sa.Column("valid_to", sa.BigInteger),
        sa.Column("turn_id", sa.String),
        sa.ForeignKeyConstraint(["source"], ["nodes.key"], ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["target"], ["nodes.key"], ondelete="CASCADE"),
    )
    op.create_index("ix_relations_space", "relations", ["space"])
    op.create_index("ix_relations_target", "relations", ["target"])
    op.create_table(
        "embeddings",
        sa.Column("node_key", KEY, sa.ForeignKey("nodes.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("model", sa.String, primary_key=True),
        sa.Column("text_hash", sa.String, primary_key=True),
        sa.Column("vector", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "outbox",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("space", sa.String, nullable=False),
        sa.Column("node_key", sa.BigInteger, nullable=False),
        sa.Column("action", sa.String, nullable=False),
        sqlite_autoincrement=True,
    )

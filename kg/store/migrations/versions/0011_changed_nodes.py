"""Lists changes for graph embeddings by node, and keeps the counts of words by which they weigh words."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("changed_spaces", sa.Column("node_key", sa.BigInteger))
    op.create_index("ix_turns_space_session_id_position", "turns", ["space", "session_id", "position"])
    name = sa.String().with_variant(sa.String(collation="C"), "postgresql")
    op.create_table(
        "word_statistics",
        sa.Column("space", name, sa.ForeignKey("spaces.space"), primary_key=True),
        sa.Column("collection", name, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )

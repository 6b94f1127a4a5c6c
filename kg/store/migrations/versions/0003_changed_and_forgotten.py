"""Adds tables for spaces whose graph embeddings must be recomputed, and for forgotten turns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "changed_spaces",
        sa.Column("seq", KEY, primary_key=True),
        sa.Column("space", sa.String, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_changed_spaces_space", "changed_spaces", ["space"])
    op.create_table(
        "tombstones",
        sa.Column("space", sa.String, primary_key=True),
        sa.Column("turn", sa.String, primary_key=True),
        sa.Column("content", sa.String, nullable=False),
    )
    # It is unknown whether existing embeddings reflect what earlier versions wrote, so all spaces are listed.
    op.execute("INSERT INTO changed_spaces (space) SELECT space FROM spaces")

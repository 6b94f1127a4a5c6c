"""Gives turns metadata, by which answers are filtered, and a time at which they are forgotten."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("turns", sa.Column("metadata", sa.JSON(none_as_null=True)))
    op.add_column("turns", sa.Column("expires_at", sa.BigInteger))
    op.create_index("ix_turns_space_expires_at", "turns", ["space", "expires_at"])

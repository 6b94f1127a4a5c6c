"""Adds a revision number to each space, which shows whether a state cached in memory is still up to date."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("spaces", sa.Column("revision", sa.BigInteger, nullable=False, server_default="0"))

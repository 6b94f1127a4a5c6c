"""Adds how long a space keeps its turns."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("spaces", sa.Column("keep_seconds", sa.BigInteger))

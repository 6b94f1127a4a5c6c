"""Beside what language models cost, how many of their replies were invalid, repaired and given up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    for name in ("invalid", "repaired", "given_up"):  # of what was spent before nobody has counted them
        op.add_column("spent", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))

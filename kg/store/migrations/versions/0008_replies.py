"""Adds the numbers of invalid, repaired and given-up replies to the usage of language models."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    for name in ("invalid", "repaired", "given_up"):  # unknown for earlier usage, hence 0
        op.add_column("spent", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))

"""Adds the process that wrote the graph embeddings of a space last."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("spaces", sa.Column("embedded_by", sa.String))

"""Adds the titles of conversations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.add_column("spaces", sa.Column("title", sa.Text))

"""Adds the user and the agent to whom a space belongs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for name in ("user", "agent"):
        op.add_column("spaces", sa.Column(name, sa.String))

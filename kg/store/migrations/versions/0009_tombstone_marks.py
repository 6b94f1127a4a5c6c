"""Adds marks of forgotten turns, by which exports that have them under other ids are recognised."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    # Turns that were forgotten before are recognised by their ids alone, since their content is not known any more.
    op.create_table(
        "tombstone_marks",
        sa.Column("space", sa.String, primary_key=True),
        sa.Column("mark", sa.String, primary_key=True),
        sa.Column("turn", sa.String, primary_key=True),
    )

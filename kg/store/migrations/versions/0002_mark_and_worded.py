"""Adds an application id to SQLite files, and a flag for the sources that gave a node its words."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from locigraph.kg.files import STORE_ID

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # Of earlier provenance nobody knows, and what may hold a turn's words goes with it.
    op.add_column("provenance", sa.Column("worded", sa.Boolean, nullable=False, server_default=sa.true()))
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"PRAGMA application_id = {STORE_ID}")

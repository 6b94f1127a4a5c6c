"""Adds an application id to SQLite files, and a flag for the source turns from which a node took its words."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from locigraph.kg.files import STORE_ID

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # For existing rows this is unknown; true is safe, since nodes that may hold a turn's words are erased with it.
    op.add_column("provenance", sa.Column("worded", sa.Boolean, nullable=False, server_default=sa.true()))
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"PRAGMA application_id = {STORE_ID}")

"""The mark in the header of an SQLite file that says whose it is."""

from __future__ import annotations

from alembic import op

from locigraph.kg.files import STORE_ID

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"PRAGMA application_id = {STORE_ID}")

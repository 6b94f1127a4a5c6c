"""Stores usage of language models in a table with rows by turn, instead of one JSON text for each space."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    spent = op.create_table(
        "spent",
        sa.Column("space", sa.String, sa.ForeignKey("spaces.space"), primary_key=True),
        sa.Column("turn_id", sa.String, primary_key=True),
        sa.Column("stage", sa.String, primary_key=True),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("read", sa.BigInteger, nullable=False),
        sa.Column("written", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.Float, nullable=False),
    )
    connection = op.get_bind()
    turns = sa.table("turns", sa.column("space"), sa.column("turn_id"))
    known = {(row.space, row.turn_id) for row in connection.execute(sa.select(turns))}
    rows: dict[tuple[str, str, str], dict[str, float]] = {}
    for name, value in connection.exec_driver_sql("SELECT name, value FROM settings WHERE name LIKE 'spent/%'"):
        space = name.removeprefix("spent/")
        for turn, stages in json.loads(value).items():
            for stage, each in stages.items():
                # Usage for turns that were forgotten meanwhile is kept without their ids.
                place = space, turn if (space, turn) in known else "", stage
                held = rows.setdefault(place, dict.fromkeys(("calls", "read", "written", "cost"), 0))
                for field in held:
                    held[field] += each[field]
    if rows:
        names = ("space", "turn_id", "stage")
        op.bulk_insert(spent, [{**dict(zip(names, place, strict=True)), **held} for place, held in rows.items()])
    op.execute("DELETE FROM settings WHERE name LIKE 'spent/%'")

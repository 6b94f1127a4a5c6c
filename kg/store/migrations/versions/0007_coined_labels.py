"""Stores coined relation labels by space, so that descriptions taken from a turn are not visible in other spaces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "coined_labels",
        sa.Column("space", sa.String, sa.ForeignKey("spaces.space"), primary_key=True),
        sa.Column("name", sa.String, sa.ForeignKey("relation_labels.name", ondelete="CASCADE"), primary_key=True),
        sa.Column("turn_key", key, sa.ForeignKey("turns.key", ondelete="CASCADE")),
        sa.Column("description", sa.Text, nullable=False),
        sa.Index("ix_coined_labels_turn_key", "turn_key"),
    )
    # It is unknown whose words the shared descriptions contain, so they are replaced for all spaces.
    coined = "family = 'RELATED_TO' AND name <> 'RELATED_TO'"
    op.execute(f"UPDATE relation_labels SET description = 'Any relation whose label was coined.' WHERE {coined}")
    op.execute(
        "INSERT INTO coined_labels (space, name, description) "
        "SELECT DISTINCT r.space, l.name, l.description FROM relations r JOIN relation_labels l ON l.name = r.label "
        f"WHERE {coined}"
    )

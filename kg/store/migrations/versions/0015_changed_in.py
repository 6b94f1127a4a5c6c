"""Adds at which revision of its space a node changed last, so that readers need not read all nodes again.

Indexes find the last turn of a space without reading all its turns.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("spaces", sa.Column("renewed_in", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("nodes", sa.Column("changed_in", sa.BigInteger, nullable=False, server_default="0"))
    op.create_index("ix_nodes_space_changed_in", "nodes", ["space", "changed_in"])
    op.drop_index("ix_turns_space_state", "turns")
    op.create_index("ix_turns_space_state_position", "turns", ["space", "state", "position"])
    op.create_index("ix_turns_space_position", "turns", ["space", "position"])
    op.create_index("ix_turns_space_spoken_at", "turns", ["space", "spoken_at"])

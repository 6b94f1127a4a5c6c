"""Schema migrations (Alembic), run when a store is opened."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from kg.errors import StoreVersionError


def upgrade(connection: Connection, *, url: str) -> None:
    """Bring the database of an open connection to the newest schema.

    Args:
        connection: Connection inside a transaction.
        url: Shown in errors.

    Raises:
        StoreVersionError: If a newer version of this software wrote the database.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    head = script.get_current_head()
    if current == head:
        return
    known = {revision.revision for revision in script.walk_revisions()}
    if current is not None and current not in known:
        raise StoreVersionError(
            f"store {url!r} has schema revision {current!r}, unknown to this version (newest known: {head!r}); "
            "upgrade locigraph or use another store"
        )
    config.attributes["connection"] = connection
    command.upgrade(config, "head")

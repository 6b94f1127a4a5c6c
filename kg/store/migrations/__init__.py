"""Schema migrations (Alembic), run when a store is opened."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from locigraph.kg.errors import StoreVersionError


def is_current(connection: Connection, *, url: str) -> bool:
    """Whether the database has the newest schema; ``url`` is shown in errors.

    Raises:
        StoreVersionError: If a newer version of this software wrote the database.
    """
    script = ScriptDirectory.from_config(_config())
    current = MigrationContext.configure(connection).get_current_revision()
    known = {revision.revision for revision in script.walk_revisions()}
    if current is not None and current not in known:
        raise StoreVersionError(
            f"store {url!r} has schema revision {current!r}, unknown to this version (newest known: "
            f"{script.get_current_head()!r}); upgrade locigraph or use another store"
        )
    return current == script.get_current_head()


def upgrade(connection: Connection, *, url: str) -> None:
    """Upgrade to the newest schema within the connection's transaction; raises the same error as ``is_current``."""
    if is_current(connection, url=url):
        return
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config

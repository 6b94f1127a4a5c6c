"""Inner products of a vector with many others, on the thread that asks for them.

NumPy divides a large product among threads, and those of OpenBLAS then wait for the next one without sleeping: for each
search in 4,000 vectors they took 9 ms of a processor, the product itself .25 ms (docs/experiments/history.md,
2026-11-30). Parts that are small enough are not divided.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_NUMBERS = 400_000  # of a matrix; OpenBLAS divides products from 460,800 on


def with_rows(rows: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """Inner products, float32 [count], of a vector, [dim], with rows, [count, dim]."""
    found = np.empty(len(rows), dtype=np.float32)
    step = max(1, _NUMBERS // max(1, rows.shape[1]))
    for start in range(0, len(rows), step):
        found[start : start + step] = rows[start : start + step] @ vector
    return found


def with_columns(columns: NDArray[np.float32], vector: NDArray[np.float32], *, block: int) -> NDArray[np.float32]:
    """Inner products, float32 [count], of a vector, [dim], with columns, [dim, count]; where it is 0, none is read.

    Args:
        columns: The vectors, a dimension of all of them side by side.
        vector: The other one.
        block: Columns are divided at multiples of this alone, since processors round otherwise at the ends of parts.
    """
    count = columns.shape[1]
    total: NDArray[np.float32] = np.zeros(count, dtype=np.float32)
    used = np.flatnonzero(vector)
    for run in np.split(used, np.flatnonzero(np.diff(used) > 1) + 1):
        if not len(run):
            continue
        dims = slice(run[0], run[-1] + 1)
        step = max(1, _NUMBERS // len(run) // block) * block
        for start in range(0, count, step):
            part = slice(start, start + step)
            total[part] += vector[dims] @ columns[dims, part]
    return total

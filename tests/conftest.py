"""Settings and fixtures of all tests."""

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.databases import KINDS, Place, places

# Graphs have two dozen nodes: threads would only wait for each other, and spin if several test workers run. NumPy and
# PyTorch read this when they are imported, which the process that only hands out tests to workers never does.
os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
# Times on a busy machine say nothing about the code; benchmarks measure them.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Stores and indexes wait for the disk at each commit, which takes a third of the time of a run. So temporary files are
# kept in memory where that is possible; what is tested, crashes of processes among it, does not depend on the disk.
_MEMORY = Path("/dev/shm")
_ROOM = 4 * 2**30  # bytes; a run leaves a few hundred MB
if (
    "TMPDIR" not in os.environ
    and os.access(_MEMORY, os.W_OK | os.X_OK)
    and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC  # tests run programs that they write
    and shutil.disk_usage(_MEMORY).free > _ROOM
):
    os.environ["TMPDIR"] = str(_MEMORY)  # for the processes that tests start, too
    tempfile.tempdir = None  # read again


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A text cache for this session, so that tests do not write into the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files of the longest tests, since whoever runs one last keeps the others waiting."""

    def seconds(item: pytest.Item) -> float:
        marker = item.get_closest_marker("long")
        return 0.0 if marker is None else float(marker.kwargs.get("seconds", 0))

    items.sort(key=seconds, reverse=True)


def pytest_collection_finish() -> None:
    """Leave all that was imported out of garbage collections, which would take a tenth of the time of the tests."""
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with a ``store_at`` on every kind of database, and those marked ``sqlite`` on SQLite alone."""
    if "store_at" in metafunc.fixturenames:
        is_particular = metafunc.definition.get_closest_marker("sqlite") is not None
        metafunc.parametrize("store_at", KINDS[:1] if is_particular else KINDS, indirect=True)


@pytest.fixture
def store_at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Places for stores; see ``tests.databases``."""
    yield from places(request.param, tmp_path)

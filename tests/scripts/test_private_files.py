"""What people said is on the disk for its owner alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from locigraph import Memory
from locigraph.kg.files import make_private, make_private_folder, replace_file
from tests.faults.private import readable_by_others
from tests.scripts.test_memory import SALE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_memory_of_the_python_api_is_private(place: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir(mode=0o755)
    with Memory.open(folder / "memory.sqlite", checkpoint=str(place / "checkpoint")) as memory:
        memory.add(**SALE)
        assert memory.recall("bike", space="ana")
    assert (folder / "memory.sqlite").stat().st_mode & 0o777 == 0o600
    assert readable_by_others(folder) == []


_PROBE = """
import os
from locigraph import __main__
from locigraph.scripts import cli
cli.main = lambda: print(oct(os.umask(0)))
__main__.main()
"""


def test_commands_write_for_their_owner_alone() -> None:
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0o77"


def test_files_that_are_replaced_and_made_are_private(tmp_path: Path) -> None:
    replace_file(tmp_path / "results.json", "{}")
    make_private(tmp_path / "store.sqlite")
    make_private_folder(tmp_path / "one" / "two")
    modes = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.rglob("*")}
    assert modes == {"results.json": 0o600, "store.sqlite": 0o600, "one": 0o700, "two": 0o700}
    (tmp_path / "kept").write_text("mine")
    (tmp_path / "kept").chmod(0o644)
    make_private(tmp_path / "kept")  # an existing file stays as it is
    assert ((tmp_path / "kept").read_text(), (tmp_path / "kept").stat().st_mode & 0o777) == ("mine", 0o644)

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from locigraph.kg.temporary import PREFIX, held_folder

ROOT = Path(__file__).parents[2]
_HOLDS = "import sys; from locigraph.kg.temporary import held_folder; print(held_folder(sys.argv[1])[0], flush=True)"


def other_process(place: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that holds a folder until its input ends."""
    words = [sys.executable, "-c", f"{_HOLDS}; sys.stdin.read()", str(place)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    (killed, left), (living, held) = other_process(tmp_path), other_process(tmp_path)
    (left / "copy.db").mkdir()
    (left / "copy.db" / "rows").write_text("what a reader has copied")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    own, remove = held_folder(str(tmp_path))
    assert set(tmp_path.iterdir()) == {held, Path(own)}
    remove()
    living.communicate("")
    assert not Path(own).exists()


def test_what_is_named_otherwise_or_is_a_link_is_left(tmp_path: Path) -> None:
    (tmp_path / "locigraph-notes").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{PREFIX}file").write_text("")
    _, remove = held_folder(str(tmp_path))
    remove()
    assert {path.name for path in tmp_path.iterdir()} == {
        "locigraph-notes", "elsewhere", f"{PREFIX}link", f"{PREFIX}file"
    }  # fmt: skip


def test_a_folder_that_another_took_before_it_was_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    mkdtemp: Callable[..., str] = tempfile.mkdtemp

    def taken(**options: str) -> str:
        folder = mkdtemp(**options)
        if not made:
            os.rmdir(folder)
        made.append(folder)
        return folder

    monkeypatch.setattr(tempfile, "mkdtemp", taken)
    folder, remove = held_folder(str(tmp_path))
    assert [*made] == [made[0], folder]
    assert Path(folder).is_dir()
    remove()

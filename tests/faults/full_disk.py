"""Full disk: a command runs on a disk that fills up; once there is room, the same command must complete.

The disk is a tmpfs of limited size, which this process must be allowed to mount.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from locigraph.scripts import cli
from tests.faults import cuts, damage, workbench
from tests.faults.children import ChildError, as_process, in_child

#: Sequences of commands, of which the last meets the full disk.
_STAGES = (
    ("build",),
    ("build", "refresh"),
    ("build", "refresh", "append"),
    ("build", "append", "forget"),
    ("build", "append", "forget_space"),
    ("build", "refresh", "rebuild"),
)
_TRAININGS = 0.1  # share of the tries with a training, which takes seconds
_ROOMY = "512m"
# What a training reports when the disk is full, partly in PyTorch's words.
_NO_ROOM = re.compile("No space left|PytorchStreamWriter failed")
_PAGE = 4_096
_FOLDERS = 2 * _PAGE  # what the file system itself needs
# Room that a command needs temporarily, relative to what it leaves: SQLite's log, a new index beside the old one.
_MORE = 1.5


@cache
def obstacle() -> str | None:
    """Why no disk can be mounted here; None if one can."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with _disk(Path(folder), _ROOMY):
                return None
        except (OSError, subprocess.CalledProcessError) as error:
            said = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
            return f"no tmpfs can be mounted ({' '.join(str(said).split())})"


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with a command and the room on its disk; none if no disk can be mounted."""
    reason = obstacle()
    if reason is not None:
        print(f"full disk: {reason}", file=sys.stderr)
        return
    randomness = random.Random(seed)
    grown: dict[tuple[str, ...], tuple[cuts.Stage, int]] = {}
    trained: tuple[str, int] | None = None
    while True:
        if randomness.random() < _TRAININGS:
            trained = trained or _training(folder / "trained")
            yield partial(_check_training, folder / "disk", *trained, randomness.random())
            continue
        commands = randomness.choice(_STAGES)
        if commands not in grown:
            grown[commands] = _grown(folder, commands)
        stage, growth = grown[commands]
        yield partial(_check, folder / "disk", stage, int(randomness.random() * _MORE * growth))


@contextmanager
def _disk(place: Path, size: str) -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True, text=True)


def _size(folder: Path) -> int:
    """Size in bytes of the pages that a folder takes on a tmpfs."""
    return sum(-(-path.stat().st_size // _PAGE) * _PAGE if path.is_file() else 0 for path in folder.rglob("*"))


def _grown(folder: Path, commands: tuple[str, ...]) -> tuple[cuts.Stage, int]:
    """A command, and by how many bytes its folder grows, but at least a quarter of the folder's size afterwards."""
    stage = cuts.stage_of(folder, commands[:-1], commands[-1])
    with _disk(folder / "disk", _ROOMY) as disk:
        place = Path(shutil.copytree(stage.start, disk / "try"))
        in_child(lambda: workbench.run_all(place, stage.command))
        after = _size(place)
        return stage, max(after - _size(stage.start), after // 4)


def _check(folder: Path, stage: cuts.Stage, room: int) -> None:
    what = f"{stage.command} {stage.start.name}, with room for {room} bytes"
    with _disk(folder, str(_size(stage.start) + _FOLDERS + room)) as disk:
        place = Path(shutil.copytree(stage.start, disk / "try"))
        workbench.commands(place)  # sets the text encoder
        words = workbench.words(place)[stage.command]
        code, said = as_process(lambda: cli.main(words), folder.with_name("said"))
        said = cuts.without_bars(said)
        is_clear = said.startswith("locigraph: ") and "\n" not in said and "make room" in said
        assert code == 0 or (code == 2 and is_clear), f"{what}: {code} {said}"
        _mount("-o", f"remount,size={_ROOMY}", str(disk))
        try:
            in_child(lambda: cuts.again(place, stage, is_index_damaged=False))
        except ChildError as error:
            raise AssertionError(f"{what}: {said}; {error}") from error


def _training(folder: Path) -> tuple[str, int]:
    """Version of the checkpoint of an undisturbed training, and the number of bytes that it writes."""
    folder.mkdir()
    return str(damage.trained(folder)), _size(folder)


def _check_training(folder: Path, version: str, written: int, share: float) -> None:
    room = int(share * _MORE * written)
    with _disk(folder, str(_FOLDERS + room)) as disk:
        fault = ""
        try:
            damage.trained(disk)
        except ChildError as error:
            fault = str(error)
        assert not fault or _NO_ROOM.search(fault), fault
        _mount("-o", f"remount,size={_ROOMY}", str(disk))
        again = damage.trained(disk)
        assert again == version, f"training with room for {room} bytes: {again} instead of {version}"

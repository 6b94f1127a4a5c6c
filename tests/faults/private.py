"""Files of a memory, whatever the process would allow others: each is readable by its owner alone."""

from __future__ import annotations

import os
import random
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from locigraph import __main__ as program
from locigraph.memory import Memory
from tests.faults import workbench
from tests.faults.children import in_child

_MASKS = (0o000, 0o002, 0o022, 0o027, 0o077)


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with what the process allows others and a few commands."""
    randomness = random.Random(seed)
    while True:
        mask = randomness.choice(_MASKS)
        names = ["build", *(randomness.choice(_NAMES) for _ in range(randomness.randint(1, 4)))]
        yield partial(_check, folder / "try", mask, randomness.choice([names, ["python"], ["python", *names]]))


def readable_by_others(folder: Path) -> list[str]:
    """Files and folders below a folder that others can reach and read."""
    found = []
    for each in sorted(folder.rglob("*")):
        above = [parent for parent in each.parents if folder in parent.parents]
        is_behind = any(not parent.stat().st_mode & 0o011 for parent in above)
        if not is_behind and each.stat().st_mode & 0o077:
            found.append(f"{each.relative_to(folder)} {stat.filemode(each.stat().st_mode)}")
    return found


def _check(place: Path, mask: int, names: list[str]) -> None:
    shutil.rmtree(place, ignore_errors=True)
    found = in_child(lambda: _left_open(place, mask, names))
    assert not found, f"umask {mask:03o}, {', '.join(names)}: others can read {found}"


def _left_open(place: Path, mask: int, names: list[str]) -> list[str]:
    workbench.prepare(place)
    given = set(readable_by_others(place))  # what users made is their own affair
    os.umask(mask)
    workbench.commands(place)  # sets the text encoder
    store = f"--store={place / 'graph.sqlite'}"
    lines = {**workbench.words(place), "export": ["export", store, f"--output={place / 'export.jsonl'}"]}
    for name in names:
        if name == "python":
            _use(place)
            continue
        sys.argv = ["locigraph", *lines[name]]
        with workbench.quiet(), suppress(SystemExit):  # a command may have nothing to do
            program.main()
    return [each for each in readable_by_others(place) if each not in given]


def _use(place: Path) -> None:
    with Memory.open(str(place / "graph.sqlite"), checkpoint=str(place / "checkpoint")) as memory:
        memory.add(space="ann", session="s", speaker="Ann", text="I sold the blue boat to Carla.")
        memory.recall("Who bought the boat?", space="ann")


_NAMES = ("append", "forget", "rebuild", "classify", "resolve", "reflect", "link", "refresh", "export", "python")

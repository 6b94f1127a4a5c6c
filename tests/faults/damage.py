"""Damage: a file is emptied, truncated or has a byte flipped; the answer is one clear line or the right result."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults import workbench
from tests.faults.children import ChildError, in_child

_WAYS = ("emptied", "truncated", "flipped")
_QUESTIONS = ("recall", "recall_bm25", "recall_v2")
_CHANGING = ("append", "add", "forget")
_COMMANDS = (*_QUESTIONS, *_CHANGING, "verify", "build", "refresh")


def hurt(file: Path, way: str, place: float) -> None:
    """Damage a file, at a share of its length."""
    content = bytearray(file.read_bytes())
    at = int(place * len(content))
    if way == "flipped" and content:
        content[at] ^= 0xFF
    file.write_bytes({"emptied": b"", "truncated": bytes(content[:at]), "flipped": bytes(content)}[way])


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Tries without end: a file, a damage, a command."""
    randomness = random.Random(seed)
    whole = folder / "whole"

    def made() -> dict[str, tuple[int, str]]:
        workbench.prepare(whole)
        workbench.run_all(whole, "build", "refresh")
        return {question: _answer(whole, question) for question in _QUESTIONS}

    wanted = in_child(made)
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    # Corpora are damaged by the kind "inputs"; SQLite's own files beside a database go when it is closed.
    files = [file for file in files if not file.name.endswith((".jsonl", "-shm", "-wal"))]
    while True:
        file, way, command = randomness.choice(files), randomness.choice(_WAYS), randomness.choice(_COMMANDS)
        yield partial(_check, folder, _Damage(file, way, randomness.random(), command), wanted)


@dataclass(frozen=True)
class _Damage:
    """What is done to a file, at a share of its length, and the command that meets it."""

    file: Path
    way: str
    place: float
    command: str

    def __str__(self) -> str:
        return f"{self.file} {self.way} at {self.place:.3f}, then {self.command}"


def _answer(place: Path, command: str) -> tuple[int, str]:
    code, said = workbench.run(place, command)
    return code, said.partition(": query encoded")[0].rpartition("\n")[0] if code == 0 else said


def _texts(place: Path) -> list[Any]:
    with closing(sqlite3.connect(place / "graph.sqlite")) as connection:
        said = connection.execute("SELECT space, turn_id, text FROM turns ORDER BY 1, 2").fetchall()
        return said + connection.execute("SELECT space, id, description FROM nodes ORDER BY 1, 2").fetchall()


def _check(folder: Path, damage: _Damage, wanted: dict[str, tuple[int, str]]) -> None:
    whole, hurt_one = folder / "whole", folder / "try"
    shutil.rmtree(hurt_one, ignore_errors=True)
    shutil.copytree(whole, hurt_one)
    hurt(hurt_one / damage.file, damage.way, damage.place)
    try:
        in_child(lambda: _survives(whole, hurt_one, damage, wanted))
    except ChildError as error:
        raise AssertionError(f"{damage}: {error}") from error


def _survives(whole: Path, place: Path, damage: _Damage, wanted: dict[str, tuple[int, str]]) -> None:
    command, part = damage.command, damage.file.parts[0]
    code, said = _answer(place, command)
    assert code in (0, 1, 2)
    assert code != 2 or "\n" not in said, said
    if part == "graph.index.db":
        if code == 0 and command in wanted:
            assert said == wanted[command][1], "another answer"
        assert command != "forget" or code == 0, said
        workbench.run_all(place, "rebuild", "refresh", "verify")  # the cure
        if command not in _CHANGING:
            for question, answer in wanted.items():
                assert _answer(place, question) == answer, f"{question} after the cure"
    elif part == "graph.sqlite":
        if command not in (*_CHANGING, "build") and _answer(place, "verify")[0] == 0:
            assert _texts(place) == _texts(whole), "a changed text that verify calls clean"
    elif part.startswith("cache"):
        for log in place.glob("cache*"):
            log.unlink()
        if command not in _CHANGING:
            assert _answer(place, "recall") == wanted["recall"]
    elif command in ("refresh", "recall_v2") and part == "checkpoint":
        assert code == 2 or _answer(place, "recall_v2") == wanted["recall_v2"]

"""Damage: a file is emptied, truncated or has a byte flipped; the answer is one clear line or the right result."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.faults import workbench
from tests.faults.children import in_child

_WAYS = ("emptied", "truncated", "flipped")
_COMMANDS = ("verify", "recall", "recall_bm25", "recall_v2", "build", "forget", "refresh")


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
    in_child(lambda: workbench.prepare(whole))
    for command in ("build", "refresh"):
        code, said = in_child(lambda command=command: workbench.run(whole, command))  # type: ignore[misc]
        assert code == 0, said
    wanted = {command: _answer(whole, command) for command in ("recall", "recall_bm25", "recall_v2")}
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    files = [file for file in files if file.name != "corpus.jsonl"]
    while True:
        file, way, command = randomness.choice(files), randomness.choice(_WAYS), randomness.choice(_COMMANDS)
        place = randomness.random()
        yield lambda f=file, w=way, c=command, p=place: _check(folder, f, w, c, p, wanted)  # type: ignore[misc]


def _answer(place: Path, command: str) -> tuple[int, str]:
    code, said = in_child(lambda: workbench.run(place, command))
    return code, said.partition(": query encoded")[0].rpartition("\n")[0] if code == 0 else said


def _texts(place: Path) -> list[Any]:
    with closing(sqlite3.connect(place / "graph.sqlite")) as connection:
        said = connection.execute("SELECT space, turn_id, text FROM turns ORDER BY 1, 2").fetchall()
        return said + connection.execute("SELECT space, id, description FROM nodes ORDER BY 1, 2").fetchall()


def _check(folder: Path, file: Path, way: str, command: str, place: float, wanted: dict[str, tuple[int, str]]) -> None:
    what = f"{file} {way} at {place:.3f}, then {command}"
    whole, hurt_one = folder / "whole", folder / "try"
    shutil.rmtree(hurt_one, ignore_errors=True)
    shutil.copytree(whole, hurt_one)
    hurt(hurt_one / file, way, place)
    code, said = _answer(hurt_one, command)
    assert code in (0, 1, 2), what
    assert code != 2 or "\n" not in said, f"{what}: {said}"
    part = file.parts[0]
    if part == "graph.index.db":
        if code == 0 and command in wanted:
            assert said == wanted[command][1], f"{what}: another answer"
        assert command != "forget" or code == 0, f"{what}: {said}"
        for cure in ("rebuild", "refresh", "verify"):
            assert (found := _answer(hurt_one, cure))[0] == 0, f"{what}, cure {cure}: {found[1]}"
        if command != "forget":
            for question, answer in wanted.items():
                assert _answer(hurt_one, question) == answer, f"{what}: {question} after the cure"
    elif part == "graph.sqlite":
        if command not in ("forget", "build") and _answer(hurt_one, "verify")[0] == 0:
            assert _texts(hurt_one) == _texts(whole), f"{what}: a changed text that verify calls clean"
    elif part.startswith("cache"):
        for log in hurt_one.glob("cache*"):
            log.unlink()
        if command != "forget":
            assert _answer(hurt_one, "recall") == wanted["recall"], what
    elif command in ("refresh", "recall_v2") and part == "checkpoint":
        assert code == 2 or _answer(hurt_one, "recall_v2") == wanted["recall_v2"], what

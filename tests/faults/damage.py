"""Damage: a file is emptied, truncated, or has a byte or bit flipped; commands must report this in one line, or work.

The files are those of a memory with its index, text cache and checkpoint, of an adapter, of a cassette of language
models, and of a training that was stopped. If the line says what to do, that is tried as well.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.text import text_adapter
from locigraph.retrieval.text.text_adapter import read_adapter
from tests.faults import workbench
from tests.faults.children import STOPPED, ChildError, in_child

_WAYS = ("emptied", "truncated", "flipped", "bit flipped")
_QUESTIONS = ("recall", "recall_bm25", "recall_v2")
_CHANGING = ("append", "add", "forget")
_COMMANDS = (*_QUESTIONS, *_CHANGING, "verify", "build", "refresh")
#: Those that may copy vectors of the text cache into the store.
_WRITING = (*_CHANGING, "build", "refresh")
#: Folders beside the memory. A training takes seconds, so only a small share of the tries damages one.
_ADAPTER, _MODELS, _TRAINING = "adapter", "models", "training"
_TRAININGS = 0.03


def hurt(file: Path, way: str, place: float) -> None:
    """Damage a file; ``place`` is the position as a share of its length."""
    content = bytearray(file.read_bytes())
    at = int(place * len(content))
    if way == "flipped" and content:
        content[at] ^= 0xFF
    elif way == "bit flipped" and content:
        content[at] ^= 1 << at % 8
    file.write_bytes({"emptied": b"", "truncated": bytes(content[:at])}.get(way, bytes(content)))


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, each with a file, a kind of damage and a command."""
    randomness = random.Random(seed)
    whole, stopped = folder / "whole", folder / "stopped"
    wanted = in_child(partial(_made, whole))
    vectors: dict[str, Any] = {}  # by command, made when it is first tried
    files = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file() and path.stat().st_size)
    # Corpora are damaged by the kind "inputs"; SQLite's own files beside a database disappear when it is closed.
    files = [file for file in files if not file.name.endswith((".jsonl", "-shm", "-wal"))]
    files = [file for file in files if file.parts[0] != _MODELS or file.name == "replies.sqlite"]
    while True:
        way, place = randomness.choice(_WAYS), randomness.random()
        if randomness.random() < _TRAININGS:
            if not stopped.exists():
                version = _stopped_training(stopped)
            points = sorted(path.relative_to(stopped) for path in stopped.rglob("*.ckpt"))
            yield partial(_check_training, folder, _Damage(randomness.choice(points), way, place, "train"), version)
        else:
            damage = _Damage(randomness.choice(files), way, place, randomness.choice(_COMMANDS))
            if damage.command in _WRITING and damage.command not in vectors:
                made = in_child(partial(_vectors_after, folder / "changed", whole, damage.command))
                vectors[damage.command] = made
            yield partial(_check, folder, damage, wanted, vectors)


def _made(whole: Path) -> dict[str, tuple[int, str]]:
    """Create all files that are damaged later; returns the answers to the questions."""
    workbench.prepare(whole)
    workbench.run_all(whole, "build", "refresh")
    workbench.prepare(whole / _MODELS)
    workbench.run_all(whole / _MODELS, "build_by_models")
    (whole / _MODELS / "graph.sqlite").unlink()
    shutil.rmtree(whole / _MODELS / "graph.index.db")
    _make_adapter(whole / _ADAPTER)
    return {question: _answer(whole, question) for question in _QUESTIONS}


def _vectors_after(place: Path, whole: Path, command: str) -> Any:
    """The vectors of a store after a command on a copy of the undamaged memory."""
    shutil.copytree(whole, place)
    workbench.run_all(place, command)
    found = workbench.state(place)["vectors"]
    shutil.rmtree(place)
    return found


def _make_adapter(folder: Path) -> None:
    """Write the folder of an adapter, without the model that it would adapt."""
    folder.mkdir()
    (folder / text_adapter._CONFIG).write_text(json.dumps({"r": 2, "target_modules": ["query"]}))
    save_file({"query.lora_A.weight": np.ones((2, 16), dtype=np.float32)}, folder / text_adapter._WEIGHTS)
    SeenTexts(["What was sold?"]).save(folder)
    manifest = {"base": "fake", "version": text_adapter._version(folder)}
    details = {"identity": {"train": ["elsewhere"], "validation": []}}
    (folder / text_adapter._MANIFEST).write_text(json.dumps(manifest | {"details": details}))


def _stopped_training(stopped: Path) -> str:
    """Create the folder of a training that was stopped after three epochs; returns the version it would end with."""
    whole = stopped.with_name("trained")
    whole.mkdir()
    version = trained(whole)
    stopped.mkdir()
    assert trained(stopped, kill_after=3) == STOPPED
    return str(version)


def trained(folder: Path, *, kill_after: int = 0) -> Any:
    """Train in a folder; returns the version of the checkpoint, or ``STOPPED`` if it was killed after some epochs."""
    interrupted = import_module("tests.training.interrupted")  # takes seconds to import

    def train() -> Any:
        with workbench.quiet():
            return interrupted.train(folder, kill_after)

    return in_child(train)


def _check_training(folder: Path, damage: _Damage, version: str) -> None:
    hurt_one = folder / "try"
    shutil.rmtree(hurt_one, ignore_errors=True)
    shutil.copytree(folder / "stopped", hurt_one)
    hurt(hurt_one / damage.file, damage.way, damage.place)
    again = trained(hurt_one)
    assert again == version, f"{damage}: {again} instead of {version}"


@dataclass(frozen=True)
class _Damage:
    """What is done to a file, at a share of its length, and the command that is run afterwards."""

    file: Path
    way: str
    place: float
    command: str

    def __str__(self) -> str:
        return f"{self.file} {self.way} at {self.place:.3f}, then {self.command}"


#: The line of a recall that says how long it took, and what follows it.
_TIMES = re.compile(r"^\w+: (query encoded|searched) in .*\Z", re.MULTILINE | re.DOTALL)


def _answer(place: Path, command: str) -> tuple[int, str]:
    code, said = workbench.run(place, command)
    return code, _TIMES.sub("", said).rstrip("\n") if code == 0 else said


def _texts(place: Path) -> list[Any]:
    with closing(sqlite3.connect(place / "graph.sqlite")) as connection:
        said = connection.execute("SELECT space, turn_id, text FROM turns ORDER BY 1, 2").fetchall()
        return said + connection.execute("SELECT space, id, description FROM nodes ORDER BY 1, 2").fetchall()


def _check(folder: Path, damage: _Damage, wanted: dict[str, tuple[int, str]], vectors: dict[str, Any]) -> None:
    whole, hurt_one = folder / "whole", folder / "try"
    shutil.rmtree(hurt_one, ignore_errors=True)
    shutil.copytree(whole, hurt_one)
    hurt(hurt_one / damage.file, damage.way, damage.place)
    try:
        in_child(lambda: _survives(whole, hurt_one, damage, wanted, vectors))
    except ChildError as error:
        raise AssertionError(f"{damage}: {error}") from error


def _survives(
    whole: Path, place: Path, damage: _Damage, wanted: dict[str, tuple[int, str]], vectors: dict[str, Any]
) -> None:
    command, part = damage.command, damage.file.parts[0]
    if part in (_ADAPTER, _MODELS):
        {_ADAPTER: _adapter_survives, _MODELS: _cassette_survives}[part](whole / part, place / part)
        return
    code, said = _answer(place, command)
    assert code in (0, 1, 2)
    assert code != 2 or "\n" not in said, said
    if part == "graph.index.db":
        if code == 0 and command in wanted:  # a reader that finds rows missing searches without the index, and says so
            found, _, _ = said.partition("\nsearched without the index")
            assert found == wanted[command][1], "another answer"
        assert command != "forget" or code == 0, said
        workbench.run_all(place, "rebuild", "refresh", "verify")  # what the error says to do
        if command not in _CHANGING:
            for question, answer in wanted.items():
                assert _answer(place, question) == answer, (
                    f"{question} after the repair: {_answer(place, question)} and not {answer}"
                )
    elif part == "graph.sqlite":
        if command not in (*_CHANGING, "build") and _answer(place, "verify")[0] == 0:
            assert _texts(place) == _texts(whole), "a changed text that verify calls clean"
        if command not in ("build", "refresh") and _answer(place, "verify")[0] == 2:
            _cured(whole, place, wanted, from_copy=damage.place < 0.5)
    elif part.startswith("cache"):
        if code == 0 and command in wanted:
            assert said == wanted[command][1], "another answer"
        if code == 0 and command in vectors:
            assert workbench.state(place)["vectors"] == vectors[command], "other vectors in the store"
        for log in place.glob("cache*"):
            log.unlink()
        if command not in _CHANGING:
            assert _answer(place, "recall") == wanted["recall"]
    elif command in ("refresh", "recall_v2") and part == "checkpoint":
        assert code == 2 or _answer(place, "recall_v2") == wanted["recall_v2"]


def _cured(whole: Path, place: Path, wanted: dict[str, tuple[int, str]], *, from_copy: bool) -> None:
    """Restore a damaged store from a copy, or build it again, as its error says."""
    for file in place.glob("graph.sqlite*"):
        file.unlink()
    if from_copy:
        for file in whole.glob("graph.sqlite*"):
            shutil.copy(file, place)
    else:
        workbench.run_all(place, "build")
    workbench.run_all(place, "rebuild", "refresh", "verify")
    for question, answer in wanted.items():
        assert _answer(place, question) == answer, f"{question} after the repair of the store"


def _adapter_survives(whole: Path, place: Path) -> None:
    found, fault = None, ""
    try:
        found = read_adapter(place, base="fake")
    except TextEncoderError as error:
        fault = str(error)
    assert "\n" not in fault, fault
    if found is None:
        return
    sound = read_adapter(whole, base="fake")
    assert (found.version, found.spaces) == (sound.version, sound.spaces)
    assert found.seen is not None
    assert "What was sold?" in found.seen or len(found.seen) == 1  # a changed hash: no file records what it should be


def _cassette_survives(whole: Path, place: Path) -> None:
    """A build sends the requests again that a damaged cassette has lost, or says which file to replace."""
    code, said = workbench.run(place, "build_by_models")
    assert code in (0, 1, 2)
    assert code != 2 or ("\n" not in said and "replies.sqlite" in said), said
    if code == 2:
        for file in place.glob("replies.sqlite*"):
            file.unlink()
        workbench.run_all(place, "build_by_models", "verify")

"""Trains on planted spaces, or refreshes them, in processes that kill themselves with SIGKILL on the way.

``python -m tests.training.interrupted`` reads calls from its input, a JSON list on each line, and forks for each of
them, so that what takes seconds to import is imported once. It answers with what the call came to.

["train", FOLDER, EPOCHS]       killed after so many epochs (0: never)
["refresh", FOLDER, VIEWS]      killed after so many views are written (0: never)
["train_from", FOLDER, SOURCES] trained by the packages below another folder
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.views import View, Views
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.index.milvus_collection import Collection
from locigraph.training import lightning_run
from locigraph.training.embedding_refresh import refresh
from locigraph.training.graph_training import train_checkpoint
from locigraph.training.identity import TrainingRun
from locigraph.training.lightning_run import SealedCheckpoint
from locigraph.training.snapshots import TrainingSet
from tests.fakes import FakeEncoder
from tests.fakes_graph import CPU, TEXT_DIM, planted_space, small_checkpoint, small_settings
from tests.faults.children import in_child

SPACES = {space.space: (space, questions) for space, questions in map(planted_space, range(1, 5))}


def die() -> None:
    """As a power cut would."""
    os.kill(os.getpid(), signal.SIGKILL)


def cut_after_two_epochs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the power fail after two epochs of the next training; returns the epochs that were completed, as they are."""
    epochs: list[int] = []

    class Cut(SealedCheckpoint):
        def save_checkpoint(self, checkpoint: dict[str, Any], *arguments: Any, **options: Any) -> None:
            super().save_checkpoint(checkpoint, *arguments, **options)
            epochs.append(checkpoint["epoch"])
            if epochs == [0, 1]:
                raise RuntimeError("power cut")

    monkeypatch.setattr(lightning_run, "SealedCheckpoint", Cut)
    return epochs


def train(folder: Path, kill_after: int) -> str:
    """Version of the checkpoint that a whole training, pre-training included, ends with."""
    epochs = 0

    class Mortal(SealedCheckpoint):
        def save_checkpoint(self, *arguments: Any, **options: Any) -> None:
            nonlocal epochs
            super().save_checkpoint(*arguments, **options)
            epochs += 1
            if epochs == kill_after:
                die()

    vars(lightning_run)["SealedCheckpoint"] = Mortal  # this process is the test's own
    data = TrainingSet(
        tuple(q for _, questions in SPACES.values() for q in questions),
        ("planted1", "planted2", "planted3"),
        ("planted4",),
        Views(lambda space, as_of: SPACES[space][0], {}),
    )
    settings, run = small_settings(pretrain=2, finetune=3), TrainingRun(folder, CPU, seed=0, details={})
    made = train_checkpoint([data], settings, run, encoder=FakeEncoder(TEXT_DIM))
    return made.version


def refresh_all(folder: Path, kill_after: int) -> str:
    """Collection that the alias points at, with its number of rows and how many were written by this run."""
    written = 0
    upsert = Collection.upsert

    def mortal(self: Collection, *arguments: Any, **options: Any) -> None:
        nonlocal written
        upsert(self, *arguments, **options)
        written += 1
        if written == kill_after:
            die()

    Collection.upsert = mortal  # type: ignore[method-assign]  # this process is the test's own

    def load(view: View) -> Snapshot:
        return SPACES[view.space][0]

    with MilvusIndex(str(folder / "index.db")) as index:
        done = refresh(index, small_checkpoint(), [View(space) for space in SPACES], load, progress=None)
        return f"{done.collection} {index.open(done.collection).count()} {done.written}"


def train_from(folder: Path, sources: str) -> list[str]:
    """Where the packages lie that were imported anew, and the version of their checkpoint."""
    for name in list(sys.modules):
        if name.split(".")[0] in ("locigraph", "tests"):
            del sys.modules[name]
    sys.path.insert(0, sources)
    again = importlib.import_module("tests.training.interrupted")
    return [str(importlib.import_module("locigraph.gnn").__file__), again.train(folder, 0)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs: dict[str, Any] = {"train": train, "refresh": refresh_all, "train_from": train_from}
    for line in sys.stdin:
        job, where, argument = json.loads(line)
        print(json.dumps(in_child(partial(jobs[job], Path(where), argument))), flush=True)

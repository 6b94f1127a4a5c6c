"""Trains on planted spaces by several processes: ``python -m tests.training.devices FOLDER OPTIONS``.

Lightning starts the other processes with the same command. OPTIONS is a JSON object: ``devices``, ``spaces_per_step``,
``spaces``, ``precision``, and ``kill``, the number of the process that kills itself in the second epoch. The first
process prints the version of the checkpoint and the mean loss of each epoch.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from locigraph.kg.views import Views
from locigraph.training import graph_training
from locigraph.training.graph_training import train_checkpoint
from locigraph.training.identity import TrainingRun
from locigraph.training.lightning_run import is_first_process
from locigraph.training.snapshots import TrainingSet
from tests.fakes import FakeEncoder
from tests.fakes_graph import CPU, TEXT_DIM, planted_space, small_settings

EPOCHS = 3


class Mortal(graph_training.GraphTraining):
    """Kills its process in the second epoch, if that has the given number."""

    kill: int | None = None

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if self.kill == self.global_rank and self.current_epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().training_step(batch, batch_idx)


def main(folder: Path, options: dict[str, Any]) -> None:
    Mortal.kill = options.get("kill")
    vars(graph_training)["GraphTraining"] = Mortal  # this process is the test's own
    numbers = range(1, options["spaces"] + 2)
    spaces = {space.space: (space, questions) for space, questions in map(planted_space, numbers)}
    data = TrainingSet(
        tuple(q for _, questions in spaces.values() for q in questions),
        tuple(spaces)[:-1],
        tuple(spaces)[-1:],
        Views(lambda space, as_of: spaces[space][0], {}),
    )
    settings = small_settings(finetune=EPOCHS)
    settings = replace(
        settings,
        training=replace(settings.training, spaces_per_step=options.get("spaces_per_step", 1), patience=EPOCHS),
    )
    trainer = replace(CPU, devices=options["devices"], precision=options.get("precision", "32-true"), csv_log=True)
    made = train_checkpoint(
        [data], settings, TrainingRun(folder, trainer, seed=0, details={}), encoder=FakeEncoder(TEXT_DIM)
    )
    if is_first_process():
        (log,) = folder.rglob("metrics.csv")
        with log.open() as file:
            losses = [float(row["train/ranking"]) for row in csv.DictReader(file) if row.get("train/ranking")]
        print(json.dumps({"version": made.version, "losses": losses, **made.details["stages"]["finetune"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))

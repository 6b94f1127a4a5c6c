"""Three planted spaces with questions, as a corpus to train on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from locigraph.kg.views import Views
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.graph_training import train_checkpoint
from locigraph.training.identity import RunIdentity, TrainingRun
from locigraph.training.snapshots import TrainingSet
from tests.fakes import FakeEncoder
from tests.fakes_graph import CPU, TEXT_DIM, planted_space, small_settings

ENCODER = FakeEncoder(TEXT_DIM)
PLANTED = {space.space: (space, questions) for space, questions in map(planted_space, range(1, 4))}
# Each space's wording is its own, or the planted spaces would leak into each other.
QUESTIONS = tuple(
    replace(q, text=f"{q.text} asks {q.space}") for _, questions in PLANTED.values() for q in questions
)  # fmt: skip
#: Of a training whose data do not matter.
IDENTITY = RunIdentity(
    algorithm=0, config={}, seed=0, text_encoder="m", precision="32-true", devices="auto", train=(), validation=(),
    data={}, questions="",
)  # fmt: skip
VIEWS = Views(lambda space, as_of: PLANTED[space][0], {})


def made_of(folder: Path, *data: TrainingSet, epochs: int = 1, **options: Any) -> Checkpoint:
    """A small training of some sets, by default of the first space."""
    given = {"trainer": CPU, "seed": 0, "details": {}}
    run = TrainingRun(folder, **{name: options.pop(name, value) for name, value in given.items()})
    run = replace(run, **{name: options.pop(name) for name in ("name", "experiment") if name in options})
    settings = options.pop("settings", None) or small_settings(finetune=epochs)
    sets = data or [TrainingSet(QUESTIONS, ("planted1",), (), VIEWS)]
    return train_checkpoint(sets, settings, run, **{"encoder": ENCODER, **options})

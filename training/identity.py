"""Identifies a training, so that a finished one is reused only if training again would give the same result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from locigraph.training.config import TrainerConfig

#: Version of the algorithm that makes checkpoints: features, encoders, losses, sampling, stopping. Raise it whenever
#: the same data and settings give other weights or vectors; ``tests/training/test_identity.py`` fails until you do.
CHECKPOINT_ALGORITHM = 7
#: Likewise for adapters of the text encoder.
ADAPTER_ALGORITHM = 5
#: Likewise for rerankers.
RERANKER_ALGORITHM = 2


@dataclass(frozen=True)
class RunIdentity:
    """Everything that determines the outcome of a training.

    Attributes:
        algorithm: ``CHECKPOINT_ALGORITHM``, ``ADAPTER_ALGORITHM`` or ``RERANKER_ALGORITHM``.
        config: Model and training, as nested dictionaries.
        seed: Random seed.
        text_encoder: ID of the text encoder, its adapter and its precision included.
        precision: Precision of the training.
        devices: Number of devices; ``auto`` stands for one (see ``TrainerConfig.recorded_devices``).
        train: Spaces that are learnt from, sorted.
        validation: Spaces that decide when to stop, sorted.
        data: Fingerprint of each graph, or of all texts, by name.
        questions: Fingerprint of the questions and their evidence; it keeps their wording out of manifests.
        writer: Name of the writer of the pseudo-questions; None if there are none.
    """

    algorithm: int
    config: Mapping[str, Any]
    seed: int
    text_encoder: str
    precision: str
    devices: int | str
    train: tuple[str, ...]
    validation: tuple[str, ...]
    data: Mapping[str, str]
    questions: str
    writer: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The identity as a manifest records it."""
        read: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return read

    @property
    def fingerprint(self) -> str:
        """Hash of the identity, 12 hexadecimal digits."""
        return hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:12]

    def resume_point(self, folder: Path, stage: str) -> Path:
        """File of a stage's resume point; its name has the fingerprint, so that only this training resumes from it."""
        return folder / f"{stage}-{self.fingerprint}.ckpt"


@dataclass(frozen=True)
class TrainingRun:
    """Where a training is written, where and how it runs, and what is recorded of it.

    Attributes:
        folder: The result is written to a subfolder; resume points and logs are beside it.
        trainer: Where and how to run.
        seed: Random seed.
        details: Recorded in the manifest, such as commit and versions.
        name: Shown on the progress bar; name of the run in Weights & Biases.
        experiment: Groups the runs in Weights & Biases; empty for the folder's name.
    """

    folder: Path
    trainer: TrainerConfig
    seed: int
    details: Mapping[str, Any]
    name: str = "train"
    experiment: str = ""

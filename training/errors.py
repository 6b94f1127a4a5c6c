"""Errors of the training package.

LocigraphError (kg.errors)
└── TrainingError
    ├── CheckpointError        a checkpoint is missing, damaged, or of another schema or text encoder
    ├── StaleEmbeddingsError   the graph has changed since it was embedded
    └── TrainingDataError      there is nothing to learn from
"""

from locigraph.kg.errors import LocigraphError


class TrainingError(LocigraphError):
    """Base of this package's errors."""


class CheckpointError(TrainingError):
    """A checkpoint is missing, damaged, or of another schema or text encoder."""


class StaleEmbeddingsError(TrainingError):
    """The graph has changed since it was embedded; a search would miss what is new."""


class TrainingDataError(TrainingError):
    """There is nothing to learn from."""

"""Errors of the training package.

LocigraphError (kg.errors)
└── TrainingError
    ├── CheckpointError        a checkpoint is missing, damaged, or of another schema or text encoder
    ├── LeakError              training had access to something of a test conversation
    ├── StaleEmbeddingsError   the graph has changed since it was embedded
    └── TrainingDataError      there is nothing to learn from, or a space is in both training and validation
"""

from locigraph.kg.errors import LocigraphError


class TrainingError(LocigraphError):
    """Base of this package's errors."""


class CheckpointError(TrainingError):
    """A checkpoint is missing, damaged, or made for another schema or text encoder."""


class LeakError(TrainingError):
    """Training had access to something of a test conversation, so the scores would be too high."""


class StaleEmbeddingsError(TrainingError):
    """The graph has changed since its embeddings were made; a search would miss new turns."""


class TrainingDataError(TrainingError):
    """There is no data to train on, or a space is in both training and validation."""

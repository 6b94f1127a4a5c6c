"""Encodes questions, and the turns of a graph, with a checkpoint.

PyTorch is imported only when a graph is encoded; encoding a question to search stored vectors does not need it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.schema import EPISODE
from locigraph.kg.snapshot import Snapshot
from locigraph.training.checkpoint import Checkpoint, hashed_features

if TYPE_CHECKING:
    from locigraph.gnn.features import GraphReader
    from locigraph.gnn.sketch import LexicalStatistics

_TURNS_AT_ONCE = 8_192  # about 300 MB with their neighbours
_REMEMBERED = 2_000  # questions, at some 8 KB
_MOST_LETTERS = 5_000  # of a question that is remembered


_Question = tuple[str, datetime | None]  # and when it is asked


class CheckpointQueryEncoder:
    """Encodes questions with a checkpoint and the text encoder that it names; several threads may use it.

    Args:
        checkpoint: The checkpoint.
        encoder: The text encoder.
        remembered: Number of questions whose vectors are kept, those that were asked last.
    """

    def __init__(self, checkpoint: Checkpoint, encoder: TextEncoder, *, remembered: int = _REMEMBERED) -> None:
        self._checkpoint = checkpoint
        self._encoder = encoder
        self.version: str = checkpoint.version
        self._most = remembered
        self._kept: OrderedDict[_Question, NDArray[np.float32]] = OrderedDict()
        self._lock = Lock()

    def encode_query(self, text: str, *, asked_at: datetime | None = None) -> NDArray[np.float32]:
        """Vector of a question, float32 [dim]; see ``retrieval.protocols.QueryEncoder``."""
        return self.encode_queries([(text, asked_at)])[0]

    def encode_queries(self, questions: Sequence[tuple[str, datetime | None]]) -> list[NDArray[np.float32]]:
        """Vectors of questions, each with the time at which it is asked, float32 [dim]; one pass of the text encoder.

        They are not to be changed.
        """
        with self._lock:
            found = {each: self._kept[each] for each in questions if each in self._kept}
        missing = list(dict.fromkeys(each for each in questions if each not in found))
        if missing:
            texts, times = [text for text, _ in missing], [asked_at for _, asked_at in missing]
            hashed = hashed_features(self._checkpoint.model)
            features = hashed.questions(texts, self._encoder.encode(texts), asked_at=times)
            # A row of its own for each, so that one question does not keep the whole array.
            found |= {each: row * self._checkpoint.query_scale for each, row in zip(missing, features, strict=True)}
        with self._lock:
            for each in questions:
                if len(each[0]) <= _MOST_LETTERS:
                    self._kept[each] = found[each]
                    self._kept.move_to_end(each)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return [found[each] for each in questions]


def reader_of(
    checkpoint: Checkpoint, snapshot: Snapshot, *, statistics: LexicalStatistics | None = None
) -> GraphReader:
    """Reads a snapshot for a checkpoint's encoder; see ``GraphReader``."""
    from locigraph.gnn.features import GraphReader

    relations = checkpoint.network.nodes.relations
    return GraphReader(snapshot, hashed_features(checkpoint.model), relations, statistics=statistics)


def encode_graph(
    checkpoint: Checkpoint,
    snapshot: Snapshot,
    *,
    device: str = "cpu",
    statistics: LexicalStatistics | None = None,
    turns: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Encode turns of a snapshot that has embeddings of the checkpoint's text encoder, a block of turns at a time.

    Args:
        checkpoint: The checkpoint.
        snapshot: The graph; of the turns to encode, all that ``kg.store.neighbourhood`` finds.
        device: Device to encode on.
        statistics: Counts of words to go by; None to count those of the snapshot.
        turns: Rows of the turns to encode, ascending; None for all active turns.

    Returns:
        (rows of the turns in the snapshot, their vectors, float32 [turns, dim]); both empty if there are none.
    """
    rows = snapshot.active_rows((EPISODE,)) if turns is None else turns
    if not len(rows):
        return np.zeros(0, dtype=np.int64), np.zeros((0, checkpoint.vector_dim), dtype=np.float32)
    return rows, _vectors(checkpoint, reader_of(checkpoint, snapshot, statistics=statistics), rows, device)


def encode_anew(
    checkpoint: Checkpoint, snapshot: Snapshot, *, device: str = "cpu"
) -> tuple[LexicalStatistics | None, NDArray[np.int64], NDArray[np.float32]]:
    """Count the words of a snapshot and encode all its turns; returns the counts, and what ``encode_graph`` returns.

    There are no counts if there are no turns.
    """
    rows = snapshot.active_rows((EPISODE,))
    if not len(rows):
        return None, np.zeros(0, dtype=np.int64), np.zeros((0, checkpoint.vector_dim), dtype=np.float32)
    reader = reader_of(checkpoint, snapshot)
    vectors = _vectors(checkpoint, reader, rows, device)
    return reader.statistics, rows, vectors


def _vectors(checkpoint: Checkpoint, reader: GraphReader, rows: NDArray[np.int64], device: str) -> NDArray[np.float32]:
    import torch

    nodes = checkpoint.network.nodes.to(device).eval()
    vectors = np.empty((len(rows), checkpoint.vector_dim), dtype=np.float32)
    with torch.inference_mode():
        done = 0
        for block in reader.blocks(_TURNS_AT_ONCE, rows):
            vectors[done : done + block.num_turns] = nodes(block.to(device)).joined().float().cpu().numpy()
            done += block.num_turns
    return vectors

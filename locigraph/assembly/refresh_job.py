"""A refresh of the graph embeddings by several processes: what a worker opens, and what it does for some spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from locigraph.assembly import batch_jobs, defaults, opening
from locigraph.assembly.batch_jobs import Workers
from locigraph.assembly.settings import EncoderSettings, IndexSettings
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.kg.views import View
from locigraph.retrieval.text.node_vectors import embedded_snapshot
from locigraph.training.checkpoint import load_checkpoint
from locigraph.training.embedding_refresh import Encoded, ViewWriter, encoded, local_writer


@dataclass(frozen=True)
class RefreshJob:
    """What a worker needs to open the memory.

    Attributes:
        store: URL of the store.
        index: Vector index.
        encoder: Text encoder.
        checkpoint: Folder of the checkpoint.
        device: torch device to encode on.
    """

    store: str
    index: IndexSettings
    encoder: EncoderSettings
    checkpoint: str
    device: str = "cpu"

    def writer(self, turns: Mapping[SpaceId, int], workers: Workers) -> ViewWriter | None:
        """Writes views with several workers, or None if there are none; ``turns`` is the work of each space."""
        if workers.is_this_process:
            return None

        def write(name: str, views: Sequence[View]) -> Iterator[tuple[View, int]]:
            tasks = batch_jobs.portions({view: turns.get(view.space, 0) for view in views}, workers.count)
            for _, written in batch_jobs.run(partial(_prepared, self, name), tasks, workers):
                yield from written

        return write


def _prepared(job: RefreshJob, name: str) -> Callable[[Sequence[View]], list[tuple[View, int]]]:
    """Open what a worker needs; returns the function that writes views into the collection of this name."""
    import torch

    torch.set_num_threads(1)  # the workers themselves use the processors
    graph = Store(job.store, access="write")
    index = opening.vector_index(job.index, graph)
    encoder = opening.text_encoder(defaults.encoder_settings(job.encoder, graph, job.checkpoint))
    checkpoint = load_checkpoint(Path(job.checkpoint), text_encoder=encoder.model_id)

    def encode(view: View) -> Encoded:
        snapshot = embedded_snapshot(graph, view.space, encoder)
        return encoded(checkpoint, view, snapshot, name, device=job.device, keep=graph.put_word_statistics)

    write = local_writer(index, encode)
    return lambda views: list(write(name, views))

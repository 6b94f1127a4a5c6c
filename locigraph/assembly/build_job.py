"""A build by several processes: what a worker opens, and what it does for some conversations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from tqdm import tqdm

from locigraph.assembly import batch_jobs, graphs, opening
from locigraph.assembly.batch_jobs import Workers
from locigraph.assembly.language_models import clients_of
from locigraph.assembly.settings import EncoderSettings, LLMSettings
from locigraph.consolidation.extractors import EXTRACTORS
from locigraph.kg.corpora import Corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store, TurnFailure
from locigraph.kg.types import Scope, SpaceId

#: Failed turns by space.
_Failures = dict[SpaceId, list[TurnFailure]]


@dataclass(frozen=True)
class BuildJob:
    """What a worker needs to build the graphs of conversations.

    Attributes:
        store: URL of the store.
        encoder: Text encoder.
        consolidation: Name of the extractor.
        scope: The user and agent to whom the conversations belong.
    """

    store: str
    encoder: EncoderSettings
    consolidation: str
    scope: Scope

    def run(self, corpus: Corpus, workers: Workers) -> _Failures:
        """Build the graphs of a corpus with several workers; returns failed turns, as ``graphs.build_graph`` does.

        A conversation is built by one worker, since each of its turns depends on those before it.

        Raises:
            LocigraphError: If the extractor asks language models, whose limits one process keeps.
        """
        if EXTRACTORS[self.consolidation].asks_models:
            raise LocigraphError(
                f"extractor {self.consolidation!r} waits for language models, so several processes would not make it "
                "faster, and each would keep the limits of tokens and cost for itself; use --llm.concurrency"
            )
        of = {conversation.space: conversation for conversation in corpus.conversations}
        sizes = {space: len(conversation.turns) for space, conversation in of.items()}
        tasks = [
            replace(corpus, conversations=tuple(of[space] for space in part), questions=())
            for part in batch_jobs.portions(sizes, workers.count)
        ]
        failed: _Failures = {}
        with tqdm(desc="consolidate", total=sum(sizes.values()), unit="turn") as bar:
            for task, found in batch_jobs.run(partial(_prepared, self), tasks, workers):
                failed |= found
                bar.update(sum(len(conversation.turns) for conversation in task.conversations))
        return failed


def _prepared(job: BuildJob) -> Callable[[Corpus], _Failures]:
    """Open what a worker needs; returns the function that builds conversations."""
    import torch

    torch.set_num_threads(1)  # the workers themselves use the processors
    graph = Store(job.store)
    encoder = opening.text_encoder(job.encoder)
    clients = clients_of(LLMSettings(), max_tokens=None, max_cost=None)

    def build(corpus: Corpus) -> _Failures:
        extractor = graphs.extractor_for(job.consolidation, corpus, clients)
        return graphs.build_graph(corpus, extractor, graph, encoder, job.scope, progress=False)

    return build

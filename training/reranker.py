"""Training of rerankers: networks that score a question and a turn read together (``retrieval.text.pair_scorer``).

A question is compared with one turn that answers it and some that do not, drawn from those that a search by words and
vectors ranks highest: among these a reranker has to choose.

Source:
    van den Oord et al. 2018, arXiv:1807.03748 (InfoNCE); hard negatives as in Karpukhin et al. 2020, "Dense Passage
    Retrieval", arXiv:2004.04906.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from numpy.typing import NDArray
from torch import Tensor

from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.language.terms import terms
from locigraph.retrieval.index.bm25 import bm25_index
from locigraph.retrieval.rerank import combined
from locigraph.retrieval.text.pair_scorer import PairScorer, TrainedReranker, read_reranker, save_reranker, window_for
from locigraph.retrieval.text.text_adapter import TextAdapter
from locigraph.training.config import RerankerConfig
from locigraph.training.errors import TrainingDataError, TrainingError
from locigraph.training.identity import RERANKER_ALGORITHM, RunIdentity, TrainingRun
from locigraph.training.low_rank import LowRankTraining, finished_or_trained, without_own_dropout
from locigraph.training.ranking_scores import answers
from locigraph.training.snapshots import (
    TrainingGraph,
    TrainingSet,
    graphs_of,
    questions_fingerprint,
    seen_texts_of,
    train_and_validation_spaces,
)


@dataclass(frozen=True)
class Candidates:
    """A question, and the turns that a search ranks highest, best first.

    Attributes:
        question: Text of the question.
        texts: Texts of the turns.
        scores: Their scores by the search, float64 [turns].
        is_answer: Which of them answer the question, bool [turns].
    """

    question: str
    texts: tuple[str, ...]
    scores: NDArray[np.float64]
    is_answer: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class RerankExample:
    """Questions about one space; all of a validation space, or as many as one step takes."""

    asked: tuple[Candidates, ...]

    def to(self, device: torch.device | str) -> RerankExample:
        """Itself: texts are read on the CPU."""
        return self

    def parts(self, size: int) -> list[Self]:
        """Split the example into parts of at most ``size`` questions."""
        return [dataclasses.replace(self, asked=self.asked[at : at + size]) for at in range(0, len(self.asked), size)]


def rerank_example(graph: TrainingGraph, encoder: TextEncoder, *, depth: int) -> RerankExample:
    """The questions about a space whose answers are among the first ``depth`` turns by BM25 and cosine together.

    Args:
        graph: The space, with embeddings of the encoder.
        encoder: Encodes the questions.
        depth: Number of turns that are kept for each question.
    """
    snapshot = graph.snapshot
    rows = snapshot.active_rows(("episode",))
    if not len(rows) or not graph.questions:
        return RerankExample(())
    texts = [snapshot.descriptions[row] for row in rows.tolist()]
    by_words, vectors = bm25_index([terms(text) for text in texts]), snapshot.embeddings[rows]
    cosines = encoder.encode([question.text for question in graph.questions]) @ vectors.T
    turns = [snapshot.turns_of[row][0] for row in rows.tolist()]
    right = answers(turns, [question.evidence for question in graph.questions]).numpy()
    asked = []
    for question, cosine, is_answer in zip(graph.questions, cosines, right, strict=True):
        scores = combined(by_words.scores(terms(question.text)), cosine.astype(np.float64), weight=1.0)
        best = np.argsort(-scores, kind="stable")[:depth]
        if is_answer[best].any():
            kept = tuple(texts[place] for place in best)
            asked.append(Candidates(question.text, kept, scores[best], is_answer[best]))
    return RerankExample(tuple(asked))


class RerankerTraining(LowRankTraining):
    """Lightning module that trains a reranker.

    Args:
        scorer: The network.
        config: Settings of the training.
        examples: Number of training examples per epoch; it sets the length of the learning-rate schedule.
        seed: Random seed of positives, negatives and dropout.
    """

    def __init__(self, scorer: PairScorer, config: RerankerConfig, *, examples: int, seed: int) -> None:
        super().__init__(config, examples=examples, seed=seed)
        self.scorer = scorer
        self.config = config

    @property
    def transformer(self) -> Any:
        """See ``LowRankTraining``."""
        return self.scorer.transformer

    def training_step(self, batch: RerankExample, batch_idx: int) -> Tensor:
        """Contrastive loss of one answer to each question against its negatives."""
        chosen = [self._drawn(each) for each in batch.asked]
        pairs = [
            (each.question, each.texts[at]) for each, drawn in zip(batch.asked, chosen, strict=True) for at in drawn
        ]
        scores = self._score(pairs)
        of_each = torch.split(scores, [len(drawn) for drawn in chosen])
        losses = [F.cross_entropy(part, part.new_zeros((), dtype=torch.int64)) for part in of_each]
        loss = torch.stack(losses).mean()
        self.log("train/ranking", loss.detach(), on_step=False, on_epoch=True, batch_size=1)
        return loss

    def _drawn(self, asked: Candidates) -> list[int]:
        """Places of an answer and of the turns that it is compared with: most of them among the highest ranked."""
        right, wrong = np.flatnonzero(asked.is_answer).tolist(), np.flatnonzero(~asked.is_answer).tolist()
        hard = self._some(wrong[: self.config.hard], math.ceil(self.config.negatives * 2 / 3))
        others = self._some([place for place in wrong if place not in hard], self.config.negatives - len(hard))
        return [*self._some(right, 1), *hard, *others]

    def _some(self, places: Sequence[int], count: int) -> list[int]:
        return [places[i] for i in torch.randperm(len(places), generator=self._generator)[:count].tolist()]

    def validation_step(self, batch: RerankExample, batch_idx: int) -> None:
        """Compute recall and nDCG of the turns when the search is reranked."""
        for each in batch.asked:
            scores = self._score([(each.question, text) for text in each.texts]).double().cpu().numpy()
            ranked = combined(each.scores, scores, weight=self.config.weight)
            self._scores.add(torch.from_numpy(ranked)[None], torch.from_numpy(each.is_answer)[None])

    def _score(self, pairs: Sequence[tuple[str, str]]) -> Tensor:
        scores: Tensor = self.scorer([q for q, _ in pairs], [window_for(q, text) for q, text in pairs])
        return scores

    def configure_optimizers(self) -> Any:
        """AdamW; the learning rates rise linearly, then fall linearly to 0. The head has its own."""
        groups = [
            {
                "params": [each for name, each in self.scorer.learnt().items() if name.startswith("head.") is of_head],
                "lr": lr,
            }
            for of_head, lr in ((False, self.config.lr), (True, self.config.head_lr))
        ]
        optimiser = torch.optim.AdamW(groups, weight_decay=self.config.weight_decay)
        return self.scheduled(optimiser)


def train_reranker(
    data: Sequence[TrainingSet],
    config: RerankerConfig,
    run: TrainingRun,
    *,
    model: str,
    encoder: TextEncoder,
    adapter: TextAdapter | None,
) -> TrainedReranker:
    """Train a reranker, resume its interrupted training, or read the finished one of the same identity.

    Args:
        data: One training set per corpus, at least one, with embeddings of ``encoder``.
        config: Settings of the training.
        run: The reranker is written to its folder's subfolder ``reranker``.
        model: Name or folder of the text encoder.
        encoder: The text encoder with its adapter, for the search whose turns are reranked.
        adapter: The adapter, from which the reranker starts; None if the text encoder has none.

    Raises:
        TrainingDataError: If there is no question to learn from, or a space is in both training and validation.
        TrainingError: If ``trainer.compile`` or ``trainer.recompute`` is set, which are for other trainings.
        TextEncoderError: If the text encoder cannot be loaded, or the adapter has a larger rank than the reranker.
    """
    if run.trainer.compile:
        raise TrainingError("trainer.compile is for the graph network; leave it out to train a reranker")
    if run.trainer.recompute:
        raise TrainingError("trainer.recompute is for locigraph adapt; leave it out to train a reranker")
    graphs = graphs_of(data)
    made = [(rerank_example(graph, encoder, depth=config.depth), graph.is_training) for graph in graphs]
    if not any(example.asked for example, is_training in made if is_training):
        raise TrainingDataError(
            "no training space has a question whose answer a search finds; a reranker learns from these"
        )
    identity = RunIdentity(
        RERANKER_ALGORITHM,
        dataclasses.asdict(config),
        run.seed,
        encoder.model_id,
        run.trainer.precision,
        run.trainer.recorded_devices,
        *train_and_validation_spaces(data),
        data={"texts": _fingerprint(example for example, _ in made)},
        questions=questions_fingerprint(graphs),
    )
    target = run.folder / "reranker"
    steps = [part for example, is_training in made if is_training for part in example.parts(config.questions)]

    def module() -> RerankerTraining:
        scorer = PairScorer(
            model, rank=config.rank, max_tokens=config.max_tokens, adapter=adapter, dropout=config.dropout
        )
        without_own_dropout(scorer)
        scorer.train()
        return RerankerTraining(scorer, config, examples=len(steps), seed=run.seed)

    settings = {"rank": config.rank, "max_tokens": config.max_tokens, "weight": config.weight, "depth": config.shown}
    return finished_or_trained(
        module,
        (steps, [example for example, is_training in made if not is_training and example.asked]),
        config,
        run,
        identity,
        stage="reranker",
        read=lambda: read_reranker(target),
        save=lambda trained, details: save_reranker(
            trained.scorer, target, base=model, settings=settings, details=details, seen=seen_texts_of(graphs)
        ),
    )


def _fingerprint(examples: Iterable[RerankExample]) -> str:
    """Hash of all texts and of which answers which, 12 hexadecimal digits; it keeps the texts out of the manifest."""
    digest = hashlib.sha256()
    for asked in (each for example in examples for each in example.asked):
        for text in (asked.question, *asked.texts):
            digest.update(text.encode() + b"\x1f")
        digest.update(asked.is_answer.tobytes())
    return digest.hexdigest()[:12]

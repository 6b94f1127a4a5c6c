"""Whether v2 learns more from a teacher that scores every question and turn: the linear fusion, or it and a reranker.

``python -m benchmarks.distillation --stores data --runs runs/distillation``, on graphs by rules of ``threads``,
``voices``, ``duets`` and ``projects`` (``data/threads-rules.sqlite``, ...), without the conversations that
``configs/train/bundled.yaml`` leaves out. The teacher is a linear fusion learnt from the same questions: of the fifteen
signals, or of these and the reading of the shipped reranker, which was trained on these questions too. Its order of all
turns, as probabilities, is the target of a share of the loss; the answers are that of the rest. For each teacher and
share, trainings of several seeds are averaged. ``locigraph transfer --checkpoints`` compares the checkpoints.

Source:
    Hinton, Vinyals and Dean 2015, arXiv:1503.02531; Hofstätter et al. 2020, arXiv:2010.02666.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
import yaml
from torch import Tensor
from tqdm import tqdm

from benchmarks import records
from locigraph.assembly import opening, provenance
from locigraph.assembly.graphs import views_of
from locigraph.assembly.learning import training_set
from locigraph.assembly.search_parts import trained_reranker
from locigraph.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.gnn.losses import multi_positive_loss
from locigraph.kg.embedded_text import TextEncoder
from locigraph.retrieval.rerank import LearntReranker
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.training import graph_training
from locigraph.training.averaging import averaged
from locigraph.training.config import Settings, TrainerConfig, TrainingConfig
from locigraph.training.examples import SpaceExample, TrainingSpace
from locigraph.training.fusion import SignalExample, SignalReader, fitted_weights
from locigraph.training.graph_training import GraphTraining
from locigraph.training.identity import TrainingRun
from locigraph.training.ranking_scores import answers
from locigraph.training.snapshots import TrainingGraph, TrainingSet, graphs_of

_CORPORA = ("threads", "voices", "duets", "projects")
_RECIPE = Path(__file__).parent.parent / "configs/train/bundled.yaml"
_READ = 12  # best turns of the fusion that the reranker reads; the others count as the worst of these
_PENALTY = 1e-4


class DistilledTraining(GraphTraining):
    """A training whose loss has the order of a teacher as a target.

    Args:
        teacher: For each space the teacher's probabilities, float32 [questions, turns].
        share: Share of the loss that the teacher has.
    """

    def __init__(self, *given: Any, teacher: Mapping[str, Tensor], share: float, **options: Any) -> None:
        super().__init__(*given, **options)
        self._teacher, self._share = teacher, share

    def training_step(self, batch: SpaceExample | TrainingSpace, batch_idx: int) -> Tensor:
        """The loss on one space, whose questions and turns must all be in the step."""
        example = batch.step(self._generator).to(self.device)
        if example.questions is None:
            return 0.0 * self.log_scale
        logits = self._rank(example.questions, self.network.nodes(example.inputs))
        target = self._teacher[example.name].to(self.device)
        learnt = -(target * F.log_softmax(logits, dim=1)).sum(1).mean()
        loss = (1 - self._share) * multi_positive_loss(logits, example.positive) + self._share * learnt
        self._log_part("ranking", loss)
        return loss


@contextmanager
def _opened(stores: Path, encoder: CachedTextEncoder) -> Iterator[list[TrainingSet]]:
    recipe = yaml.safe_load(_RECIPE.read_text())
    learnt = {each["corpus"]["path"]: each["corpus"]["conversations"] for each in recipe["also"] if "corpus" in each}
    with ExitStack() as held:
        sets = []
        for name in _CORPORA:
            corpus = opening.read_corpus(CorpusSettings(name, conversations=learnt.get(name)))
            store = held.enter_context(opening.existing_store(str(stores / f"{name}-rules.sqlite")))
            sets.append(training_set(views_of(store, encoder), corpus, validation=0))
        yield sets


def with_readings(
    example: SignalExample, graph: TrainingGraph, weights: Tensor, reranker: LearntReranker, kept: Path
) -> SignalExample:
    """The example with one signal more: what the reranker gives the best turns by ``weights``.

    Args:
        example: The signals of the answered questions of a space, over all its turns.
        graph: The space.
        weights: Weights of the signals, float32 [signals].
        reranker: Reads questions and turns.
        kept: File in which its readings are kept.
    """
    if kept.exists():
        return SignalExample(
            torch.cat([example.values, torch.from_numpy(np.load(kept))], dim=1), example.positive, True
        )
    snapshot = graph.snapshot
    rows = snapshot.active_rows(("episode",)).tolist()
    turns = [snapshot.turns_of[row][0] for row in rows]
    is_answered = answers(turns, [question.evidence for question in graph.questions]).any(1).tolist()
    asked = [question for question, keep in zip(graph.questions, is_answered, strict=True) if keep]
    best = example.scores(weights).topk(min(_READ, len(rows)), dim=1).indices
    read = torch.empty(len(asked), 1, len(rows))
    for i, question in enumerate(asked):
        texts = [snapshot.descriptions[rows[at]] for at in best[i].tolist()]
        with torch.autocast("cpu", torch.bfloat16):  # half of the time; a target need not be exact to three digits
            given = torch.tensor(reranker.read(question.text, texts))
        read[i, 0] = given.min()
        read[i, 0, best[i]] = given.float()
    kept.parent.mkdir(parents=True, exist_ok=True)
    np.save(kept, read.numpy())
    return SignalExample(torch.cat([example.values, read], dim=1), example.positive, True)


def taught(
    sets: Sequence[TrainingSet], encoder: TextEncoder, teacher: str, runs: Path
) -> tuple[dict[str, Tensor], list[float]]:
    """The teacher's probabilities of each space with answered questions, and the weights of its signals."""
    graphs = [graph for graph in graphs_of(sets) if graph.questions]
    reader = SignalReader(encoder)
    made = [reader.example(graph) for graph in graphs]
    found = {graph.name: (graph, each) for graph, each in zip(graphs, made, strict=True) if len(each.positive)}
    examples = {name: example for name, (_, example) in found.items()}
    weights = fitted_weights([*examples.values()], _PENALTY)
    if teacher == "reranker":
        trained = trained_reranker("default")
        assert trained is not None
        reranker = LearntReranker(trained)
        for name, (graph, example) in tqdm(found.items(), desc="read", unit="space"):
            kept = runs / "readings" / f"{name}-{graph.fingerprint[:12]}-{trained.version}.npy"
            examples[name] = with_readings(example, graph, weights, reranker, kept)
        weights = fitted_weights([*examples.values()], _PENALTY)
    return {name: F.softmax(each.scores(weights), dim=1) for name, each in examples.items()}, weights.tolist()


def main() -> None:
    """Train a checkpoint for each teacher and share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", type=Path, default=Path("data"), help="folder of the graphs")
    parser.add_argument("--runs", type=Path, default=Path("runs/distillation"), help="folder of the trainings")
    parser.add_argument("--adapter", default="checkpoints/text", help="folder of the text encoder's adapter")
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    parser.add_argument("--teachers", nargs="+", default=["fusion", "reranker"], help="fusion, reranker, or both")
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 1.0], help="shares of the loss to try")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds of the averaged trainings")
    options = records.options_of(parser)
    encoder = opening.text_encoder(EncoderSettings(adapter=options.adapter, cache=options.cache))
    settings = Settings(training=TrainingConfig(epochs=3, pretrain_epochs=0))
    with _opened(options.stores, encoder) as sets:
        for teacher in options.teachers:
            targets, weights = taught(sets, encoder, teacher, options.runs)
            print(teacher, json.dumps([round(each, 3) for each in weights]), flush=True)
            # Without a share for the teacher, all teachers give the same training.
            for share in (0.0, *options.shares) if teacher == options.teachers[0] else options.shares:
                name = f"{teacher}-{share}" if share else "answers"
                distilled = partial(DistilledTraining, teacher=targets, share=share)
                trainings = []
                for seed in options.seeds:
                    details = {**provenance.manifest(seed), "teacher": teacher, "share": share}
                    run = TrainingRun(options.runs / name / str(seed), TrainerConfig(), seed, details)
                    with patch.object(graph_training, "GraphTraining", distilled):
                        made = graph_training.train_checkpoint(sets, settings, run, encoder=encoder)
                    print(f"{name}, seed {seed}: {made.version}", flush=True)
                    trainings.append(made)
                mean = averaged(trainings, **provenance.manifest(options.seeds[0]), teacher=teacher, share=share)
                mean.save(options.runs / name / "checkpoint")


if __name__ == "__main__":
    main()

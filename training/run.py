"""One training from graphs and questions to a checkpoint on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only

from locigraph import gnn, kg, training
from locigraph.gnn.lexical import ContextHash
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, SpaceId
from locigraph.retrieval import evaluation
from locigraph.training.callbacks import remove_resume_points
from locigraph.training.checkpoint import Checkpoint, load_checkpoint
from locigraph.training.config import TrainConfig
from locigraph.training.data import make_example, make_sketch
from locigraph.training.errors import CheckpointError, TrainingDataError
from locigraph.training.fit import STAGES, TrainerConfig, fit
from locigraph.training.module import GraphRetrieval
from locigraph.training.protocols import Embed, QuestionWriter
from locigraph.training.pseudo_queries import RULES
from locigraph.training.views import View, Views


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """What a training may see of a corpus.

    Attributes:
        questions: About training and validation spaces; those about others are passed over.
        train: Spaces to learn from.
        validation: Spaces that decide when to stop.
        views: Their graphs.
    """

    questions: tuple[Question, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...]
    views: Views


@dataclass(frozen=True, eq=False)
class TrainingGraph:
    """A snapshot to train or validate on, and the questions about it."""

    name: str
    snapshot: Snapshot
    questions: tuple[Question, ...]
    is_training: bool


def train_checkpoint(
    data: Sequence[TrainingSet],
    config: TrainConfig,
    trainer: TrainerConfig,
    *,
    embed: Embed,
    text_encoder: str,
    folder: Path,
    seed: int,
    details: Mapping[str, Any],
    writer: QuestionWriter = RULES,
    name: str = "train",
) -> Checkpoint:
    """Train, or take up an interrupted training, or load the finished one of the same settings.

    Args:
        data: At least one; several for several corpora, or for graphs that several extractors made of one.
        config: What to train.
        trainer: Where and how.
        embed: Text encoder.
        text_encoder: Its id.
        folder: The checkpoint is written to ``folder/checkpoint``.
        seed: Of everything random.
        details: Recorded in the manifest.
        writer: Turns facts into questions, where the configuration asks for some.
        name: On the progress bar.

    Raises:
        TrainingDataError: If there is nothing to train on, or a space is on both sides.
    """
    started = time.monotonic()
    graphs = graphs_of(data)
    if config.finetune.epochs and config.finetune.ranking and not any(g.questions for g in graphs if g.is_training):
        raise TrainingDataError("no training space has a question with evidence; fine-tuning needs some")
    pseudo = {*config.pretrain.pseudo, *config.finetune.pseudo}
    identity = {
        "config": dataclasses.asdict(config), "seed": seed, "text_encoder": text_encoder,
        "precision": trainer.precision, "devices": trainer.devices, "code": source_digest(),
        **sides_of(data),
        "graphs": {graph.name: graph.snapshot.fingerprint for graph in graphs},
        "questions": _fingerprint(graphs), "writer": writer.name if "fact_questions" in pseudo else None,
    }  # fmt: skip
    identity = json.loads(json.dumps(identity))
    if (folder / "checkpoint").is_dir():
        try:
            done = load_checkpoint(folder / "checkpoint", text_encoder=text_encoder)
            if done.details.get("identity") == identity:
                return done
        except CheckpointError:
            pass  # of an older version or damaged: made anew below
    sketch = make_sketch([graph.snapshot for graph in graphs], config.model, embed=embed)
    make = partial(
        make_example,
        sketch=sketch,
        context=ContextHash(config.model.speaker_dim, config.model.date_dim),
        embed=embed,
        pseudo=pseudo,
        writer=writer,
    )
    examples = [dataclasses.replace(make(g.snapshot, g.questions), name=g.name) for g in graphs]
    text_dim = graphs[0].snapshot.embeddings.shape[1]
    torch.manual_seed(seed)
    network = GraphRetrieval(config.model, text_dim=text_dim)
    result = fit(
        network,
        [example for example, graph in zip(examples, graphs, strict=True) if graph.is_training],
        [example for example, graph in zip(examples, graphs, strict=True) if not graph.is_training],
        config,
        trainer,
        folder=folder,
        seed=seed,
        identity=hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest(),
        name=name,
    )
    checkpoint = Checkpoint(
        network, config.model, sketch, text_encoder, text_dim,
        {**details, "identity": identity, "stages": result.stages, "seconds": round(time.monotonic() - started, 1)},
    )  # fmt: skip
    if not trainer.fast_dev_run and is_first_process():  # with several devices all of them come by here
        checkpoint.save(folder / "checkpoint")
        for stage in STAGES:  # of no more use, and larger than the checkpoint
            remove_resume_points(folder / f"{stage}-")
    return checkpoint


def is_first_process() -> bool:
    """Whether this process writes what all of several devices have come to."""
    # Lightning sets it as soon as it knows; without several processes there is none.
    return int(getattr(rank_zero_only, "rank", 0)) == 0


def sides_of(data: Sequence[TrainingSet]) -> dict[str, list[str]]:
    """All spaces that are learnt from (``train``) and that decide when to stop (``validation``), sorted."""
    return {
        "train": sorted({space for each in data for space in each.train}),
        "validation": sorted({space for each in data for space in each.validation}),
    }


def graphs_of(data: Sequence[TrainingSet]) -> list[TrainingGraph]:
    """The graphs that some corpora are learnt from and validated on, with the questions about each.

    Raises:
        TrainingDataError: If a space is on both sides.
    """
    sides = sides_of(data)
    both = sorted({*sides["train"]} & {*sides["validation"]})
    if both:
        raise TrainingDataError(f"space {both[0]!r} is to be learnt from and to decide when to stop; give it one part")
    # Two corpora, or two graphs of one, may name a space alike.
    return [g for n, each in enumerate(data) for g in _graphs_of(each, f"graph {n + 1}: " if n else "")]


def _graphs_of(data: TrainingSet, label: str) -> list[TrainingGraph]:
    spaces = sorted({*data.train, *data.validation})
    used: dict[View, list[Question]] = {data.views.of(SpaceId(space), None): [] for space in spaces}
    for question in data.questions:
        if question.space in spaces:
            used.setdefault(data.views.of(question.space, question.asked_at), []).append(question)
    # A space whose questions all look at an earlier graph is trained on that graph alone.
    used = {v: qs for v, qs in used.items() if qs or not any(o.space == v.space and used[o] for o in used)}
    return [
        TrainingGraph(label + view.name, data.views.snapshot(view), tuple(asked), view.space in data.train)
        for view, asked in used.items()
        if data.views.snapshot(view).num_nodes  # none where a question was asked before the first turn
    ]


def _fingerprint(graphs: Sequence[TrainingGraph]) -> str:
    """Twelve hexadecimal digits of all questions; their wording stays out of the manifest."""
    asked = sorted(
        [q.question_id, q.text, str(q.asked_at), list(q.evidence)] for graph in graphs for q in graph.questions
    )
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:12]


@cache
def source_digest() -> str:
    """Twelve hexadecimal digits of the source that decides what a training comes to: features, model, training, scores.

    In a checkpoint's identity, so that one that other code has trained is not taken for finished.
    """
    digest = hashlib.sha256()
    for package in (gnn, kg, evaluation, training):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]

"""The comparison: every conversation tested once, by models that never saw it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import gnn
import kg
import retrieval.evaluation
import training
from gnn.lexical import ContextHash
from kg.corpora import Corpus
from kg.snapshot import Snapshot
from kg.types import NodeId, Question, SpaceId
from retrieval.evaluation import (
    Fold,
    LeakError,
    QuestionOutcome,
    StrategyRun,
    check_folds,
    check_text_leak,
    make_folds,
)
from retrieval.evaluation.leaks import wording
from retrieval.evaluation.results import CURVE_TOP_KS
from retrieval.graph_embedding import GraphEmbeddingRetriever
from retrieval.milvus import MilvusIndex
from retrieval.protocols import Retriever
from retrieval.turns import turns_of_hits
from training.checkpoint import Checkpoint, load_checkpoint
from training.config import TrainConfig
from training.data import make_example, make_sketch
from training.errors import CheckpointError, TrainingDataError, TrainingError
from training.fit import TrainerConfig, fit
from training.inference import CheckpointQueryEncoder
from training.module import GraphRetrieval
from training.protocols import Embed
from training.refresh import GRAPH_ALIAS, View, refresh

_DEPTH = max(CURVE_TOP_KS)


class Views:
    """Snapshots of spaces as of their questions' times, read once.

    Args:
        load: Snapshot of a space as of a time.
        last_turn: When the last turn of each space was spoken; None where undated.
    """

    def __init__(
        self,
        load: Callable[[SpaceId, datetime | None], Snapshot],
        last_turn: Mapping[SpaceId, datetime | None],
    ) -> None:
        self._load = load
        self._last_turn = last_turn
        self._held: dict[View, Snapshot] = {}

    @classmethod
    def of_corpus(cls, load: Callable[[SpaceId, datetime | None], Snapshot], corpus: Corpus) -> Views:
        """Views of a corpus' conversations; the last turn is the latest dated one, wherever it stands."""
        dated = {c.space: [t.spoken_at for t in c.turns if t.spoken_at is not None] for c in corpus.conversations}
        return cls(load, {space: max(times) if times else None for space, times in dated.items()})

    def of(self, space: SpaceId, as_of: datetime | None) -> View:
        """The view that shows a space as of a time; the present one when nothing came later."""
        last = self._last_turn.get(space)
        if as_of is None or last is None or as_of >= last:
            return View(space)
        return View(space, as_of)

    def snapshot(self, view: View) -> Snapshot:
        """Its snapshot."""
        if view not in self._held:
            self._held[view] = self._load(view.space, view.as_of)
        return self._held[view]


@dataclass(frozen=True)
class TrainingSet:
    """What a training may see.

    Attributes:
        questions: Of training and validation spaces.
        train: Spaces to learn from.
        validation: Spaces that decide when to stop.
    """

    questions: tuple[Question, ...]
    train: tuple[str, ...]
    validation: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Graph:
    """A snapshot to train or validate on, and the questions about it."""

    name: str
    snapshot: Snapshot
    questions: tuple[Question, ...]
    is_training: bool


def _graphs_of(data: TrainingSet, views: Views, label: str) -> list[_Graph]:
    spaces = sorted({*data.train, *data.validation})
    used: dict[View, list[Question]] = {views.of(SpaceId(space), None): [] for space in spaces}
    for question in data.questions:
        if question.space in spaces:
            used.setdefault(views.of(question.space, question.asked_at), []).append(question)
    # A space whose questions all look at an earlier graph is trained on that graph alone.
    used = {v: qs for v, qs in used.items() if qs or not any(o.space == v.space and used[o] for o in used)}
    return [
        _Graph(label + view.name, views.snapshot(view), tuple(asked), view.space in data.train)
        for view, asked in used.items()
    ]


def train_checkpoint(
    data: TrainingSet,
    views: Views,
    config: TrainConfig,
    trainer: TrainerConfig,
    *,
    embed: Embed,
    text_encoder: str,
    folder: Path,
    seed: int,
    details: Mapping[str, Any],
    also: Sequence[Views] = (),
    name: str = "train",
) -> Checkpoint:
    """Train, or take up an interrupted training, or load the finished one of the same settings.

    Args:
        data: Questions and spaces.
        views: Their graphs.
        config: What to train.
        trainer: Where and how.
        embed: Text encoder.
        text_encoder: Its id.
        folder: The checkpoint is written to ``folder/checkpoint``.
        seed: Of everything random.
        details: Recorded in the manifest.
        also: Graphs that other extractors made of the same conversations, to train and validate on as well.
        name: On the progress bar.

    Raises:
        TrainingDataError: If there is nothing to train on.
    """
    graphs = _graphs_of(data, views, "")
    for number, others in enumerate(also, start=2):
        graphs += _graphs_of(data, others, f"graph {number}: ")
    if config.finetune.epochs and config.finetune.ranking and not any(g.questions for g in graphs if g.is_training):
        raise TrainingDataError("no training space has a question with evidence; fine-tuning needs some")
    identity = {
        "config": dataclasses.asdict(config), "seed": seed, "text_encoder": text_encoder,
        "precision": trainer.precision, "devices": trainer.devices, "code": source_digest(),
        "train": sorted(data.train), "validation": sorted(data.validation),
        "graphs": {graph.name: graph.snapshot.fingerprint for graph in graphs},
        "questions": _fingerprint(graphs),
    }  # fmt: skip
    identity = json.loads(json.dumps(identity))
    if (folder / "checkpoint").is_dir():
        try:
            done = load_checkpoint(folder / "checkpoint", text_encoder=text_encoder)
            if done.details.get("identity") == identity:
                return done
        except CheckpointError:
            pass  # of an older version or damaged: made anew below
    sketch = make_sketch(
        [graph.snapshot for graph in graphs],
        dim=config.model.lexical_dim,
        dedicated=config.model.dedicated_terms,
        related=config.model.related_terms,
        least_likeness=config.model.least_likeness,
        embed=embed,
    )
    context = ContextHash(config.model.speaker_dim, config.model.date_dim)
    pseudo = {*config.pretrain.pseudo, *config.finetune.pseudo}
    examples = [
        dataclasses.replace(
            make_example(g.snapshot, g.questions, sketch=sketch, context=context, embed=embed, pseudo=pseudo),
            name=g.name,
        )
        for g in graphs
    ]
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
        {**details, "identity": identity, "stages": result.stages},
    )  # fmt: skip
    if not trainer.fast_dev_run:
        checkpoint.save(folder / "checkpoint")
        for resume_point in folder.glob("*.ckpt"):  # of no more use, and larger than the checkpoint
            resume_point.unlink()
    return checkpoint


def _fingerprint(graphs: Sequence[_Graph]) -> str:
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
    for package in (gnn, kg, retrieval.evaluation, training):
        for path in sorted(Path(package.__path__[0]).glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def plan_folds(questions: Sequence[Question], *, folds: int, validation: int, seed: int) -> tuple[Fold, ...]:
    """Folds over the conversations that have questions, checked for leaks.

    Args:
        questions: Of the whole corpus.
        folds: How many; at most one per conversation.
        validation: Conversations of each fold's training side that decide when to stop.
        seed: Of the assignment.

    Raises:
        TrainingError: If there are more folds than conversations.
        LeakError: If a conversation or the wording of a question is on both sides.
    """
    weights: dict[str, int] = {}
    for question in questions:
        weights[question.space] = weights.get(question.space, 0) + 1
    spaces = sorted(weights)
    if not 2 <= folds <= len(spaces):
        raise TrainingError(
            f"folds is {folds}; expected 2 to {len(spaces)}, since {len(spaces)} conversations have questions"
        )
    planned = make_folds(spaces, folds=folds, validation=validation, seed=seed, weights=weights)
    check_folds(planned, spaces=spaces)
    return planned


def drop_leaked(questions: Sequence[Question], fold: Fold) -> tuple[tuple[Question, ...], int]:
    """Training-side questions of a fold without those whose wording a test question has too.

    Returns:
        (questions, number left out).
    """
    tested = {wording(q.text) for q in questions if q.space in fold.test}
    side = [q for q in questions if q.space in {*fold.train, *fold.validation}]
    kept = tuple(q for q in side if wording(q.text) not in tested)
    check_text_leak([q.text for q in kept], [q.text for q in questions if q.space in fold.test])
    return kept, len(side) - len(kept)


def refuse_known(checkpoint: Checkpoint, questions: Sequence[Question]) -> None:
    """Refuse to test a checkpoint on what it was trained or validated on.

    Raises:
        LeakError: If a question's space is among the checkpoint's.
    """
    identity = checkpoint.details.get("identity", {})
    known = {*identity.get("train", ()), *identity.get("validation", ())}
    for question in questions:
        if question.space in known:
            raise LeakError(
                f"checkpoint {checkpoint.version} was trained or validated on space {question.space!r}; leave out "
                "--checkpoint to train inside folds, or test on other conversations"
            )


def run_strategy(retriever: Retriever, questions: Sequence[Question], *, name: str | None = None) -> StrategyRun:
    """Ask one strategy all questions, one at a time, as a user would.

    Args:
        retriever: The strategy.
        questions: With evidence.
        name: In the results; None takes the retriever's own.
    """
    rankings: dict[str, tuple[str, ...]] = {}
    search_ms: dict[str, float] = {}
    encode_ms: dict[str, float] = {}
    label = name or retriever.name
    for question in tqdm(questions, desc=label, unit="question"):
        result = retriever.retrieve(question.text, question.space, as_of=question.asked_at, top_k=_DEPTH)
        rankings[question.question_id] = tuple(turns_of_hits(result.hits, top_k=_DEPTH))
        search_ms[question.question_id] = result.timing.search_ms
        encode_ms[question.question_id] = result.timing.encode_ms
    return StrategyRun(label, rankings, search_ms, encode_ms)


def joined_runs(runs: Sequence[StrategyRun], *, seed: int | None = None) -> StrategyRun:
    """Runs of one strategy over different questions, such as those of the folds trained with one seed, as one."""

    def merged(field: str) -> dict[str, Any]:
        return {key: value for run in runs for key, value in getattr(run, field).items()}

    return StrategyRun(runs[0].name, merged("rankings"), merged("search_ms"), merged("encode_ms"), seed)


def outcomes(questions: Sequence[Question], fold_of: Mapping[str, int]) -> list[QuestionOutcome]:
    """Questions as the evaluation wants them."""
    return [
        QuestionOutcome(q.question_id, q.space, q.category, q.evidence, q.evidence_sessions, fold_of.get(q.space))
        for q in questions
    ]


class Comparison:
    """v2's side of a comparison: trains, refreshes and asks, fold by fold.

    Args:
        index: Where the embeddings go.
        views: The graphs.
        embed: Text encoder.
        text_encoder: Its id.
        describe: Text of a node.
        details: Recorded in the checkpoints' manifests, such as commit and versions.
        folder: Each training and its checkpoint are kept in ``folder/seed-<s>/fold-<n>``.
    """

    def __init__(
        self,
        *,
        index: MilvusIndex,
        views: Views,
        embed: Embed,
        text_encoder: str,
        describe: Callable[[SpaceId, NodeId], str | None],
        folder: Path,
        details: Mapping[str, Any],
    ) -> None:
        self._details = details
        self._index = index
        self._views = views
        self._embed = embed
        self._text_encoder = text_encoder
        self._describe = describe
        self._folder = folder
        self.notes: list[str] = []

    def fold(
        self, fold: Fold, questions: Sequence[Question], config: TrainConfig, trainer: TrainerConfig, *, seed: int
    ) -> StrategyRun:
        """Train without the fold's test conversations and ask their questions."""
        known, left_out = drop_leaked(questions, fold)
        note = f"fold {fold.index}: {left_out} training questions left out, since a test question has their wording"
        if left_out and note not in self.notes:
            self.notes.append(note)
        checkpoint = train_checkpoint(
            TrainingSet(known, fold.train, fold.validation),
            self._views,
            config,
            trainer,
            embed=self._embed,
            text_encoder=self._text_encoder,
            folder=self._folder / f"seed-{seed}" / f"fold-{fold.index}",
            seed=seed,
            details={**self._details, "fold": fold.index},
            name=f"seed {seed}, fold {fold.index}",
        )
        return self.zero_shot(checkpoint, [q for q in questions if q.space in fold.test])

    def zero_shot(
        self, checkpoint: Checkpoint, questions: Sequence[Question], *, name: str | None = None
    ) -> StrategyRun:
        """Embed the questions' graphs with a checkpoint, as it is, and ask."""
        views = list(dict.fromkeys(self._views.of(q.space, q.asked_at) for q in questions))
        done = refresh(self._index, checkpoint, views, self._views.snapshot, alias=None)
        retriever = GraphEmbeddingRetriever(
            self._index.open(done.collection),
            CheckpointQueryEncoder(checkpoint, self._embed),
            self._describe,
            view_of=lambda space, as_of: self._views.of(space, as_of).name,
        )
        run = run_strategy(retriever, questions, name=name)
        # The comparison's embeddings serve this once; kept, they would fill the index with every fold. Of the same
        # checkpoint and graphs a refresh may have put them in use, though.
        if self._index.alias_target(GRAPH_ALIAS) != done.collection:
            self._index.drop(done.collection)
        return run

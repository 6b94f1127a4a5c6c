"""Training of a graph encoder and its query encoder: from graphs and questions to a checkpoint on disk."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from locigraph.gnn.encoders import GraphRetrieval, TurnVectors
from locigraph.gnn.losses import multi_positive_loss
from locigraph.kg.embedded_text import TextEncoder
from locigraph.training.checkpoint import Checkpoint, load_checkpoint, new_network
from locigraph.training.config import Settings, TrainingConfig
from locigraph.training.errors import CheckpointError, TrainingDataError, TrainingError
from locigraph.training.examples import Examples, SpaceExample, TrainingSpace, read_space
from locigraph.training.fusion import DETAIL, SignalReader, learn_fusion
from locigraph.training.identity import CHECKPOINT_ALGORITHM, RunIdentity, TrainingRun
from locigraph.training.lightning_run import RankingModule, is_first_process, run_lightning
from locigraph.training.objectives import LOSSES, Scorer, require_known_names
from locigraph.training.pseudo_questions import RULES, QuestionWriter
from locigraph.training.ranking_scores import inner_products
from locigraph.training.snapshots import (
    TrainingGraph,
    TrainingSet,
    graphs_of,
    questions_fingerprint,
    seen_texts_of,
    train_and_validation_spaces,
)

#: The stages in the order in which they run.
STAGES = ("pretrain", "finetune")
_START_SCALE = 10.0


class GraphTraining(RankingModule):
    """Lightning module that trains a ``GraphRetrieval`` in place, through one stage.

    Args:
        network: The model.
        config: Learning rates and weight decay.
        losses: Weight of each self-supervised loss; None for the supervised stage, which learns to rank turns.
        seed: Random seed of hidden edges and sampled pairs.
    """

    def __init__(
        self, network: GraphRetrieval, config: TrainingConfig, losses: Mapping[str, float] | None, *, seed: int
    ) -> None:
        super().__init__(seed=seed)
        self.network = network
        self.config = config
        self.losses = losses
        self.log_scale = nn.Parameter(torch.tensor(_START_SCALE).log())  # 1 / temperature of the ranking

    def training_step(self, batch: SpaceExample | TrainingSpace, batch_idx: int) -> Tensor:
        """The stage's loss on one space, or on a part of it; 0 if none of its losses applies to it."""
        example = batch.step(self._generator).to(self.device)
        parts: dict[str, Tensor] = {}
        if self.losses is None:
            if example.questions is not None:
                logits = self._rank(example.questions, self.network.nodes(example.inputs))
                parts["ranking"] = multi_positive_loss(example.corrected(logits), example.positive)
        else:
            scorer = Scorer(self.network.nodes, self._rank, self._generator)
            for name, loss in LOSSES.items():  # in the table's order, since they draw from one generator
                weight = self.losses.get(name, 0.0)
                part = loss.compute(scorer, example) if weight else None
                if part is not None:
                    parts[name] = weight * part
        for name in self._part_names:
            self._log_part(name, parts.get(name))
        if not parts:
            return 0.0 * self.log_scale  # not None, which would leave the other devices waiting
        return torch.stack(list(parts.values())).sum()

    @property
    def _part_names(self) -> Sequence[str]:
        """Names of the parts of the stage's loss."""
        return ["ranking"] if self.losses is None else [name for name, weight in self.losses.items() if weight]

    def _log_part(self, name: str, part: Tensor | None) -> None:
        """Log a part of the loss for the mean over the spaces of an epoch that have it.

        Every device logs every part, since they wait for one another when they take the mean.
        """
        value = self.log_scale.new_zeros(()) if part is None else part.detach()
        count = 0 if part is None else 1
        self.log(f"train/{name}", value, on_step=False, on_epoch=True, batch_size=count, sync_dist=True)

    def _rank(self, questions: Tensor, vectors: TurnVectors) -> Tensor:
        return self.log_scale.exp() * inner_products(self.network.queries(questions), vectors.joined())

    def validation_step(self, batch: SpaceExample | TrainingSpace, batch_idx: int) -> None:
        """Compute recall and nDCG of the space's questions, in float32 as at search time."""
        with torch.autocast(self.device.type, enabled=False):
            stored: Tensor | None = None
            for questions, positive in batch.asked():
                if stored is None:  # not encoded in vain for a space without questions
                    blocks = (block.to(self.device) for block in batch.blocks())
                    stored = torch.cat([self.network.nodes(block).joined() for block in blocks])
                asked = self.network.queries(questions.to(self.device))
                self._scores.add(inner_products(asked, stored), positive)

    def configure_optimizers(self) -> Any:
        """AdamW with linear warm-up; one parameter group each for single weights, edge features and attention."""
        nodes, queries, config = self.network.nodes, self.network.queries, self.config
        scalars = [*nodes.single_weights(), *queries.parameters(), self.log_scale]
        edges = [nodes.edge_features, nodes.own_traits]
        grouped = {id(parameter) for parameter in [*scalars, *edges]}
        attention = [parameter for parameter in self.parameters() if id(parameter) not in grouped]
        groups = [
            {"params": scalars, "lr": config.scalar_lr, "weight_decay": 0.0},
            {"params": edges, "lr": config.edge_lr, "weight_decay": config.weight_decay},
            {"params": attention, "lr": config.lr, "weight_decay": config.weight_decay},
        ]
        optimiser = torch.optim.AdamW([group for group in groups if group["params"]])
        warmup = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min(1.0, (step + 1) / max(1, config.warmup_steps))
        )
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": warmup, "interval": "step"}}


def train_checkpoint(
    data: Sequence[TrainingSet],
    settings: Settings,
    run: TrainingRun,
    *,
    encoder: TextEncoder,
    with_fusion: bool = False,
    writer: QuestionWriter = RULES,
) -> Checkpoint:
    """Train a graph encoder, resume its interrupted training, or load the finished one of the same identity.

    Args:
        data: At least one training set; several for several corpora, or for several extractors' graphs of one corpus.
        settings: Model, stages and optimiser.
        run: The checkpoint is written to its folder's subfolder ``checkpoint``.
        encoder: Text encoder.
        with_fusion: Whether to learn a linear fusion from the same questions too, for the manifest; the baseline
            ``fusion-zero`` uses it.
        writer: Turns facts into pseudo-questions, if a loss in the settings needs them.

    Raises:
        UnknownNameError: If the settings name an unknown encoder or loss.
        GraphError: If they exclude an unknown relation.
        TrainingError: If ``trainer.recompute`` is set, which is for another training.
        TrainingDataError: If there is nothing to train on, or a space is in both training and validation.
    """
    training, target = settings.training, run.folder / "checkpoint"
    require_known_names(settings)
    if run.trainer.recompute:
        raise TrainingError("trainer.recompute is for locigraph adapt; leave it out to train a graph network")
    graphs = _learnable(data, training)
    asking = writer if _asks(training) else None
    identity = _identity_of(data, graphs, settings, run, encoder, asking)
    done = _finished(target, identity, encoder)
    if done is not None:
        return done
    fusion = {}
    if with_fusion and any(_is_answered(graph) for graph in graphs if graph.is_training):
        fusion[DETAIL] = dict(learn_fusion(SignalReader(encoder).examples(data)).weights)
    started = time.monotonic()
    read = partial(read_space, model=settings.model, encoder=encoder, writer=asking, step_turns=training.step_turns)
    train, validation = (
        Examples(
            [graph for graph in graphs if graph.is_training == is_training],
            lambda graph: read(graph).prepared(),
            keep=run.trainer.keep_bytes,
        )
        for is_training in (True, False)
    )
    text_dim = graphs[0].snapshot.embeddings.shape[1]
    # Whatever the seed, so that the weights of several trainings can be averaged; each epoch draws from the seed.
    torch.manual_seed(0)
    network = new_network(settings.model, text_dim)
    stages = _trained_stages(network, training, run, identity, train, validation)
    recorded = {**run.details, **fusion, "identity": identity.as_json(), "stages": stages}
    recorded["seconds"] = round(time.monotonic() - started, 1)
    checkpoint = Checkpoint(
        network.weights(), settings.model, encoder.model_id, text_dim, recorded, seen_texts_of(graphs)
    )
    if is_first_process():  # with several devices, every process gets here
        checkpoint.save(target)
        for stage in STAGES:  # no longer needed, and larger than the checkpoint
            identity.resume_point(run.folder, stage).unlink(missing_ok=True)
    return checkpoint


def _asks(training: TrainingConfig) -> bool:
    """Whether a loss needs questions about facts."""
    losses = training.pretrain_losses.items() if training.pretrain_epochs else ()
    return any(weight and LOSSES[loss].asks for loss, weight in losses)


def _identity_of(
    data: Sequence[TrainingSet],
    graphs: Sequence[TrainingGraph],
    settings: Settings,
    run: TrainingRun,
    encoder: TextEncoder,
    writer: QuestionWriter | None,
) -> RunIdentity:
    """All that decides the result of a training."""
    return RunIdentity(
        CHECKPOINT_ALGORITHM,
        asdict(settings),
        run.seed,
        encoder.model_id,
        run.trainer.precision,
        run.trainer.recorded_devices,
        *train_and_validation_spaces(data),
        data={graph.name: graph.fingerprint for graph in graphs},
        questions=questions_fingerprint(graphs),
        writer=None if writer is None else writer.name,
    )


def _finished(target: Path, identity: RunIdentity, encoder: TextEncoder) -> Checkpoint | None:
    """The checkpoint of a training, if that has ended."""
    try:
        done = load_checkpoint(target, text_encoder=encoder.model_id)
    except CheckpointError:
        return None  # missing, damaged, or written by an older version: trained again
    return done if done.details.get("identity") == identity.as_json() else None


def _learnable(data: Sequence[TrainingSet], training: TrainingConfig) -> list[TrainingGraph]:
    """The graphs of the data; raises TrainingDataError if there is nothing to learn from."""
    graphs = graphs_of(data)
    if not any(graph.is_training for graph in graphs):
        raise TrainingDataError("there is no space to train on; name a corpus with questions")
    if training.epochs and not any(_is_answered(graph) for graph in graphs if graph.is_training):
        raise TrainingDataError("no training space has a question with evidence; fine-tuning needs some")
    return graphs


def _is_answered(graph: TrainingGraph) -> bool:
    """Whether any question about a graph has evidence."""
    return any(question.evidence for question in graph.questions)


def _trained_stages(
    network: GraphRetrieval,
    training: TrainingConfig,
    run: TrainingRun,
    identity: RunIdentity,
    train: Examples,
    validation: Examples,
) -> dict[str, dict[str, float]]:
    """Train a network, in place, through all stages; returns the scores of each."""
    stages: dict[str, dict[str, float]] = {}
    for number, (stage, epochs) in enumerate(zip(STAGES, (training.pretrain_epochs, training.epochs), strict=True)):
        if not epochs:
            continue
        network.train()
        if run.trainer.compile:
            # In place, so that the names of the weights stay as they are.
            network.nodes.compile(dynamic=True)
        stage_seed = 10 * run.seed + number  # shared with no other stage or seed
        losses = training.pretrain_losses if stage == "pretrain" else None
        stages[stage] = run_lightning(
            GraphTraining(network, training, losses, seed=stage_seed),
            train,
            validation,
            training,
            run,
            identity,
            stage=stage,
            epochs=epochs,
            seed=stage_seed,
        )
    return stages

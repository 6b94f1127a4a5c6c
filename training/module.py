"""The Lightning module: encoders, losses, optimiser."""

from __future__ import annotations

from typing import Any

import lightning as L  # noqa: N812  (the name Lightning's own documentation uses)
import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor, nn

from locigraph.gnn.encoder import EVENT, FACT, EncoderConfig, NodeEncoder, NodeVectors
from locigraph.gnn.hetero import FORWARD_EDGE_TYPES, METADATA
from locigraph.gnn.losses import link_loss, multi_positive_loss, nt_xent
from locigraph.gnn.probes import spread, uniformity
from locigraph.gnn.query import QueryBatch, QueryEncoder
from locigraph.gnn.sampling import (
    drop_edges,
    hide_sources_of_half,
    likely_false_negatives,
    random_half,
    split_supervision,
)
from locigraph.retrieval.evaluation import evidence_recall, ndcg
from locigraph.training.config import ModelConfig, OptimiserConfig, StageConfig
from locigraph.training.data import SpaceExample
from locigraph.training.pseudo_queries import Kind

_PREDICTED = tuple(t for t in FORWARD_EDGE_TYPES if not t[1].startswith("NEXT"))
_SUPERVISION_SHARE = 0.2
_VIEW_DROP = 0.2
_START_SCALE = 10.0


def encoder_config(model: ModelConfig, text_dim: int) -> EncoderConfig:
    """The encoder's part of a model's configuration."""
    return EncoderConfig(
        text_dim=text_dim,
        lexical_dim=model.lexical_dim,
        context_dim=model.speaker_dim + model.date_dim,
        hidden_dim=model.hidden_dim,
        layers=model.layers,
        heads=model.heads,
        free_dim=model.free_dim,
        edge_gate=model.edge_gate,
        state_gate=model.state_gate,
        dropout=model.dropout,
        excluded=tuple(model.excluded_relations),
    )


class GraphRetrieval(nn.Module):
    """What is trained and what a checkpoint holds: node encoder and query encoder.

    Args:
        model: Sizes and switches.
        text_dim: Width of the text encoder.
    """

    def __init__(self, model: ModelConfig, *, text_dim: int) -> None:
        super().__init__()
        config = encoder_config(model, text_dim)
        self.nodes = NodeEncoder(config)
        self.queries = QueryEncoder(
            config,
            speaker_dim=model.speaker_dim,
            gated=model.query_gates,
            rank=model.query_rank,
            dropout=model.dropout,
        )


def inner_products(queries: Tensor, stored: Tensor) -> Tensor:
    """Scores of questions and turns, [questions, turns], never in half precision: there, near scores would be equal."""
    with torch.autocast(queries.device.type, enabled=False):
        return queries.float() @ stored.float().T


class RankingScores:
    """Recall and nDCG of questions, gathered over validation spaces."""

    def __init__(self) -> None:
        self._found: list[tuple[float, float]] = []

    def add(self, scores: Tensor, positive: Tensor) -> None:
        """Take in questions.

        Args:
            scores: [questions, turns].
            positive: Which turns are right, bool [questions, turns].
        """
        best = scores.topk(min(10, scores.shape[1]), dim=1).indices.tolist()
        for ranking, right in zip(best, positive, strict=True):
            gold = {str(i) for i in right.nonzero().flatten().tolist()}
            found = [str(i) for i in ranking]
            self._found.append((evidence_recall(found, gold, 10), ndcg(found, gold, 10)))

    def means(self) -> dict[str, float]:
        """Means over questions by the names of the log, and ``val/score``, their sum; empty without questions."""
        if not self._found:
            return {}
        recall, gain = (sum(values) / len(self._found) for values in zip(*self._found, strict=True))
        return {"val/recall@10": recall, "val/ndcg@10": gain, "val/score": recall + gain}


class RetrievalModule(L.LightningModule):
    """Trains a ``GraphRetrieval``.

    Args:
        network: The model; trained in place.
        stage: Losses and their weights.
        optimiser: Rates and regularisation.
        seed: Of negative sampling and dropout, by epoch, so that a resumed run draws the same.
    """

    def __init__(self, network: GraphRetrieval, stage: StageConfig, optimiser: OptimiserConfig, *, seed: int) -> None:
        super().__init__()
        self.network = network
        self.stage = stage
        self.optimiser = optimiser
        self.seed = seed
        self.log_scale = nn.Parameter(torch.tensor(_START_SCALE).log())
        hidden = network.nodes.config.hidden_dim
        if stage.link:
            self.relation_diagonal = nn.Parameter(torch.ones(len(METADATA.edge_types), hidden) / hidden**0.5)
        self._scores = RankingScores()
        self._generator = torch.Generator()

    # --- steps ---------------------------------------------------------------------------------------------

    def on_train_epoch_start(self) -> None:
        """Start every epoch from its own seed."""
        epoch_seed = 1_000 * self.seed + self.current_epoch
        torch.manual_seed(epoch_seed)
        self._generator.manual_seed(epoch_seed)

    def training_step(self, batch: SpaceExample, batch_idx: int) -> Tensor:
        """Sum of the stage's losses on one space; 0 when none of them applies to it."""
        parts: dict[str, Tensor] = {}
        stage = self.stage
        if stage.ranking and batch.questions is not None:
            parts["ranking"] = stage.ranking * self._ranking_loss(batch)
        for kind in stage.pseudo:
            found = self._pseudo_loss(batch, kind)
            if found is not None:
                parts[kind] = getattr(stage, kind) * found
        has_states = self.network.nodes.config.uses_states  # links and views are about them
        if stage.link and has_states:
            found = self._link_loss(batch)
            if found is not None:
                parts["link"] = stage.link * found
        if stage.views and has_states and len(batch.episodes) > 1:  # a single turn has no other to differ from
            parts["views"] = stage.views * self._views_loss(batch)
        if not parts:
            return 0.0 * self.log_scale  # not None, which would leave the other devices waiting
        for name, value in parts.items():
            self.log(f"train/{name}", value.detach(), on_step=False, on_epoch=True, batch_size=1)
        return torch.stack(list(parts.values())).sum()

    def _ranking_loss(self, batch: SpaceExample) -> Tensor:
        assert batch.questions is not None
        vectors = self.network.nodes(batch.inputs)
        logits = self._logits(batch.questions, vectors, batch.episodes)
        return self._ranked(logits, batch.positive, batch.inputs.text[batch.episodes])

    def _logits(self, questions: QueryBatch, vectors: NodeVectors, episodes: Tensor) -> Tensor:
        queries = self.network.queries(
            questions, noise=self.optimiser.query_noise, term_dropout=self.optimiser.term_dropout
        )
        return self.log_scale.exp() * inner_products(queries, vectors.joined()[episodes])

    def _ranked(self, logits: Tensor, positive: Tensor, text: Tensor) -> Tensor:
        ignore = None
        if self.stage.false_negative < 1:
            ignore = likely_false_negatives(text, positive, cosine=self.stage.false_negative)
        return multi_positive_loss(logits, positive, ignore=ignore)

    def _pseudo_loss(self, batch: SpaceExample, kind: Kind) -> Tensor | None:
        """Rank a half of the turns from which what gives the answer away is hidden: edges, or the asking words.

        None when the space has no query of this kind about that half.
        """
        made = batch.pseudo.get(kind)
        if made is None:
            return None
        if made.masked is None:
            graph, chosen = hide_sources_of_half(batch.inputs.graph, [FACT, EVENT], generator=self._generator)
            inputs = batch.inputs.with_graph(graph)
        else:
            asked_for = batch.episodes[made.positive.any(0)]
            chosen = random_half(asked_for, batch.inputs.graph.num_nodes, generator=self._generator)
            inputs = batch.inputs.with_features_of(made.masked, chosen)
        candidates = chosen[batch.episodes]
        rows = (made.positive & candidates).any(1)
        if int(rows.sum()) < 1 or int(candidates.sum()) < 2:
            return None
        logits = self._logits(made.queries, self.network.nodes(inputs), batch.episodes)
        text = batch.inputs.text[batch.episodes][candidates]
        return self._ranked(logits[rows][:, candidates], made.positive[rows][:, candidates], text)

    def _link_loss(self, batch: SpaceExample) -> Tensor | None:
        graph, supervision = split_supervision(
            batch.inputs.graph, _PREDICTED, share=_SUPERVISION_SHARE, generator=self._generator, text=batch.inputs.text
        )
        if not supervision:
            return None
        states = self.network.nodes(batch.inputs.with_graph(graph)).states
        losses = []
        for edges in supervision:
            weight = self.relation_diagonal[METADATA.edge_index(edges.edge_type)]
            source = states[edges.source] * weight
            losses.append(link_loss((source * states[edges.target]).sum(1), (source * states[edges.negative]).sum(1)))
        return torch.stack(losses).mean()

    def _views_loss(self, batch: SpaceExample) -> Tensor:
        views = []
        for _ in range(2):
            graph = drop_edges(batch.inputs.graph, share=_VIEW_DROP, generator=self._generator)
            states = self.network.nodes(batch.inputs.with_graph(graph)).states
            views.append(F.normalize(states[batch.episodes], dim=1))
        return nt_xent(views[0], views[1])

    # --- validation ----------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        """Forget the last epoch's questions."""
        self._scores = RankingScores()

    def validation_step(self, batch: SpaceExample, batch_idx: int) -> None:
        """Recall and nDCG of the space's questions; signs of collapse."""
        vectors = self.network.nodes(batch.inputs)
        stored = vectors.joined()[batch.episodes]
        if vectors.states is not None and len(batch.episodes) > 1:
            states = vectors.states[batch.episodes]
            self.log("probe/spread", spread(states), batch_size=1)
            self.log("probe/uniformity", uniformity(states), batch_size=1)
        if batch.questions is None:
            return
        self._scores.add(inner_products(self.network.queries(batch.questions), stored), batch.positive)

    def on_validation_epoch_end(self) -> None:
        """Means over questions; ``val/score``, their sum, decides when to stop."""
        self.log_dict(self._scores.means(), batch_size=1, sync_dist=True)

    # --- optimiser -----------------------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        """AdamW with groups for networks, mixing weights, term weights and edge features; linear warm-up."""
        nodes, queries = self.network.nodes, self.network.queries
        scalars = [
            nodes.own, nodes.text_weight, nodes.lexical_weight, nodes.context_weight, nodes.trait_weight,
            queries.context_weight, queries.related_weight, self.log_scale,
        ]  # fmt: skip
        edges = [nodes.edge_weight, nodes.own_weight] if nodes.config.edge_gate else []
        special = {id(p) for p in [*scalars, *edges, queries.term_weight]}
        rest = [p for p in self.parameters() if id(p) not in special]
        config = self.optimiser
        optimiser = torch.optim.AdamW(
            [
                {"params": rest, "lr": config.lr, "weight_decay": config.weight_decay},
                {"params": scalars, "lr": config.scalar_lr, "weight_decay": 0.0},
                {"params": [queries.term_weight], "lr": config.term_lr, "weight_decay": 0.0},
                *({"params": [p], "lr": config.edge_lr, "weight_decay": config.edge_weight_decay} for p in edges),
            ]
        )
        warmup = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: min(1.0, (step + 1) / max(1, config.warmup_steps))
        )
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": warmup, "interval": "step"}}

"""What decides a training run; every field can be set in YAML and on the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from locigraph.gnn.hetero import NODE_TYPES
from locigraph.gnn.lexical import LexicalSketch, RelatedTerms
from locigraph.kg.errors import nearest
from locigraph.training.errors import TrainingError
from locigraph.training.pseudo_queries import KINDS, Kind


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and switches of node and query encoder.

    Attributes:
        lexical_dim: Buckets of the lexical sketch.
        dedicated_terms: Frequent stems of the training and validation conversations with a bucket of their own.
        idf_of: Node types over whose descriptions the sketch's IDF is counted, in each space anew.
        saturation: BM25's k1 of the sketch.
        length_norm: BM25's b of the sketch, in [0, 1].
        related_terms: Stems of like meaning that each stem of a question also looks for; 0 for none.
        least_likeness: Cosine of two words' embeddings from which their stems count as related.
        speaker_dim: Width for hashed speakers.
        date_dim: Width for hashed dates.
        hidden_dim: Width of the HGT states.
        layers: HGT layers; 0 leaves gates and free block to see a node's own text and traits. 0 by default, since they
            have not been worth their time in any comparison (docs/experiments.md).
        heads: Attention heads.
        free_dim: Width of the block that only states and question decide; 0 leaves it out.
        edge_gate: Whether an edge's own features move its weight in the mixing over relations.
        state_gate: Whether HGT states move it.
        query_gates: Whether the kind of question scales the blocks of its vector.
        query_rank: Rank of the residual that adapts a question's embedding; 0 leaves it out.
        dropout: In HGT part and query networks.
        excluded_relations: Relations not used, such as ``MENTIONS``, or ``event_node:DERIVED_FROM`` for those of one
            type of source.
    """

    lexical_dim: int = 2048
    dedicated_terms: int = 1024
    idf_of: list[str] = field(default_factory=lambda: ["episode", "knowledge_node"])
    saturation: float = 1.2
    length_norm: float = 0.75
    related_terms: int = 30
    least_likeness: float = 0.4
    speaker_dim: int = 64
    date_dim: int = 192
    hidden_dim: int = 128
    layers: int = 0
    heads: int = 4
    free_dim: int = 64
    edge_gate: bool = True
    state_gate: bool = True
    query_gates: bool = True
    query_rank: int = 32
    dropout: float = 0.3
    excluded_relations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("lexical_dim", "dedicated_terms", "speaker_dim", "date_dim", "free_dim", "layers", "query_rank"):
            if getattr(self, name) < 0:
                raise TrainingError(f"model.{name} is {getattr(self, name)}; expected 0 or more")
        if self.heads < 1 or self.hidden_dim < 1 or self.hidden_dim % self.heads:
            raise TrainingError(
                f"model.hidden_dim is {self.hidden_dim} and model.heads {self.heads}; expected at least 1, the first a "
                "multiple of the second"
            )
        if not 0 <= self.dropout < 1:
            raise TrainingError(f"model.dropout is {self.dropout}; expected a share in [0, 1)")
        if self.related_terms < 0 or not 0 < self.least_likeness < 1:
            raise TrainingError(
                f"model.related_terms is {self.related_terms} and model.least_likeness {self.least_likeness}; expected "
                "0 or more, and a cosine between 0 and 1"
            )
        unknown = [kind for kind in self.idf_of if kind not in NODE_TYPES]
        if unknown or not self.idf_of:
            raise TrainingError(f"model.idf_of is {self.idf_of}; expected at least one of {', '.join(NODE_TYPES)}")
        if self.saturation < 0 or not 0 <= self.length_norm <= 1:
            raise TrainingError(
                f"model.saturation is {self.saturation} and model.length_norm {self.length_norm}; expected 0 or more, "
                "and a share between 0 and 1"
            )
        if self.lexical_dim and self.dedicated_terms >= self.lexical_dim:
            raise TrainingError(
                f"model.dedicated_terms {self.dedicated_terms} leaves no bucket for other terms in "
                f"model.lexical_dim {self.lexical_dim}; lower it or raise lexical_dim"
            )

    def sketch(self, dedicated: tuple[str, ...], related: RelatedTerms) -> LexicalSketch:
        """The lexical sketch of these settings and of what was learnt from the words of the training spaces."""
        return LexicalSketch(
            self.lexical_dim, dedicated, related, tuple(self.idf_of), self.saturation, self.length_norm
        )


@dataclass(frozen=True)
class StageConfig:
    """One stage of training: how long, and the weight of each loss (0 switches it off).

    Attributes:
        epochs: At most so many passes over the training spaces; 0 leaves the stage out.
        patience: Epochs without a better validation before stopping.
        ranking: Questions with evidence against all turns of their space.
        link: Typed link prediction on hidden edges.
        fact_questions: Questions made of facts and events against the turns they came from, whose edges are hidden.
        facts: Facts and events themselves, in the same way.
        spans: Half of a turn's words against the turns, which are shown without them.
        views: Agreement of two views of the graph with different edges left out.
        false_negative: Cosine from which a turn that is as like an answer in its text is taken for one that nobody has
            marked, and left out of the negatives; 1 takes none for such.
    """

    epochs: int
    patience: int = 6
    ranking: float = 0.0
    link: float = 0.0
    fact_questions: float = 0.0
    facts: float = 0.0
    spans: float = 0.0
    views: float = 0.0
    false_negative: float = 1.0

    def __post_init__(self) -> None:
        if self.epochs < 0 or self.patience < 0:
            raise TrainingError(f"epochs is {self.epochs} and patience {self.patience}; expected 0 or more")
        for name in ("ranking", "link", *KINDS, "views"):
            if not getattr(self, name) >= 0:
                raise TrainingError(f"weight {name} of a loss is {getattr(self, name)}; expected 0 or more")
        if not 0 < self.false_negative <= 1:
            raise TrainingError(f"false_negative is {self.false_negative}; expected a cosine above 0, at most 1")

    @property
    def pseudo(self) -> tuple[Kind, ...]:
        """Kinds of pseudo-queries that the stage learns from."""
        return tuple(kind for kind in KINDS if self.epochs and getattr(self, kind))


@dataclass(frozen=True)
class OptimiserConfig:
    """AdamW.

    Attributes:
        lr: Of networks.
        scalar_lr: Of the few mixing weights.
        edge_lr: Of the weights of edge features.
        term_lr: Of the table of term weights.
        weight_decay: Of networks.
        edge_weight_decay: Of the weights of edge features.
        warmup_steps: Steps over which the rates rise.
        average: Weight of the past in the running average of the parameters that is validated and kept; 0 for none.
        gradient_clip: Largest norm of the gradient.
        query_noise: Length of the random vector added to a question's embedding.
        term_dropout: Share of a question's terms left out.
    """

    lr: float = 3e-4
    scalar_lr: float = 1e-2
    edge_lr: float = 3e-3
    term_lr: float = 1e-2
    weight_decay: float = 0.05
    edge_weight_decay: float = 0.1
    warmup_steps: int = 10
    average: float = 0.9
    gradient_clip: float = 1.0
    query_noise: float = 0.3
    term_dropout: float = 0.0

    def __post_init__(self) -> None:
        for field_ in dataclasses.fields(self):
            if not getattr(self, field_.name) >= 0:
                raise TrainingError(f"optimiser.{field_.name} is {getattr(self, field_.name)}; expected 0 or more")
        for name in ("average", "term_dropout"):
            if getattr(self, name) >= 1:
                raise TrainingError(f"optimiser.{name} is {getattr(self, name)}; expected a share in [0, 1)")


@dataclass(frozen=True)
class TrainConfig:
    """A whole training.

    Attributes:
        model: Sizes and switches.
        pretrain: Self-supervised stage; no question is learnt from, but validation questions decide when it stops.
        finetune: Stage on questions of the training conversations.
        optimiser: Rates and regularisation, of both stages.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    pretrain: StageConfig = field(
        default_factory=lambda: StageConfig(epochs=3, link=0.2, fact_questions=1.0, views=0.1)
    )
    finetune: StageConfig = field(default_factory=lambda: StageConfig(epochs=20, ranking=1.0))
    optimiser: OptimiserConfig = field(default_factory=OptimiserConfig)


@dataclass(frozen=True)
class AdapterConfig:
    """Training of a text encoder's adapter.

    Attributes:
        rank: Of the changes to the weights.
        epochs: At most so many passes over the training questions.
        patience: Epochs without a better validation before stopping.
        questions: Of one space, at a step.
        negatives: Other documents of the space that a step draws, beside the answers to its other questions.
        max_tokens: Longer texts are cut there in training.
        scale: Cosines are multiplied by it: the inverse temperature.
        lr: Of AdamW; rises over the first steps, then falls to nothing.
        warmup_steps: Over which the rate rises; at most a quarter of all.
        weight_decay: Of AdamW.
        dropout: On the input of the changes.
        gradient_clip: Largest norm of the gradient.
    """

    rank: int = 16
    epochs: int = 2
    patience: int = 2
    questions: int = 32
    negatives: int = 64
    max_tokens: int = 64
    scale: float = 20.0
    lr: float = 5e-4
    warmup_steps: int = 20
    weight_decay: float = 0.01
    dropout: float = 0.05
    gradient_clip: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rank", "epochs", "questions", "negatives", "max_tokens"):
            if getattr(self, name) < 1:
                raise TrainingError(f"adapter.{name} is {getattr(self, name)}; expected at least 1")
        for name in ("patience", "warmup_steps", "lr", "weight_decay", "gradient_clip"):
            if getattr(self, name) < 0:
                raise TrainingError(f"adapter.{name} is {getattr(self, name)}; expected 0 or more")
        if self.scale <= 0 or not 0 <= self.dropout < 1:
            raise TrainingError(
                f"adapter.scale is {self.scale} and adapter.dropout {self.dropout}; expected a number above 0, and a "
                "share in [0, 1)"
            )


def changed(config: TrainConfig, changes: Mapping[str, Any]) -> TrainConfig:
    """A configuration with some fields changed.

    Args:
        config: The full model's.
        changes: Values by field names joined by dots, such as ``model.layers``.

    Raises:
        TrainingError: If there is no such field; names the nearest.
    """
    given: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        section, _, field = path.partition(".")
        sections = [f.name for f in dataclasses.fields(config)]
        if section not in sections:
            raise TrainingError(f"configuration: change of {path!r}: no such section{nearest(section, sections)}")
        held = getattr(config, section)
        fields = [f.name for f in dataclasses.fields(held)]
        if field not in fields:
            raise TrainingError(f"configuration: change of {path!r}: no such field{nearest(field, fields)}")
        given.setdefault(section, {})[field] = value
    # A section's fields change together: one alone may not fit the others as they were.
    replaced = {name: dataclasses.replace(getattr(config, name), **values) for name, values in given.items()}
    return dataclasses.replace(config, **replaced)

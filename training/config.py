"""Settings of trainings. Every field can be set in YAML and on the command line; this module imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from locigraph.kg.errors import nearest
from locigraph.kg.name_list import Names, names_in
from locigraph.training.errors import TrainingError

#: Largest width of a vector's block or of a text embedding.
MAX_WIDTH = 2**16


@dataclass(frozen=True)
class ModelConfig:
    """The graph encoder and the widths of the vectors that it makes.

    Attributes:
        encoder: Graph encoder: <encoders>.
        lexical_dim: Number of buckets of the lexical sketch.
        speaker_dim: Width for hashed speakers.
        date_dim: Width for hashed dates.
        attention_dim: Width of the keys and queries of each attention head; only hgt uses it.
        excluded_relations: Relations that the encoder leaves out: names from the table of network relations, or
            families of relations, such as NEXT; "*" stands for all of them.
    """

    encoder: str = "hgt"
    lexical_dim: int = 1024
    speaker_dim: int = 32
    date_dim: int = 95
    attention_dim: int = 32
    excluded_relations: Names = field(default_factory=list)

    def __post_init__(self) -> None:
        object.__setattr__(self, "excluded_relations", names_in(self.excluded_relations))
        widths = {"lexical_dim": 1, "speaker_dim": 0, "date_dim": 0, "attention_dim": 1}
        _require(self, "model", at_least=widths, at_most=dict.fromkeys(widths, MAX_WIDTH))


@dataclass(frozen=True)
class TrainingConfig:
    """Stages, losses and the optimiser (AdamW) of a training of the graph encoder.

    Attributes:
        epochs: Maximum number of epochs of fine-tuning on the training spaces and their questions; 0 skips this stage.
        pretrain_epochs: Maximum number of epochs of the self-supervised stage before fine-tuning, which learns from no
            questions, though validation questions decide when it stops; 0 skips this stage.
        pretrain_losses: Weight of each loss of the self-supervised stage; their names are: <losses>.
        patience: Number of epochs without a better validation score after which a stage stops early.
        lr: Learning rate of keys, queries and attention matrices.
        scalar_lr: Learning rate of the priors of relations and of the other single weights.
        edge_lr: Learning rate of the weights of edge features.
        weight_decay: Weight decay of the parameters that ``lr`` and ``edge_lr`` apply to.
        warmup_steps: Number of steps over which the learning rates rise linearly.
        ema_decay: Decay of the exponential moving average of the parameters; this average is validated and kept.
        gradient_clip: Maximum norm of the gradient; 0 switches clipping off.
        step_turns: Maximum number of turns of a space that a step encodes; of a larger one it takes a random part.
        spaces_per_step: Number of spaces whose gradients a step averages, on each device.
    """

    epochs: int = 20
    pretrain_epochs: int = 3
    pretrain_losses: dict[str, float] = field(
        default_factory=lambda: {"link": 0.2, "pseudo_questions": 1.0, "views": 0.1}
    )
    patience: int = 6
    lr: float = 3e-5
    scalar_lr: float = 1e-2
    edge_lr: float = 3e-3
    weight_decay: float = 0.1
    warmup_steps: int = 10
    ema_decay: float = 0.9
    gradient_clip: float = 1.0
    step_turns: int = 8_192
    spaces_per_step: int = 1

    def __post_init__(self) -> None:
        names = [f.name for f in dataclasses.fields(self) if f.name != "pretrain_losses"]
        _require(
            self,
            "training",
            at_least=dict.fromkeys(names, 0) | {"patience": 1, "step_turns": 8, "spaces_per_step": 1},
            at_most={},
        )
        if self.ema_decay >= 1:
            raise TrainingError(f"training.ema_decay is {self.ema_decay}; expected a share in [0, 1)")
        for name, weight in self.pretrain_losses.items():
            if not 0 <= weight < math.inf:
                raise TrainingError(f"training.pretrain_losses.{name} is {weight}; expected 0 or more")


_LEAST_TOKENS = {"max_tokens": 8}  # with fewer, little more than the marks around a text is read


@dataclass(frozen=True)
class AdapterConfig:
    """Training of an adapter of the text encoder.

    Attributes:
        rank: Rank of the low-rank updates to the weights.
        last_blocks: Number of the encoder's transformer blocks, counted from the last, whose weights are updated; null
            for all. The others then need no backward pass.
        frozen_dtype: Number format in which the weights that do not change are held. ``bfloat16`` halves their memory,
            and with ``trainer.precision bf16-mixed`` they are not converted again in every step.
        epochs: Maximum number of epochs over the training questions.
        patience: Number of epochs without a better validation score after which the training stops early.
        questions: Maximum number of questions in a step, all about one space.
        negatives: Number of documents of the space that each step samples as negatives, in addition to the answers to
            its other questions.
        max_tokens: Length to which the windows of texts are truncated in training, in tokens.
        turn_before: Whether the encoder reads each turn together with the one before it in its session, in training and
            ever after; see ``kg.embedded_text``.
        temperature: Divides the cosine similarities in the loss; above 0.
        lr: Learning rate of AdamW; it rises over the first steps, then falls linearly to 0.
        warmup_steps: Number of steps over which the learning rate rises; at most a quarter of all steps.
        weight_decay: Weight decay of AdamW.
        dropout: Dropout rate on the input of the low-rank updates.
        gradient_clip: Maximum norm of the gradient; 0 switches clipping off.
    """

    rank: int = 16
    last_blocks: int | None = None
    frozen_dtype: Literal["float32", "bfloat16"] = "float32"
    epochs: int = 2
    patience: int = 2
    questions: int = 32
    negatives: int = 64
    max_tokens: int = 192
    turn_before: bool = True
    temperature: float = 0.05
    lr: float = 5e-4
    warmup_steps: int = 20
    weight_decay: float = 0.01
    dropout: float = 0.05
    gradient_clip: float = 1.0
    ema_decay: ClassVar[float] = 0.0  # no moving average, since the learning rate falls to 0
    spaces_per_step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("rank", "epochs", "patience", "questions", "negatives"), 1) | _LEAST_TOKENS
        rest = dict.fromkeys(("warmup_steps", "lr", "weight_decay", "gradient_clip"), 0)
        _require(
            self, "adapter", at_least=counts | rest, at_most={"rank": 384, "questions": 1_024, "negatives": 10_000}
        )
        if not 0 < self.temperature < math.inf or not 0 <= self.dropout < 1:
            raise TrainingError(
                f"adapter.temperature is {self.temperature} and adapter.dropout {self.dropout}; expected a finite "
                "number above 0, and a share in [0, 1)"
            )


@dataclass(frozen=True)
class RerankerConfig:
    """Training of a reranker, and how its scores are used.

    Attributes:
        rank: Rank of the low-rank updates to the weights of the text encoder; at least that of its adapter.
        epochs: Maximum number of epochs over the training questions.
        patience: Number of epochs without a better validation score after which the training stops early.
        questions: Maximum number of questions in a step, all about one space.
        negatives: Number of turns that an answer is compared with.
        hard: Two thirds of them are drawn from so many highest-ranked turns that are no answers.
        depth: Number of turns of the search that a training draws from, and a validation reranks.
        max_tokens: Length to which a question and a text together are cut, in tokens.
        weight: Weight of the reranker's scores when it is used, beside those of the search; both are standardised.
        shown: Number of hits that it reranks when it is used.
        lr: Learning rate of the low-rank updates; it rises over the first steps, then falls linearly to 0.
        head_lr: Likewise for the layers that make a score of the encoder's output.
        warmup_steps: Number of steps over which the learning rate rises; at most a quarter of all steps.
        weight_decay: Weight decay of AdamW.
        dropout: Dropout rate on the input of the low-rank updates.
        gradient_clip: Maximum norm of the gradient; 0 switches clipping off.
    """

    rank: int = 16
    epochs: int = 2
    patience: int = 2
    questions: int = 16
    negatives: int = 3
    hard: int = 15
    depth: int = 50
    max_tokens: int = 96
    weight: float = 0.5
    shown: int = 30
    lr: float = 3e-4
    head_lr: float = 1e-3
    warmup_steps: int = 50
    weight_decay: float = 0.01
    dropout: float = 0.0
    gradient_clip: float = 1.0
    ema_decay: ClassVar[float] = 0.0  # no moving average, since the learning rate falls to 0
    spaces_per_step: ClassVar[int] = 1

    def __post_init__(self) -> None:
        counted = ("rank", "epochs", "patience", "questions", "negatives", "hard", "depth", "shown")
        rest = dict.fromkeys(("warmup_steps", "lr", "head_lr", "weight_decay", "gradient_clip", "weight"), 0)
        most = {"rank": 384, "questions": 1_024, "negatives": 1_000, "depth": 10_000, "shown": 10_000}
        _require(self, "reranker", at_least=dict.fromkeys(counted, 1) | _LEAST_TOKENS | rest, at_most=most)
        if not 0 <= self.dropout < 1:
            raise TrainingError(f"reranker.dropout is {self.dropout}; expected a share in [0, 1)")


@dataclass(frozen=True)
class TrainerConfig:
    """Where and how Lightning runs a training.

    Attributes:
        accelerator: ``auto``, ``cpu``, ``gpu`` or another accelerator that Lightning knows.
        devices: Number of devices, or ``auto`` for one.
        precision: ``32-true``, ``bf16-mixed`` or ``16-mixed``.
        compile: Whether to run the encoders through ``torch.compile``.
        recompute: Whether ``locigraph adapt`` computes the activations of the text encoder again in the backward pass,
            one batch of texts after another (Chen et al. 2016, arXiv:1604.06174). This takes about a third longer and
            needs memory for one batch instead of all; the weights are the same.
        keep_mb: Megabytes of prepared spaces that a training of the graph network keeps from one epoch to the next, for
            training and for validation each; other spaces are read from the graph again.
        csv_log: Whether to write metrics to a CSV file.
        wandb_mode: ``disabled`` (no logger), ``offline`` (files only) or ``online``.
        wandb_project: Name of the project in Weights & Biases; each training is a separate run in it.
    """

    accelerator: str = "auto"
    devices: int | str = "auto"
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    compile: bool = False
    recompute: bool = False
    keep_mb: int = 2_048
    csv_log: bool = True
    wandb_mode: Literal["disabled", "offline", "online"] = "disabled"
    wandb_project: str = "locigraph"

    def __post_init__(self) -> None:
        _require(self, "trainer", at_least={"keep_mb": 0}, at_most={})

    @property
    def keep_bytes(self) -> int:
        """``keep_mb`` in bytes."""
        return self.keep_mb * 2**20

    @property
    def num_devices(self) -> int | str:
        """Number of devices, with ``auto`` read as 1; any other text for Lightning, such as ``0,2``, is unchanged."""
        # A step is a single space and therefore short, so several processes are used only on request.
        given = "1" if self.devices == "auto" else str(self.devices).strip()
        return int(given) if given.isdecimal() else given

    @property
    def recorded_devices(self) -> int | str:
        """The devices as identities record them: ``auto`` for one, as in the manifests of shipped checkpoints."""
        return "auto" if self.num_devices == 1 else self.num_devices


@dataclass(frozen=True)
class Settings:
    """Settings of the graph encoder and of its training; data, text encoder, seed and trainer are given separately."""

    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Settings with the fields changed that ``changes`` names by their dotted names, such as ``model.encoder``.

    Raises:
        TrainingError: If there is no such field, and names the nearest; or if a new value is out of range.
    """
    given: dict[str, dict[str, Any]] = {}
    for path, value in changes.items():
        section, _, name = path.partition(".")
        held: Any = settings
        for what, part in (("section", section), ("field", name)):
            known = [f.name for f in dataclasses.fields(held)]
            if part not in known:
                raise TrainingError(f"configuration: change of {path!r}: no such {what}{nearest(part, known)}")
            held = getattr(held, part)
        given.setdefault(section, {})[name] = value
    # All changes to a section are applied at once, since one alone may not fit the old values of the other fields.
    replaced = {name: dataclasses.replace(getattr(settings, name), **values) for name, values in given.items()}
    return dataclasses.replace(settings, **replaced)


def _require(config: object, section: str, *, at_least: Mapping[str, float], at_most: Mapping[str, float]) -> None:
    for name, least in at_least.items():
        value = getattr(config, name)
        if not math.isfinite(value):
            raise TrainingError(f"{section}.{name} is {value}; expected a finite number")
        if not value >= least:
            raise TrainingError(f"{section}.{name} is {value}; expected {least:g} or more")
        if value > at_most.get(name, math.inf):
            raise TrainingError(f"{section}.{name} is {value}; expected at most {at_most[name]:g}")

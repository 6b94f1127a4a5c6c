"""Training of adapters: low-rank adaptations of the text encoder, trained on questions before the graph network.

The positives of a question are the turns that answer it and the facts and events from these turns; the negatives are
other nodes of the same conversation. The graph network is then trained on the adapted embeddings.

Source:
    van den Oord et al. 2018, arXiv:1807.03748 (InfoNCE); LoRA: see ``retrieval.text_adapter``.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from locigraph.gnn.losses import multi_positive_loss
from locigraph.kg.schema import EPISODE, answer_types
from locigraph.retrieval.text.local_models import identified
from locigraph.retrieval.text.text_adapter import TextAdapter, add_adapter, read_adapter, save_adapter
from locigraph.retrieval.text.text_encoder import load_model, windows_read
from locigraph.training.config import AdapterConfig
from locigraph.training.errors import TrainingDataError, TrainingError
from locigraph.training.identity import ADAPTER_ALGORITHM, RunIdentity, TrainingRun
from locigraph.training.low_rank import LowRankTraining, finished_or_trained, without_own_dropout
from locigraph.training.ranking_scores import inner_products
from locigraph.training.snapshots import (
    TrainingGraph,
    TrainingSet,
    graphs_of,
    questions_fingerprint,
    seen_texts_of,
    train_and_validation_spaces,
)

_ENCODED_AT_ONCE = 32


@dataclass(frozen=True, eq=False)
class TextExample:
    """Questions about a space, and the texts among which their answers are found.

    Attributes:
        name: Name of the space, or of a view of it.
        documents: What the encoder reads for turns, facts and events.
        turns: Positions of the turns among ``documents``, int64 [turns].
        questions: The questions' texts.
        positive: Which documents answer which question, bool [questions, documents].
        ignored: Which documents are neither positive nor negative for a question: those from several turns of which
            only some are evidence, bool [questions, documents].
    """

    name: str
    documents: tuple[str, ...]
    turns: Tensor
    questions: tuple[str, ...]
    positive: Tensor
    ignored: Tensor

    def to(self, device: torch.device | str) -> TextExample:
        """Itself: texts are encoded on the device, and the other fields are read on the CPU."""
        return self

    def parts(self, size: int) -> list[Self]:
        """Split the example into parts of at most ``size`` questions, each with all documents."""
        slices = [slice(start, start + size) for start in range(0, len(self.questions), size)]
        by_question = ("questions", "positive", "ignored")
        return [
            dataclasses.replace(self, **{name: getattr(self, name)[part] for name in by_question}) for part in slices
        ]


def text_example(graph: TrainingGraph, *, turn_before: bool) -> TextExample:
    """Convert a space into texts; questions without evidence in the graph are left out, and no embeddings are needed.

    With ``turn_before``, a turn is read together with the one before it.
    """
    snapshot = graph.snapshot
    rows = snapshot.active_rows(answer_types()).tolist()
    texts = snapshot.embedded_texts(turn_before=turn_before)
    sources = [set(snapshot.turns_of[row]) for row in rows]
    positive, ignored = torch.zeros(2, len(graph.questions), len(rows), dtype=torch.bool)
    for i, question in enumerate(graph.questions):
        evidence = set(question.evidence)
        for j, turn_ids in enumerate(sources):
            if turn_ids & evidence:
                (positive if turn_ids <= evidence else ignored)[i, j] = True
    is_answered = positive.any(1)
    return TextExample(
        graph.name,
        tuple(texts[row] for row in rows),
        torch.tensor([i for i, row in enumerate(rows) if snapshot.types[row] == EPISODE], dtype=torch.int64),
        tuple(q.text for q, keep in zip(graph.questions, is_answered.tolist(), strict=True) if keep),
        positive[is_answered],
        ignored[is_answered],
    )


class TextAdaptation(LowRankTraining):
    """Lightning module that trains an adapter.

    Args:
        encoder: sentence-transformers model with a trainable adapter.
        config: Settings of the training.
        examples: Number of training examples per epoch; it sets the length of the learning-rate schedule.
        seed: Random seed of negatives and dropout.
        recompute: Whether activations are computed again in the backward pass, see ``TrainerConfig``.
    """

    def __init__(
        self, encoder: Any, config: AdapterConfig, *, examples: int, seed: int, recompute: bool = False
    ) -> None:
        super().__init__(config, examples=examples, seed=seed)
        self.encoder = encoder
        self.config = config
        self._recompute = recompute

    @property
    def transformer(self) -> Any:
        """See ``LowRankTraining``."""
        return self.encoder[0].auto_model

    def training_step(self, batch: TextExample, batch_idx: int) -> Tensor:
        """Contrastive loss of questions against their answers and sampled negatives."""
        needed = batch.positive.any(0)
        others = (~needed).nonzero().flatten()
        drawn = others[torch.randperm(len(others), generator=self._generator)[: self.config.negatives]]
        chosen = torch.cat([needed.nonzero().flatten(), drawn])
        documents = [batch.documents[i] for i in chosen.tolist()]
        logits = self._cosines(batch.questions, documents) / self.config.temperature
        loss = multi_positive_loss(logits, batch.positive[:, chosen], ignore=batch.ignored[:, chosen])
        self.log("train/ranking", loss.detach(), on_step=False, on_epoch=True, batch_size=1)
        return loss

    def validation_step(self, batch: TextExample, batch_idx: int) -> None:
        """Compute recall and nDCG of the turns when ranked by cosine similarity alone."""
        turns = [batch.documents[i] for i in batch.turns.tolist()]
        self._scores.add(self._cosines(batch.questions, turns), batch.positive[:, batch.turns])

    def _cosines(self, questions: Sequence[str], documents: Sequence[str]) -> Tensor:
        return inner_products(self._embed(questions), self._embed(documents))

    def _embed(self, texts: Sequence[str]) -> Tensor:
        """Unit-length embeddings, [texts, dim]; windows are batched by length, which keeps padding low."""
        most = min(self.config.max_tokens, self.encoder.max_seq_length or self.config.max_tokens)
        prompt = self.encoder.prompts.get(self.encoder.default_prompt_name or "", "")  # as ``encode`` puts before texts
        parts = [(at, part) for at, text in enumerate(texts) for part in windows_read(text)]
        parts.sort(key=lambda each: len(each[1]))
        rows = []
        again = self._recompute and torch.is_grad_enabled()
        for start in range(0, len(parts), _ENCODED_AT_ONCE):
            batch = [prompt + part for _, part in parts[start : start + _ENCODED_AT_ONCE]]
            tokens = self.encoder.tokenizer(batch, padding=True, truncation=True, max_length=most, return_tensors="pt")
            features = {name: tensor.to(self.device) for name, tensor in tokens.items()}
            rows.append(checkpoint(self._encode, features, use_reentrant=False) if again else self._encode(features))
        units = F.normalize(torch.cat(rows), dim=1)
        sums = units.new_zeros(len(texts), units.shape[1])
        sums.index_add_(0, torch.tensor([at for at, _ in parts], device=units.device), units)
        return F.normalize(sums, dim=1)

    def _encode(self, features: dict[str, Tensor]) -> Tensor:
        # Of a copy, into which the encoder writes its results: kept with the batch, they would outlive it.
        embeddings: Tensor = self.encoder(dict(features))["sentence_embedding"]
        return embeddings[:, : self.encoder.truncate_dim].float()  # as ``encode`` cuts them

    def configure_optimizers(self) -> Any:
        """AdamW on the adapter's weights; the learning rate rises linearly, then falls linearly to 0."""
        learnt = [parameter for parameter in self.parameters() if parameter.requires_grad]
        optimiser = torch.optim.AdamW(learnt, lr=self.config.lr, weight_decay=self.config.weight_decay)
        return self.scheduled(optimiser)


def train_adapter(data: Sequence[TrainingSet], config: AdapterConfig, run: TrainingRun, *, model: str) -> TextAdapter:
    """Train an adapter, resume its interrupted training, or read the finished one of the same identity.

    Args:
        data: One training set per corpus, at least one; the embeddings of the graphs are not used.
        config: Settings of the training.
        run: The adapter is written to its folder's subfolder ``adapter``.
        model: Name or folder of the text encoder.

    Raises:
        TrainingDataError: If there is no question to learn from, or a space is in both training and validation.
        TrainingError: If ``trainer.compile`` is set, which is for the graph network only.
        TextEncoderError: If the text encoder cannot be loaded.
    """
    if run.trainer.compile:
        raise TrainingError("trainer.compile is for the graph network; leave it out to train an adapter")
    graphs = graphs_of(data)
    made = [(text_example(graph, turn_before=config.turn_before), graph.is_training) for graph in graphs]
    examples = [(example, is_training) for example, is_training in made if example.questions]
    if not any(is_training for _, is_training in examples):
        raise TrainingDataError("no training space has a question with evidence; the text encoder learns from these")
    identity = RunIdentity(
        ADAPTER_ALGORITHM,
        dataclasses.asdict(config),
        run.seed,
        identified(model),
        run.trainer.precision,
        run.trainer.recorded_devices,
        *train_and_validation_spaces(data),
        data={"texts": _fingerprint([example for example, _ in examples])},
        questions=questions_fingerprint(graphs),
    )
    target = run.folder / "adapter"
    steps = [part for example, is_training in examples if is_training for part in example.parts(config.questions)]

    def module() -> TextAdaptation:
        encoder = load_model(model, device="cpu")  # Lightning moves it
        without_own_dropout(encoder)
        encoder.to(getattr(torch, config.frozen_dtype))
        add_adapter(encoder, rank=config.rank, dropout=config.dropout, last_blocks=config.last_blocks)
        for parameter in encoder.parameters():
            if parameter.requires_grad:  # its changes are too small for fewer digits
                parameter.data = parameter.data.float()
        encoder.train()  # it is loaded in evaluation mode
        return TextAdaptation(encoder, config, examples=len(steps), seed=run.seed, recompute=run.trainer.recompute)

    return finished_or_trained(
        module,
        (steps, [example for example, is_training in examples if not is_training]),
        config,
        run,
        identity,
        stage="adapt",
        read=lambda: read_adapter(target, base=model),
        save=lambda trained, details: save_adapter(
            trained.encoder, target, base=model, details=details, seen=seen_texts_of(graphs)
        ),
    )


def _fingerprint(examples: Sequence[TextExample]) -> str:
    """Hash of all texts and of which answers which, 12 hexadecimal digits; it keeps the texts out of the manifest."""
    digest = hashlib.sha256()
    for example in examples:
        for text in (example.name, *example.documents, *example.questions):
            digest.update(text.encode() + b"\x1f")
        for marked in (example.turns, example.positive, example.ignored):
            digest.update(marked.numpy().tobytes())
    return digest.hexdigest()[:12]

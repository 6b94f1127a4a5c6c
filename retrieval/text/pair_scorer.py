"""Scores of pairs of a question and a text, which a text encoder reads together: the network of a reranker.

Unlike a vector search, it sees which word of the question meets which word of the text; so it costs a run of the
encoder for each pair. It starts as the text encoder with its adapter; the cosine of the two halves of a pair is added
to what the layers on top of it learn.

Source:
    Nogueira and Cho 2019, "Passage Re-ranking with BERT", arXiv:1901.04085; mean pooling of both halves and the
    features of the head as in Reimers and Gurevych 2019, "Sentence-BERT", arXiv:1908.10084.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (the name every PyTorch reader knows)
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from locigraph.kg.embedded_text import windows
from locigraph.kg.files import check_seal, parsed_json, replaced_folder, sealed, whole_folder
from locigraph.kg.language.seen_texts import SeenTexts, seen_spaces
from locigraph.kg.language.tokens import with_named_emoji, words
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.text.local_models import identified
from locigraph.retrieval.text.text_adapter import TextAdapter, add_adapter, are_finite, merge_adapter, start_from
from locigraph.retrieval.text.text_encoder import load_model

_WEIGHTS, _MANIFEST = "reranker.safetensors", "manifest.json"
_AT_ONCE = 32
_HEAD = 128
# Bring the features of the head to about the same size as those of a standardised input.
_PRODUCT_SCALE, _INPUT_SCALE = 20.0, 3.0
_FIRST_SCALE = 10.0


class PairScorer(nn.Module):
    """Network that scores pairs of a question and a text.

    Args:
        model: Name or folder of the text encoder.
        rank: Rank of its trainable low-rank updates.
        max_tokens: Length to which a pair is cut, in tokens: first the longer half loses its end.
        adapter: Adapter of the text encoder to start from; None to start from the encoder itself.
        dropout: Dropout rate on the input of the low-rank updates.

    Raises:
        TextEncoderError: If the text encoder cannot be loaded, or its tokeniser cannot read pairs.
    """

    def __init__(
        self, model: str, *, rank: int, max_tokens: int, adapter: TextAdapter | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        encoder = load_model(model, device="cpu")
        self._tokenizer: Any = encoder.tokenizer
        if not getattr(self._tokenizer, "is_fast", False):
            raise TextEncoderError(
                f"text encoder {model!r}: its tokeniser does not tell the two halves of a pair apart"
            )
        self._max_tokens = min(max_tokens, encoder.max_seq_length or max_tokens)
        add_adapter(encoder, rank=rank, dropout=dropout)
        if adapter is not None:
            start_from(encoder, adapter)
        self.transformer: Any = encoder[0].auto_model
        width = int(self.transformer.config.hidden_size)
        self.head = nn.Sequential(nn.Linear(4 * width, _HEAD), nn.GELU(), nn.Linear(_HEAD, 1))
        self.scale = nn.Parameter(torch.tensor(_FIRST_SCALE))

    def forward(self, questions: Sequence[str], texts: Sequence[str]) -> Tensor:
        """Scores, float32 [pairs]; higher is more likely evidence."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))  # keeps padding low
        scores = [
            self._scores([questions[i] for i in part], [texts[i] for i in part])
            for part in (order[start : start + _AT_ONCE] for start in range(0, len(order), _AT_ONCE))
        ]
        place = torch.empty(len(order), dtype=torch.int64)
        place[torch.tensor(order, dtype=torch.int64)] = torch.arange(len(order))
        return torch.cat(scores)[place.to(scores[0].device)] if scores else torch.zeros(0)

    def _scores(self, questions: Sequence[str], texts: Sequence[str]) -> Tensor:
        device = self.scale.device
        pairs = [[with_named_emoji(text) for text in side] for side in (questions, texts)]
        tokens = self._tokenizer(
            *pairs, padding=True, truncation="longest_first", max_length=self._max_tokens, return_tensors="pt"
        )
        half = torch.tensor(
            [[-1 if which is None else which for which in tokens.sequence_ids(i)] for i in range(len(questions))],
            device=device,
        )
        states = self.transformer(**{name: each.to(device) for name, each in tokens.items()}).last_hidden_state.float()
        question, text = (F.normalize(_mean(states, half == which), dim=1) for which in (0, 1))
        features = torch.cat([question, text, question * text * _PRODUCT_SCALE, (question - text).abs()], 1)
        learnt: Tensor = self.head(features * _INPUT_SCALE).squeeze(1)
        return learnt.float() + self.scale * (question * text).sum(1)

    def learnt(self) -> dict[str, Tensor]:
        """The weights that are not those of the text encoder, by name."""
        return {name: each for name, each in self.named_parameters() if each.requires_grad}

    def merge(self) -> None:
        """Merge the low-rank updates into the encoder, so that scoring takes no longer than encoding; for good."""
        merge_adapter(self.transformer)


def _mean(states: Tensor, chosen: Tensor) -> Tensor:
    weights = chosen.unsqueeze(-1).to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1).clamp(min=1.0)


def window_for(question: str, text: str) -> str:
    """The window of a text that is read, the one that shares most words with the question; a short text has one."""
    parts = windows(text)
    if len(parts) == 1:
        return parts[0]
    wanted = {*words(question)}
    return max(parts, key=lambda part: len(wanted & {*words(part)}))


@dataclass(frozen=True)
class TrainedReranker:
    """A reranker on disk.

    Attributes:
        folder: Its folder.
        base: Name of the text encoder that it reads with.
        base_id: The same, with a hash of its files if it is a folder; see ``local_models.identified``.
        version: Twelve hexadecimal digits of a hash of its weights.
        settings: Rank of its updates, length of pairs, and how its scores are used (``retrieval.rerank``).
        details: What the manifest records of the training: data, seed, commit, validation scores.
        seen: The texts of the turns and questions that it was trained or validated on; None if they are not recorded.
    """

    folder: Path
    base: str
    base_id: str
    version: str
    settings: Mapping[str, float]
    details: Mapping[str, Any]
    seen: SeenTexts | None = None

    @property
    def spaces(self) -> frozenset[str]:
        """Conversations that it was trained or validated on."""
        return seen_spaces(self.details)

    def scorer(self) -> PairScorer:
        """The network, ready to score.

        Raises:
            TextEncoderError: If the weights do not fit the text encoder, or this has other files than in the training.
        """
        if self.base_id != identified(self.base):
            raise TextEncoderError(
                f"{self.folder}: the reranker was trained on text encoder {self.base!r} with other files; put these "
                "back, or train it again"
            )
        made = PairScorer(self.base, rank=int(self.settings["rank"]), max_tokens=int(self.settings["max_tokens"]))
        try:
            weights = load_file(self.folder / _WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise TextEncoderError(f"{self.folder / _WEIGHTS}: cannot be read ({error})") from error
        own = made.learnt()
        if {name: each.shape for name, each in own.items()} != {name: each.shape for name, each in weights.items()}:
            raise TextEncoderError(f"{self.folder}: the reranker does not fit text encoder {self.base!r}")
        if not are_finite(weights):
            raise TextEncoderError(f"{self.folder}: the weights hold NaN or infinity; train the reranker again")
        made.load_state_dict(weights, strict=False)
        made.merge()
        return made.eval()


def save_reranker(
    scorer: PairScorer,
    folder: Path,
    *,
    base: str,
    settings: Mapping[str, float],
    details: Mapping[str, Any],
    seen: SeenTexts,
) -> TrainedReranker:
    """Write a reranker to a folder; one that is there is replaced.

    Args:
        scorer: The trained network.
        folder: Folder to write.
        base: Name of the text encoder.
        settings: As in ``TrainedReranker``.
        details: What the manifest is to record of the training.
        seen: The texts of the turns and questions of the training.
    """
    weights = {name: each.detach().float().cpu().contiguous() for name, each in scorer.learnt().items()}
    with replaced_folder(folder) as part:
        save_file(weights, part / _WEIGHTS)
        seen.save(part)
        manifest = {
            "base": base, "base_id": identified(base), "version": _version(part),
            "settings": dict(settings), "details": dict(details),
            "kind": "reranker",
        }  # fmt: skip
        (part / _MANIFEST).write_text(sealed(manifest))
    return read_reranker(folder)


def read_reranker(folder: Path) -> TrainedReranker:
    """Read what the manifest says of a reranker, without loading the weights.

    Raises:
        TextEncoderError: If there is none, or it is damaged.
    """
    folder = whole_folder(folder)
    cure = "name a folder that locigraph train-reranker wrote"
    try:
        manifest = parsed_json((folder / _MANIFEST).read_text())
        if manifest.get("kind") != "reranker":
            raise TextEncoderError(f"{folder}: this is no reranker; {cure}")
        base = str(manifest["base"])
        base_id = str(manifest.get("base_id") or identified(base))  # earlier versions did not record it
        found = TrainedReranker(
            folder, base, base_id, str(manifest["version"]),
            dict(manifest["settings"]), dict(manifest["details"]), SeenTexts.read(folder),
        )  # fmt: skip
        version = _version(folder)
        check_seal(manifest)
    except OSError as error:
        raise TextEncoderError(
            f"{folder}: no reranker found there ({error.filename}: {error.strerror}); {cure}"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TextEncoderError(f"{folder / _MANIFEST}: damaged ({error!r}); train the reranker again") from error
    if version != found.version:
        raise TextEncoderError(
            f"{folder}: the weights are of version {version} but the manifest says {found.version}; train it again"
        )
    return found


def is_reranker(folder: Path) -> bool:
    """Whether a folder holds a reranker of ours rather than a cross-encoder of another library."""
    return (whole_folder(folder) / _WEIGHTS).is_file()


def _version(folder: Path) -> str:
    return hashlib.sha256((folder / _WEIGHTS).read_bytes()).hexdigest()[:12]

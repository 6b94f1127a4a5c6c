"""Small models of the same classes as the real ones, with random weights and letters as vocabulary."""

from __future__ import annotations

from pathlib import Path

import torch

_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
_SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}


def _tokeniser(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = [*_WORDS, *(f"##{word}" for word in _WORDS[5:])]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    letters = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    letters.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=letters, model_max_length=128, **special).save_pretrained(folder)


def tiny_cross_encoder(folder: Path) -> str:
    """Write a cross-encoder; returns the name of its folder."""
    from transformers import BertConfig, BertForSequenceClassification

    folder.mkdir()
    _tokeniser(folder)
    config = BertConfig(vocab_size=2 * len(_WORDS), num_labels=1, **_SMALL)
    BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


def tiny_text_encoder(folder: Path, *, seed: int = 0, blocks: int = 1) -> str:
    """Write a sentence-transformers model with 16 dimensions; returns the name of its folder."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel

    bert = folder.with_name(folder.name + "-bert")
    bert.mkdir()
    _tokeniser(bert)
    torch.manual_seed(seed)
    BertModel(BertConfig(vocab_size=2 * len(_WORDS), **{**_SMALL, "num_hidden_layers": blocks})).save_pretrained(bert)
    words = Transformer(str(bert))
    SentenceTransformer(modules=[words, Pooling(16)], device="cpu").save(str(folder))
    return str(folder)

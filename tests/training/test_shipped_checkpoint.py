"""The checkpoint in checkpoints/ is what its README says."""

from __future__ import annotations

import re
from pathlib import Path

from kg.corpora import load_corpus
from retrieval.text_encoder import DEFAULT_MODEL
from training.checkpoint import load_checkpoint

FOLDER = Path(__file__).parents[2] / "checkpoints" / "default"


def test_it_loads_for_the_default_text_encoder_and_is_small() -> None:
    loaded = load_checkpoint(FOLDER, text_encoder=DEFAULT_MODEL)
    assert loaded.text_dim == 384
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 6_000_000


def test_it_has_seen_the_bundled_training_corpus_longmemeval_and_nothing_else() -> None:
    loaded = load_checkpoint(FOLDER)
    corpus = load_corpus("jsonl", "threads")
    assert loaded.details["settings"]["corpus"]["sha256"] == corpus.sha256
    seen = {*loaded.details["identity"]["train"], *loaded.details["identity"]["validation"]}
    bundled = {str(c.space) for c in corpus.conversations}
    assert bundled <= seen
    # LongMemEval names its conversations by question: eight hexadecimal digits, or "gpt4_" and as many.
    assert len(seen - bundled) == 94
    assert all(re.fullmatch(r"(gpt4_)?[0-9a-f]{8}(_abs|_[0-9])?", space) for space in seen - bundled)


def test_its_related_terms_are_of_like_meaning() -> None:
    related = load_checkpoint(FOLDER).sketch.related
    assert {"dog", "cat"} <= related.of(["pet"]).keys()
    assert "kid" in related.of(["child"])

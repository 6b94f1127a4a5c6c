from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from locigraph.assembly.search_parts import named_reranker, trained_reranker
from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, SpaceId
from locigraph.kg.views import Views
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.rerank import LearntReranker, RerankedRetriever
from locigraph.retrieval.text.pair_scorer import PairScorer, is_reranker, read_reranker, window_for
from locigraph.retrieval.text.text_adapter import add_adapter, apply_adapter, save_adapter
from locigraph.retrieval.text.text_encoder import load_model
from locigraph.training.config import AdapterConfig, RerankerConfig
from locigraph.training.errors import TrainingDataError, TrainingError
from locigraph.training.folds import refuse_trained_on
from locigraph.training.identity import TrainingRun
from locigraph.training.reranker import rerank_example, train_reranker
from locigraph.training.snapshots import TrainingGraph, TrainingSet
from tests.fakes import FakeEncoder, make_turns
from tests.fakes_graph import CPU, TEXT_DIM, hit, make_snapshot
from tests.fakes_models import tiny_cross_encoder, tiny_text_encoder
from tests.retrieval.test_rerank import OneRanking
from tests.training.interrupted import cut_after_two_epochs

ENCODER = FakeEncoder(TEXT_DIM)
ANIMALS = ("cat", "dog", "hen", "owl", "fox", "bee")


def marked_space(number: int) -> tuple[Snapshot, list[Question]]:
    """A space with two turns for each animal, alike for a search, of which the one with a z is always the answer."""
    space = SpaceId(f"marked{number}")
    endings = [("zzzz", "qqqq") if (number + i) % 2 else ("qqqq", "zzzz") for i in range(len(ANIMALS))]
    lines = [f"{animal} {end}" for animal, ends in zip(ANIMALS, endings, strict=True) for end in ends]
    turns = make_turns(lines, space=space)
    questions = [
        Question(space, f"{space}-{i}", f"which {animal}", "1", (turns[2 * i + ends.index("zzzz")].turn_id,))
        for i, (animal, ends) in enumerate(zip(ANIMALS, endings, strict=True))
    ]
    return make_snapshot(turns, encoder=ENCODER, key_offset=1 + 100 * number), questions


SPACES = {snapshot.space: (snapshot, questions) for snapshot, questions in map(marked_space, range(1, 4))}
DATA = TrainingSet(
    tuple(q for _, questions in SPACES.values() for q in questions),
    ("marked1", "marked2"),
    ("marked3",),
    Views(lambda space, as_of: SPACES[space][0], {}),
)
CONFIG = RerankerConfig(rank=2, epochs=12, questions=3, depth=8, hard=4, lr=1e-2, head_lr=2e-2, weight=1.0, patience=12)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_text_encoder(tmp_path_factory.mktemp("models") / "tiny")


def trained(base: str, folder: Path, config: RerankerConfig = CONFIG, **changes: Any) -> Any:
    data = dataclasses.replace(DATA, **changes)
    run = TrainingRun(folder, CPU, seed=0, details={"commit": "c"})
    return train_reranker([data], config, run, model=base, encoder=ENCODER, adapter=None)


def test_the_candidates_of_a_question_are_the_turns_that_a_search_ranks_highest() -> None:
    snapshot, questions = SPACES[SpaceId("marked1")]
    graph = TrainingGraph("marked1", lambda: snapshot, tuple(questions), True)
    example = rerank_example(graph, ENCODER, depth=3)
    first = example.asked[0]
    assert {*first.texts[:2]} == {"Ann: cat zzzz", "Ben: cat qqqq"} or {*first.texts[:2]} == {
        "Ann: cat qqqq",
        "Ben: cat zzzz",
    }
    assert first.is_answer.tolist() == ["zzzz" in text for text in first.texts]
    assert [len(part.asked) for part in example.parts(4)] == [4, 2]
    unfound = dataclasses.replace(questions[0], text="owl fox", evidence=questions[0].evidence)
    graph = TrainingGraph("marked1", lambda: snapshot, (unfound,), True)
    assert rerank_example(graph, ENCODER, depth=1).asked == ()  # none of what it finds answers


def test_a_trained_reranker_puts_first_what_a_search_cannot_tell_apart(base: str, tmp_path: Path) -> None:
    made = trained(base, tmp_path)
    assert made.spaces == {"marked1", "marked2", "marked3"}
    assert made.details["validation"]["val_score"] == 2.0  # recall and nDCG
    learnt = LearntReranker(read_reranker(tmp_path / "reranker"))
    texts = [f"Ann: {animal} {end}" for animal in ("ant", "elk", "cow") for end in ("qqqq", "zzzz")]
    hits = [hit(text, "episode") for text in texts]
    ranked = learnt.rerank("which elk", hits, texts)
    assert [each.text[-4:] for each in ranked] == ["zzzz"] * 3 + ["qqqq"] * 3
    assert all("rerank" in each.signals for each in ranked)
    with torch.inference_mode():
        fresh = PairScorer(base, rank=2, max_tokens=64).eval()(["which elk"] * 6, texts).tolist()
    assert sorted(texts, key=lambda text: -fresh[texts.index(text)]) != [each.text for each in ranked]


def test_hits_beyond_its_depth_keep_their_order_and_distances(base: str, tmp_path: Path) -> None:
    made = trained(base, tmp_path, dataclasses.replace(CONFIG, epochs=1, shown=2))
    reranker = LearntReranker(made)
    hits = [dataclasses.replace(hit(f"Ann: {n}", "episode"), score=4.0 - n) for n in range(4)]
    ranked = reranker.rerank("which", hits, [each.text for each in hits])
    assert [each.node_id for each in ranked[2:]] == [each.node_id for each in hits[2:]]
    assert [each.score - ranked[1].score for each in ranked[2:]] == pytest.approx([-1.0, -2.0])
    assert reranker.rerank("which", [], []) == []


def test_a_reranker_is_not_used_on_a_text_encoder_with_other_files(tmp_path: Path) -> None:
    base = tiny_text_encoder(tmp_path / "model")
    made = trained(base, tmp_path, dataclasses.replace(CONFIG, epochs=1))
    shutil.rmtree(base)
    shutil.rmtree(f"{base}-bert")
    tiny_text_encoder(tmp_path / "model", seed=7)
    with pytest.raises(TextEncoderError, match=r"was trained on text encoder '.*model' with other files"):
        LearntReranker(made).rerank("which", [hit("Ann: 1", "episode")], ["Ann: 1"])


def test_a_scorer_starts_with_the_weights_of_the_adapter(base: str, tmp_path: Path) -> None:
    encoder = load_model(base, device="cpu")
    add_adapter(encoder, rank=2, dropout=0.0)
    torch.manual_seed(0)
    for name, weights in encoder.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(weights, std=0.3)
    details = {"identity": {"config": dataclasses.asdict(AdapterConfig(rank=2)), "train": [], "validation": []}}
    adapter = save_adapter(encoder, tmp_path / "adapter", base=base, details=details, seen=SeenTexts())
    apply_adapter(adapted := load_model(base, device="cpu"), adapter)
    started = PairScorer(base, rank=3, max_tokens=64, adapter=adapter)
    assert not any(name.startswith("transformer.pooler") for name in started.learnt())
    started.merge()
    for wanted, model in ((True, adapted[0].auto_model), (False, load_model(base, device="cpu")[0].auto_model)):
        pairs = zip(linear_weights(model), linear_weights(started.transformer), strict=True)
        assert all(torch.allclose(one, other, atol=1e-5) for one, other in pairs) is wanted
    with pytest.raises(TextEncoderError, match="larger rank"):
        PairScorer(base, rank=1, max_tokens=64, adapter=adapter)


def linear_weights(model: Any) -> list[torch.Tensor]:
    return [layer.weight.detach() for layer in model.modules() if isinstance(layer, torch.nn.Linear)]


def test_only_the_dropout_of_the_updates_is_switched_on(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, float] = {}

    def stop(module: Any, *arguments: Any, **options: Any) -> None:
        layers = module.scorer.named_modules()
        seen.update({name: layer.p for name, layer in layers if isinstance(layer, torch.nn.Dropout)})
        raise KeyboardInterrupt

    monkeypatch.setattr("locigraph.training.low_rank.run_lightning", stop)
    with pytest.raises(KeyboardInterrupt):
        trained(base, tmp_path, dataclasses.replace(CONFIG, dropout=0.1))
    assert {p for name, p in seen.items() if "lora_dropout" in name} == {0.1}
    assert {p for name, p in seen.items() if "lora_dropout" not in name} == {0.0}


def test_scores_do_not_depend_on_the_other_pairs_of_a_call(base: str) -> None:
    scorer = PairScorer(base, rank=2, max_tokens=64).eval()
    texts = [f"{'word ' * (i % 7)}end {i}" for i in range(40)]
    with torch.inference_mode():
        together = scorer(["which word"] * 40, texts)
        alone = torch.cat([scorer(["which word"], [text]) for text in texts])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=1e-4)
    assert scorer([], []).shape == (0,)


def test_of_a_long_text_the_window_is_read_that_shares_most_words_with_the_question() -> None:
    text = "Ann: " + "We talked about the garden. " * 60 + "The kestrel sat on the roof. " + "Then we slept. " * 60
    assert "kestrel" in window_for("Where was the kestrel?", text)
    assert window_for("Where was it?", "Ann: here") == "Ann: here"


def test_an_interrupted_training_ends_as_a_whole_one(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = dataclasses.replace(CONFIG, epochs=3)
    whole = trained(base, tmp_path / "whole", short)
    epochs = cut_after_two_epochs(monkeypatch)
    with pytest.raises(RuntimeError, match="power cut"):
        trained(base, tmp_path / "cut", short)
    taken_up = trained(base, tmp_path / "cut", short)
    assert epochs == [0, 1, 2]
    assert taken_up.version == whole.version


def test_a_finished_training_is_read_and_a_damaged_one_made_anew(base: str, tmp_path: Path) -> None:
    short = dataclasses.replace(CONFIG, epochs=1)
    first = trained(base, tmp_path, short)
    assert is_reranker(first.folder)
    stamp = (first.folder / "manifest.json").stat().st_mtime_ns
    assert trained(base, tmp_path, short).version == first.version
    assert (first.folder / "manifest.json").stat().st_mtime_ns == stamp
    weights = bytearray((first.folder / "reranker.safetensors").read_bytes())
    weights[-1] ^= 1
    (first.folder / "reranker.safetensors").write_bytes(bytes(weights))
    with pytest.raises(TextEncoderError, match="the weights are of version"):
        read_reranker(first.folder)
    assert trained(base, tmp_path, short).version == first.version
    (first.folder / "manifest.json").write_text("{}")
    with pytest.raises(TextEncoderError, match="no reranker"):
        read_reranker(first.folder)
    with pytest.raises(TextEncoderError, match="no reranker found there"):
        read_reranker(tmp_path / "absent")


def test_a_reranker_is_named_by_its_folder_beside_cross_encoders_of_other_libraries(base: str, tmp_path: Path) -> None:
    made = trained(base, tmp_path, dataclasses.replace(CONFIG, epochs=1))
    assert trained_reranker(None) is None
    assert trained_reranker(tiny_cross_encoder(tmp_path / "cross")) is None
    named = trained_reranker(str(made.folder))
    assert named is not None
    assert named.version == made.version
    hits = [hit(text, "episode") for text in ("Ann: cat qqqq", "Ann: cat zzzz")]
    found = RerankedRetriever(OneRanking(hits), named_reranker(made.folder)).retrieve("which cat", SpaceId("one"))
    assert {each.node_id for each in found.hits} == {each.node_id for each in hits}
    assert all("rerank" in each.signals for each in found.hits)


def test_a_reranker_is_not_tested_on_what_it_was_trained_on(base: str, tmp_path: Path) -> None:
    made = trained(base, tmp_path, dataclasses.replace(CONFIG, epochs=1))
    with pytest.raises(Exception, match=r"reranker .* was trained or validated on space 'marked1'"):
        refuse_trained_on(made, SPACES[SpaceId("marked1")][1], option="reranker")
    assert made.seen is not None
    assert "which cat" in made.seen


def test_what_cannot_be_trained_is_said(base: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="a reranker learns from these"):
        trained(base, tmp_path, questions=())
    refused = {"compile": dataclasses.replace(CPU, compile=True), "recompute": dataclasses.replace(CPU, recompute=True)}
    for option, trainer in refused.items():
        with pytest.raises(TrainingError, match=rf"trainer\.{option}"):
            train_reranker(
                [DATA], CONFIG, TrainingRun(tmp_path, trainer, 0, {}), model=base, encoder=ENCODER, adapter=None
            )
    with pytest.raises(TrainingError, match=r"reranker\.dropout"):
        RerankerConfig(dropout=1.0)

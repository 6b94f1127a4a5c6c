from __future__ import annotations

import ast
import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.utils.checkpoint import checkpoint

from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import Question, SpaceId, TurnId
from locigraph.kg.views import Views
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.text.text_encoder import CachedTextEncoder, load_model
from locigraph.training import adapter
from locigraph.training.adapter import TextAdaptation, TextExample, text_example, train_adapter
from locigraph.training.config import AdapterConfig
from locigraph.training.errors import TrainingDataError, TrainingError
from locigraph.training.identity import ADAPTER_ALGORITHM, TrainingRun
from locigraph.training.snapshots import TrainingGraph, TrainingSet
from tests.fakes import SPACE, make_turns
from tests.fakes_graph import CPU, Extra, make_snapshot, planted_space
from tests.fakes_models import tiny_text_encoder
from tests.packages import ROOT
from tests.training.interrupted import cut_after_two_epochs

SPACES = {space.space: (space, questions) for space, questions in map(planted_space, range(1, 4))}
DATA = TrainingSet(
    tuple(q for _, questions in SPACES.values() for q in questions),
    ("planted1", "planted2"),
    ("planted3",),
    Views(lambda space, as_of: SPACES[space][0], {}),
)
CONFIG = AdapterConfig(rank=2, epochs=3, questions=4, negatives=5, lr=1e-2, dropout=0.1, patience=9)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_text_encoder(tmp_path_factory.mktemp("models") / "tiny")


def trained(base: str, folder: Path, config: AdapterConfig = CONFIG, **changes: Any) -> Any:
    data = dataclasses.replace(DATA, **changes)
    return train_adapter([data], config, TrainingRun(folder, CPU, seed=0, details={"commit": "c"}), model=base)


def example_of(snapshot: Snapshot, questions: Sequence[Question], *, turn_before: bool = True) -> TextExample:
    return text_example(TrainingGraph("space", lambda: snapshot, tuple(questions), True), turn_before=turn_before)


def test_turns_facts_and_events_answer_what_their_only_turn_answers() -> None:
    turns = make_turns(["Ann came", "Ben left", "Cat slept"])
    extras = [
        Extra("knowledge_node", "Ann is here", (0,)),
        Extra("event_node", "Ann and Ben met", (0, 1)),
        Extra("concept", "comings", (0,)),
        Extra("knowledge_node", "Cat is asleep", (2,)),
    ]
    asked = [
        Question(SPACE, "q1", "Who came?", "1", (turns[0].turn_id,)),
        Question(SPACE, "q2", "Who met?", "1", (turns[0].turn_id, turns[1].turn_id)),
        Question(SPACE, "q3", "Who knows?", "1", (TurnId("elsewhere"),)),
    ]
    example = example_of(make_snapshot(turns, extras), asked, turn_before=False)
    assert example.documents == (
        *(t.utterance for t in turns), "Ann is here", "Ann and Ben met", "Cat is asleep",
    )  # fmt: skip
    assert example.turns.tolist() == [0, 1, 2]
    assert example.questions == ("Who came?", "Who met?")
    # The event comes from two turns: an answer to the second question, neither right nor wrong for the first.
    assert example.positive.long().tolist() == [[1, 0, 0, 1, 0, 0], [1, 1, 0, 1, 1, 0]]
    assert example.ignored.long().tolist() == [[0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 0]]


def test_a_turn_is_read_with_the_one_before_it_where_the_adapter_reads_both() -> None:
    turns = make_turns(["Who came?", "Ann"])
    asked = [Question(SPACE, "q1", "Who?", "1", (turns[1].turn_id,))]
    snapshot = make_snapshot(turns, [Extra("knowledge_node", "Ann came", (1,))])
    example = example_of(snapshot, asked)
    first, second = (turn.utterance for turn in turns)
    assert example.documents == (first, f"{second}\n(in reply to {first})", "Ann came")


def test_a_space_is_dealt_out_in_parts_of_its_questions() -> None:
    snapshot, questions = SPACES[DATA.questions[0].space]
    example = example_of(snapshot, questions)
    parts = example.parts(4)
    assert [len(part.questions) for part in parts] == [4, 2]
    assert [q for part in parts for q in part.questions] == list(example.questions)
    assert torch.equal(torch.cat([part.positive for part in parts]), example.positive)
    assert all(part.documents == example.documents for part in parts)


class Spelling(TextAdaptation):
    """Texts to vectors by a table instead of a model."""

    table: dict[str, list[float]]

    def _embed(self, texts: Any) -> torch.Tensor:
        return torch.tensor([self.table[text] for text in texts])


def test_the_loss_is_that_of_answers_against_drawn_documents_without_the_ignored() -> None:
    module = Spelling(torch.nn.Linear(1, 1), AdapterConfig(temperature=1.0, negatives=10), examples=1, seed=0)
    module.log = lambda *args, **kwargs: None  # type: ignore[method-assign]  # there is no trainer
    module.table = {"q": [1.0, 0.0], "right": [1.0, 0.0], "wrong": [0.0, 1.0], "either": [1.0, 0.0]}
    example = TextExample(
        "space", ("right", "wrong", "either"), torch.tensor([0]), ("q",),
        torch.tensor([[True, False, False]]), torch.tensor([[False, False, True]]),
    )  # fmt: skip
    # log(1 + e^(0 - 1)): the wrong one has cosine 0, the right one 1, the third does not count.
    assert float(module.training_step(example, 0)) == pytest.approx(0.31326, abs=1e-5)


@pytest.mark.long
def test_what_it_learns_holds_for_a_conversation_it_has_not_seen(base: str, tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, rank=8, epochs=30, negatives=20, dropout=0.0)
    made = trained(base, tmp_path, config, validation=())
    assert made.details["validation"] == {"best_epoch": -1}
    assert made.spaces == {"planted1", "planted2"}
    snapshot, questions = SPACES[SpaceId("planted3")]
    example = example_of(snapshot, questions)
    rows = example.positive & ~torch.tensor([i in example.turns for i in range(len(example.documents))])

    def margin(adapter: Path | None) -> float:
        encoder = CachedTextEncoder(base, cache=tmp_path / "cache.sqlite", adapter=adapter, device="cpu")
        cosine = torch.from_numpy(encoder.encode(example.questions) @ encoder.encode(example.documents).T)
        return float(cosine[rows].mean() - cosine[~example.positive].mean())

    assert margin(made.folder) > 2 * margin(None)


def test_an_interrupted_training_ends_as_a_whole_one(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(base, tmp_path / "whole")
    epochs = cut_after_two_epochs(monkeypatch)
    with pytest.raises(RuntimeError, match="power cut"):
        trained(base, tmp_path / "cut")
    assert list((tmp_path / "cut").glob("*.ckpt"))
    taken_up = trained(base, tmp_path / "cut")
    assert epochs == [0, 1, 2]
    assert taken_up.version == whole.version
    assert taken_up.details["validation"] == whole.details["validation"]
    assert not list((tmp_path / "cut").glob("*.ckpt"))


def test_a_finished_training_is_read_and_one_of_other_settings_is_made_anew(base: str, tmp_path: Path) -> None:
    short = dataclasses.replace(CONFIG, epochs=1)
    first = trained(base, tmp_path, short)
    stamp = (first.folder / "manifest.json").stat().st_mtime_ns
    assert trained(base, tmp_path, short).version == first.version
    assert (first.folder / "manifest.json").stat().st_mtime_ns == stamp
    assert first.details["identity"]["devices"] == "auto"  # as the shipped adapter has it, though one was asked for
    other = trained(base, tmp_path, short, questions=DATA.questions[1:])
    assert other.details["identity"] != first.details["identity"]
    (tmp_path / "adapter" / "manifest.json").write_text("{}")  # damaged: made anew
    assert trained(base, tmp_path, short).version == first.version


def test_activations_that_are_computed_again_make_the_same_adapter(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "_ENCODED_AT_ONCE", 4)
    short = dataclasses.replace(CONFIG, epochs=1, dropout=0.3)
    kept = trained(base, tmp_path / "kept", short)
    recomputed: list[int] = []

    def counted(function: Any, features: dict[str, torch.Tensor], **options: Any) -> Any:
        recomputed.append(len(features["input_ids"]))
        return checkpoint(function, features, **options)

    monkeypatch.setattr(adapter, "checkpoint", counted)
    run = TrainingRun(tmp_path / "again", dataclasses.replace(CPU, recompute=True), 0, {"commit": "c"})
    made = train_adapter([DATA], short, run, model=base)
    assert made.version == kept.version
    assert len(recomputed) > 3
    assert max(recomputed) == 4


def test_only_the_last_blocks_change_where_so_many_are_asked_for(tmp_path: Path) -> None:
    deep = tiny_text_encoder(tmp_path / "deep", blocks=3)
    made = trained(deep, tmp_path / "adapted", dataclasses.replace(CONFIG, epochs=1, last_blocks=2))
    changed = load_file(made.folder / "adapter_model.safetensors")
    assert {name.split("layer.")[1].split(".")[0] for name in changed} == {"1", "2"}
    encoder = CachedTextEncoder(deep, cache=tmp_path / "cache.sqlite", adapter=made.folder, device="cpu")
    assert np.isfinite(encoder.encode(["Ann came"])).all()  # what is saved can be read
    with pytest.raises(TextEncoderError, match="last_blocks is 4; expected 1 to 3, which the text encoder has"):
        trained(deep, tmp_path / "more", dataclasses.replace(CONFIG, last_blocks=4))


def test_weights_that_do_not_change_may_be_held_in_half_the_memory_and_the_others_keep_their_digits(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dataclasses.replace(CONFIG, epochs=1, frozen_dtype="bfloat16")
    formats: list[dict[bool, set[torch.dtype]]] = []

    def step(training: TextAdaptation, batch: TextExample, batch_idx: int) -> torch.Tensor:
        found: dict[bool, set[torch.dtype]] = {True: set(), False: set()}
        for parameter in training.parameters():
            found[parameter.requires_grad].add(parameter.dtype)
        formats.append(found)
        return usual(training, batch, batch_idx)

    usual = TextAdaptation.training_step
    monkeypatch.setattr(TextAdaptation, "training_step", step)
    half = trained(base, tmp_path / "half", config, validation=())
    assert formats[0] == {True: {torch.float32}, False: {torch.bfloat16}}
    whole = trained(base, tmp_path / "whole", dataclasses.replace(CONFIG, epochs=1), validation=())
    a, b = (load_file(made.folder / "adapter_model.safetensors") for made in (half, whole))
    for name, weights in a.items():
        assert float(torch.cosine_similarity(weights.flatten(), b[name].flatten(), dim=0)) > 0.9


def test_what_may_answer_besides_is_part_of_the_settings(base: str, tmp_path: Path) -> None:
    short = dataclasses.replace(CONFIG, epochs=1)
    first = trained(base, tmp_path, short)
    snapshot, _ = SPACES[SpaceId("planted1")]
    # A fact of one turn is now of two: the answer to one question becomes neither right nor wrong.
    longer = np.vstack([snapshot.provenance, [[len(snapshot.ids) - 1, 0]]])
    other = dataclasses.replace(snapshot, provenance=longer[np.lexsort(longer.T[::-1])])
    views = Views(lambda space, as_of: other if space == "planted1" else SPACES[space][0], {})
    again = trained(base, tmp_path, short, views=views)
    assert again.details["identity"]["data"]["texts"] != first.details["identity"]["data"]["texts"]


def test_compiling_is_refused_rather_than_passed_over(base: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"trainer\.compile"):
        train_adapter([DATA], CONFIG, TrainingRun(tmp_path, dataclasses.replace(CPU, compile=True), 0, {}), model=base)


def test_no_question_to_learn_from_is_said(base: str, tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="no training space has a question"):
        trained(base, tmp_path, questions=())
    with pytest.raises(TrainingDataError, match=r"planted1.* leave it out of one"):
        trained(base, tmp_path, validation=("planted1",))


def test_training_reads_long_texts_in_the_same_windows_as_the_text_encoder(base: str, tmp_path: Path) -> None:
    long = "Ann: " + "We talked about the garden and the weather of June. " * 40
    module = TextAdaptation(
        load_model(base, device="cpu"), dataclasses.replace(CONFIG, max_tokens=512), examples=1, seed=0
    )
    module.eval()
    made = module._embed([long, "Ben: yes", long + "The boat is wet."]).detach().numpy()
    expected = CachedTextEncoder(base, cache=tmp_path / "c.sqlite", device="cpu").encode(
        [long, "Ben: yes", long + "The boat is wet."]
    )
    np.testing.assert_allclose(made, expected, atol=1e-4)


def test_training_cuts_vectors_as_the_text_encoder_does(base: str, tmp_path: Path) -> None:
    model = load_model(base, device="cpu")
    model.truncate_dim = 4
    model.save(str(tmp_path / "cut"))
    module = TextAdaptation(load_model(str(tmp_path / "cut"), device="cpu"), CONFIG, examples=1, seed=0).eval()
    said = ["Ana: We sold it!", "Tom: yes"]
    expected = CachedTextEncoder(str(tmp_path / "cut"), cache=tmp_path / "c.sqlite", device="cpu").encode(said)
    assert expected.shape == (2, 4)
    np.testing.assert_allclose(module._embed(said).detach().numpy(), expected, atol=1e-4)


def test_training_reads_emoji_and_a_default_prompt_as_the_text_encoder_does(base: str, tmp_path: Path) -> None:
    model = load_model(base, device="cpu")
    model.prompts, model.default_prompt_name = {"query": "search: "}, "query"
    model.save(str(tmp_path / "prompted"))
    folder = str(tmp_path / "prompted")
    module = TextAdaptation(load_model(folder, device="cpu"), CONFIG, examples=1, seed=0).eval()
    said = ["Ana: We sold it! 🎉🎂", "Tom: 👍", "Ana: We sold it!"]
    expected = CachedTextEncoder(folder, cache=tmp_path / "c.sqlite", device="cpu").encode(said)
    np.testing.assert_allclose(module._embed(said).detach().numpy(), expected, atol=1e-4)
    plain = CachedTextEncoder(base, cache=tmp_path / "c.sqlite", device="cpu").encode(said)
    assert np.abs(expected - plain).max() > 1e-3


def test_an_adapter_whose_weights_are_no_numbers_is_refused(base: str, tmp_path: Path) -> None:
    made = trained(base, tmp_path)
    weights = {
        name: array * float("nan") for name, array in load_file(made.folder / "adapter_model.safetensors").items()
    }
    encoder = CachedTextEncoder(base, cache=tmp_path / "c.sqlite", adapter=made.folder, device="cpu")
    save_file(weights, made.folder / "adapter_model.safetensors")
    with pytest.raises(TextEncoderError, match="hold NaN or infinity"):
        encoder.encode(["Ana: hello"])


#: Recorded with ``python -m tests.training.test_adapter``.
GOLDEN: dict[str, Any] = {"algorithm": 5, "cosines": [0.9695, 0.9421, 0.9419, 0.9589, 0.9787, 0.9711, 0.9587, 0.964]}


# The first steps of Adam are as long where a gradient is next to nothing as elsewhere, so that the rounding of one kind
# of processor moves the cosines by .0008. With these all compute alike.
SAME_ROUNDING = {"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


def golden_cosines(base: str, folder: Path) -> list[float]:
    """What a short training comes to: cosines of two questions and four facts of a space."""
    made = trained(base, folder)
    encoder = CachedTextEncoder(base, cache=folder / "cache.sqlite", adapter=made.folder, device="cpu")
    snapshot, questions = SPACES[SpaceId("planted1")]
    documents = example_of(snapshot, questions).documents[6:10]
    cosines = encoder.encode([q.text for q in questions[:2]]) @ encoder.encode(documents).T
    return [float(value) for value in cosines.flatten()]


@pytest.mark.long
def test_an_adapter_comes_to_what_its_algorithm_came_to_when_it_was_recorded() -> None:
    assert GOLDEN["algorithm"] == ADAPTER_ALGORITHM, "record the numbers of this algorithm as is said below"
    run = [sys.executable, "-m", "tests.training.test_adapter"]
    told = subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT, env=os.environ | SAME_ROUNDING)
    found = ast.literal_eval(told.stdout.rpartition("GOLDEN: dict[str, Any] = ")[2])
    assert found["cosines"] == pytest.approx(GOLDEN["cosines"], abs=5e-4), (
        "the outputs of a training changed: raise ADAPTER_ALGORITHM in training/identity.py, or finished adapters and "
        "resume points of the old algorithm are taken for the new one's; then record the new numbers with "
        "python -m tests.training.test_adapter, with the environment SAME_ROUNDING, and put them in GOLDEN"
    )


if __name__ == "__main__":
    import tempfile

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        cosines = golden_cosines(tiny_text_encoder(Path(name) / "tiny"), Path(name) / "adapt")
    recorded = {"algorithm": ADAPTER_ALGORITHM, "cosines": [round(value, 4) for value in cosines]}
    print(f"GOLDEN: dict[str, Any] = {recorded}")


def test_the_learning_rate_warms_up_for_at_most_a_quarter_of_the_steps_and_falls_to_its_end() -> None:
    class Adaptation(TextAdaptation):
        trainer = SimpleNamespace(world_size=1)  # type: ignore[assignment]

    module = Adaptation(torch.nn.Linear(2, 2), AdapterConfig(epochs=2, warmup_steps=100), examples=4, seed=0)
    (schedule,) = module.configure_optimizers()["lr_scheduler"]["scheduler"].lr_lambdas
    assert [schedule(step) for step in (0, 1, 4)] == [0.5, 0.875, 0.5]

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from locigraph.gnn.encoders import GRAPH_ENCODERS
from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.times import epoch
from locigraph.kg.types import Question, SpaceId
from locigraph.kg.views import Views
from locigraph.retrieval.text.text_adapter import add_adapter, save_adapter
from locigraph.retrieval.text.text_encoder import CachedTextEncoder, load_model
from locigraph.training.config import changed
from locigraph.training.identity import ADAPTER_ALGORITHM, CHECKPOINT_ALGORITHM, RunIdentity
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph
from locigraph.training.snapshots import TrainingSet
from tests.fakes import MONDAY, FakeEncoder, make_turns
from tests.fakes_graph import TEXT_DIM, Extra, make_snapshot, small_settings
from tests.fakes_models import tiny_text_encoder
from tests.training.planted import ENCODER, made_of

# --- what an identity is made of -----------------------------------------------------------------------------------

IDENTITY = RunIdentity(
    algorithm=CHECKPOINT_ALGORITHM,
    config={"model": {"encoder": "hgt"}, "training": {"lr": 0.1, "pretrain_losses": {"link": 1.0, "views": 2.0}}},
    seed=0,
    text_encoder="m+123",
    precision="32-true",
    devices=1,
    train=("a", "b"),
    validation=("c",),
    data={"a": "1", "b": "2", "c": "3"},
    questions="q",
    writer="rules",
)
OTHERS: dict[str, st.SearchStrategy[Any]] = {
    "algorithm": st.integers(),
    "config": st.fixed_dictionaries({"training": st.dictionaries(st.text(), st.floats(allow_nan=False))}),
    "seed": st.integers(),
    "text_encoder": st.text(),
    "precision": st.text(),
    "devices": st.integers() | st.text(),
    "train": st.tuples(st.text(), st.text()),
    "validation": st.tuples(st.text()),
    "data": st.dictionaries(st.text(), st.text()),
    "questions": st.text(),
    "writer": st.text() | st.none(),
}


@given(st.data())
def test_each_field_of_an_identity_changes_its_fingerprint(data: st.DataObject) -> None:
    assert set(OTHERS) == {field.name for field in fields(RunIdentity)}
    for name, values in OTHERS.items():
        value = data.draw(values, label=name)
        other = replace(IDENTITY, **{name: value})
        is_same = value == getattr(IDENTITY, name)
        assert (other.fingerprint == IDENTITY.fingerprint) == is_same, name
        assert (other.as_json() == IDENTITY.as_json()) == is_same, name


def test_an_identity_is_the_same_however_its_settings_are_ordered_and_after_a_manifest_was_read() -> None:
    reordered = replace(
        IDENTITY,
        config={"training": {"pretrain_losses": {"views": 2.0, "link": 1.0}, "lr": 0.1}, "model": {"encoder": "hgt"}},
    )
    assert reordered.fingerprint == IDENTITY.fingerprint
    assert reordered.as_json() == IDENTITY.as_json()
    assert RunIdentity(**IDENTITY.as_json()).fingerprint == IDENTITY.fingerprint
    assert len(IDENTITY.fingerprint) == 12


def test_a_seed_is_not_a_number_of_devices() -> None:
    assert replace(IDENTITY, seed=1, devices=0).fingerprint != replace(IDENTITY, seed=0, devices=1).fingerprint


def test_another_adapter_of_the_text_encoder_is_another_identity(tmp_path: Path) -> None:
    base = tiny_text_encoder(tmp_path / "tiny")
    encoders = [CachedTextEncoder(base, cache=tmp_path / "cache.sqlite", device="cpu")]
    for seed in range(2):
        torch.manual_seed(seed)
        model = load_model(base, device="cpu")
        add_adapter(model, rank=2, dropout=0.0)
        seen: dict[str, list[str]] = {"train": [], "validation": []}
        adapter = save_adapter(model, tmp_path / str(seed), base=base, details={"identity": seen}, seen=SeenTexts())
        encoders.append(
            CachedTextEncoder(base, cache=tmp_path / "cache.sqlite", adapter=tmp_path / str(seed), device="cpu")
        )
        assert adapter.version in encoders[-1].model_id
    made = [made_of(tmp_path / "run", encoder=FakeEncoder(TEXT_DIM, encoder.model_id)) for encoder in encoders]
    fingerprints = {RunIdentity(**checkpoint.details["identity"]).fingerprint for checkpoint in made}
    assert len(fingerprints) == len({checkpoint.version for checkpoint in made}) == 3


# --- what a training comes to --------------------------------------------------------------------------------------

PETS = ("otter", "heron", "badger", "lizard", "falcon", "beetle", "marmot")


def golden_space(number: int) -> tuple[Snapshot, tuple[Question, ...]]:
    """Two sessions with facts, dated events and topics; no trait is the same for all turns."""
    space = SpaceId(f"golden{number}")
    pets = [PETS[(number * 2 + i) % 7] for i in range(4)]
    lines = [
        f"My {pets[0]} sleeps", "Which one?", f"That one again, number {number}",
        f"Look at the {pets[3]}! [shares a photo]", "It is sweet", "Yes, the two of them are",
    ]  # fmt: skip
    turns = make_turns(lines[:3], lines[3:], space=space)
    extras = [
        *(Extra("knowledge_node", f"Ann keeps a {pet} at home", (i,)) for i, pet in enumerate(pets)),
        Extra("knowledge_node", "Ben asked which one sleeps", (1,)),
        Extra("event_node", f"Ann fed the {pets[2]}", (2, 3)),
        Extra("concept", "pets and animals", (0,)),
    ]
    edges = [(6 + i, "DERIVED_FROM", turn) for i, extra in enumerate(extras[:-1]) for turn in extra.turns]
    snapshot = make_snapshot(turns, extras, [*edges, (0, "HAS_CONCEPT", 12), (3, "HAS_CONCEPT", 12)])
    times = snapshot.valid_from.copy()
    times[11] = epoch(MONDAY)  # the event
    texts = [*(f"Who keeps the {pet} of {number}?" for pet in pets), f"Which pets did Ann feed on 1 January, {number}?"]
    gold = [(turns[i].turn_id,) for i in (0, 1, 2, 3)] + [(turns[2].turn_id, turns[3].turn_id)]
    asked = zip(texts, gold, strict=True)
    questions = [Question(space, f"{space}-{i}", text, "1", answer) for i, (text, answer) in enumerate(asked)]
    return replace(snapshot, valid_from=times), tuple(questions)


def golden_outputs(encoder: str, folder: Path) -> dict[str, list[float]]:
    """Of a small training: lengths of the turns' vectors, scores of two questions, and when a validated one stops."""
    spaces = {snapshot.space: (snapshot, questions) for snapshot, questions in map(golden_space, range(3))}
    questions = tuple(question for _, asked in spaces.values() for question in asked)
    views = Views(lambda space, as_of: spaces[space][0], {})
    # Large steps, so that what changes one of them shows in the numbers.
    settings = changed(
        small_settings(pretrain=1, finetune=2, encoder=encoder),
        {"training.edge_lr": 0.03, "training.scalar_lr": 0.03},
    )
    stages = []
    for held_back in ((), ("golden2",)):
        data = TrainingSet(questions, ("golden0", "golden1"), held_back, views)
        made = made_of(folder / str(len(held_back)), data, settings=settings)
        stages.append([value for result in made.details["stages"].values() for value in result.values()])
        if not held_back:
            snapshot, asked = spaces[SpaceId("golden2")]
            _, vectors = encode_graph(made, snapshot)
            asker = CheckpointQueryEncoder(made, ENCODER)
            queries = np.stack([asker.encode_query(asked[i].text) for i in (0, 4)])
    return {
        "lengths": np.linalg.norm(vectors, axis=1).tolist(),
        "scores": (queries @ vectors.T).flatten().tolist(),
        "stages": stages[1],
    }


#: Recorded with ``python -m tests.training.test_identity``.
GOLDEN: dict[str, Any] = {
    "algorithm": 7,
    "hgt": {
        "lengths": [2.6778, 2.6308, 4.5031, 4.4488, 2.3139, 2.2666],
        "scores": [1.1126, 0.7422, 0.4426, 0.5309, 0.1799, 0.1249, 1.0783, 0.7655, 1.4523, 1.3944, 0.5136, 0.1967],
        "stages": [-1, 1.9754, 1.9754, 0, 2.0, 1.9754],
    },
    "mixing": {
        "lengths": [2.6099, 2.5414, 4.0278, 4.3816, 2.303, 2.2891],
        "scores": [1.0717, 0.5204, 0.3407, 0.4977, 0.0736, 0.1219, 1.1074, 0.5869, 1.3763, 1.6114, 0.5245, 0.1665],
        "stages": [-1, 1.9754, 1.9754, -1, 1.9754, 1.9754],
    },
    "hgtconv": {
        "lengths": [2.6047, 2.5386, 4.0258, 4.3796, 2.3031, 2.2892],
        "scores": [1.0672, 0.5178, 0.3362, 0.4955, 0.0732, 0.1165, 1.1051, 0.587, 1.3736, 1.6118, 0.5221, 0.1675],
        "stages": [-1, 1.9754, 1.9754, -1, 1.9754, 1.9754],
    },
}


@pytest.mark.parametrize("encoder", list(GRAPH_ENCODERS))
def test_a_training_comes_to_what_its_algorithm_came_to_when_it_was_recorded(encoder: str, tmp_path: Path) -> None:
    assert GOLDEN["algorithm"] == CHECKPOINT_ALGORITHM, (
        f"CHECKPOINT_ALGORITHM is {CHECKPOINT_ALGORITHM}, but the numbers are of {GOLDEN['algorithm']}: record the new "
        "ones with python -m tests.training.test_identity and put them in GOLDEN"
    )
    found = golden_outputs(encoder, tmp_path)
    assert found == {name: pytest.approx(values, abs=5e-4) for name, values in GOLDEN[encoder].items()}, (
        "the outputs of a training changed: raise CHECKPOINT_ALGORITHM in training/identity.py, or finished trainings "
        "and resume points of the old algorithm are taken for the new one's; then record the new numbers with "
        "python -m tests.training.test_identity and put them in GOLDEN"
    )


def test_the_algorithm_of_adapters_is_counted_apart() -> None:
    first, second = (replace(IDENTITY, algorithm=number) for number in (CHECKPOINT_ALGORITHM, ADAPTER_ALGORITHM))
    assert first.fingerprint != second.fingerprint


if __name__ == "__main__":
    import tempfile

    torch.set_num_threads(1)
    recorded: dict[str, Any] = {"algorithm": CHECKPOINT_ALGORITHM}
    for each in GRAPH_ENCODERS:
        with tempfile.TemporaryDirectory() as name:
            outputs = golden_outputs(each, Path(name))
        recorded[each] = {key: [round(value, 4) for value in values] for key, values in outputs.items()}
    print(f"GOLDEN: dict[str, Any] = {recorded}")

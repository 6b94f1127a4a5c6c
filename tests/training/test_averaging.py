from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.training.averaging import averaged
from locigraph.training.checkpoint import Checkpoint
from locigraph.training.errors import CheckpointError
from locigraph.training.fusion import DETAIL, fusion_of
from tests.fakes_graph import small_checkpoint


def trained_on(space: str, weight: float, *, fusion: dict[str, float] | None = None) -> Checkpoint:
    made = small_checkpoint()
    weights = {name: np.full_like(array, weight) for name, array in made.weights.items()}
    identity = {"train": [space], "validation": [f"{space}-held"], "seed": 0}
    details: dict[str, Any] = {"identity": identity} | ({} if fusion is None else {DETAIL: fusion})
    return replace(made, weights=weights, details=details, seen=SeenTexts([space]))


def test_the_weights_of_network_and_fusion_are_the_mean() -> None:
    first = trained_on("a", 1.0, fusion={"dense": 0.5, "bm25": 0.5})
    second = trained_on("b", 4.0, fusion={"dense": 0.1, "date": 0.9})
    made = averaged([first, second], commit="abc")
    assert all(bool((parameter == 2.5).all()) for parameter in made.network.parameters())
    assert fusion_of(made).weights == {"dense": 0.3, "bm25": 0.25, "date": 0.45}
    assert made.details["commit"] == "abc"
    assert list(made.details["averaged"]) == [first.version, second.version]
    assert not made.network.training


def test_it_has_seen_what_each_has_seen(tmp_path: Any) -> None:
    made = averaged([trained_on("a", 1.0), trained_on("b", 2.0), trained_on("b", 3.0)])
    assert made.spaces == {"a", "b", "a-held", "b-held"}
    assert made.seen is not None
    assert "a" in made.seen
    assert "b" in made.seen
    unknown = replace(trained_on("c", 4.0), seen=None)
    assert averaged([unknown, trained_on("a", 1.0)]).seen is None  # what one has seen is not known


def test_a_checkpoint_that_is_named_twice_is_refused() -> None:
    with pytest.raises(CheckpointError, match="name each once"):
        averaged([trained_on("a", 1.0), trained_on("b", 2.0), trained_on("a", 1.0)])


def test_without_a_fusion_of_each_there_is_none() -> None:
    made = averaged([trained_on("a", 1.0, fusion={"dense": 1.0}), trained_on("b", 2.0)])
    with pytest.raises(CheckpointError, match="holds no fusion weights"):
        fusion_of(made)


def test_what_does_not_fit_together_is_refused() -> None:
    one = trained_on("a", 1.0)
    for others, message in (
        ([], "at least two checkpoints, got 1"),
        ([replace(one, text_encoder="other")], "text encoder is 'fake-bow' and 'other'"),
        ([replace(one, model=replace(one.model, encoder="mixing"))], "model is "),
    ):
        with pytest.raises(CheckpointError, match=message):
            averaged([one, *others])

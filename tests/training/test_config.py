from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from locigraph.gnn.encoders import GRAPH_ENCODERS
from locigraph.training.config import AdapterConfig, ModelConfig, Settings, TrainerConfig, TrainingConfig, changed
from locigraph.training.errors import TrainingError
from locigraph.training.objectives import LOSSES


def test_the_default_names_an_encoder_and_losses_that_their_tables_hold() -> None:
    default = Settings()
    assert default.model.encoder in GRAPH_ENCODERS
    assert set(default.training.pretrain_losses) == set(LOSSES)


def test_changes_by_dotted_names_reach_their_fields_and_no_others() -> None:
    default = Settings()
    made = changed(default, {"model.encoder": "mixing", "training.lr": 0.5, "training.epochs": 7})
    assert (made.model.encoder, made.training.lr, made.training.epochs) == ("mixing", 0.5, 7)
    undone = {"model.encoder": default.model.encoder, "training.lr": default.training.lr, "training.epochs": 20}
    assert changed(made, undone) == default
    assert default == Settings()


def test_a_change_of_an_unknown_field_names_the_nearest() -> None:
    with pytest.raises(TrainingError, match=r"model\.lexcal_dim.*'lexical_dim'"):
        changed(Settings(), {"model.lexcal_dim": 1})
    with pytest.raises(TrainingError, match=r"modle\.encoder.*'model'"):
        changed(Settings(), {"modle.encoder": "hgt"})


@pytest.mark.parametrize(
    ("devices", "number"), [("auto", 1), (1, 1), ("1", 1), (2, 2), (" 2", 2), (0, 0), (-1, "-1"), ("0,2", "0,2")]
)
def test_a_number_of_devices_is_one_however_it_is_written(devices: int | str, number: int | str) -> None:
    assert TrainerConfig(devices=devices).num_devices == number


@pytest.mark.parametrize(
    ("section", "wrong", "says"),
    [
        (ModelConfig, {"lexical_dim": 0}, r"model\.lexical_dim is 0; expected 1 or more"),
        (ModelConfig, {"speaker_dim": -1}, r"model\.speaker_dim is -1; expected 0 or more"),
        (ModelConfig, {"date_dim": 2**16 + 1}, r"model\.date_dim is 65537; expected at most 65536"),
        (ModelConfig, {"attention_dim": 0}, r"model\.attention_dim is 0"),
        (TrainingConfig, {"ema_decay": 1.0}, r"training\.ema_decay is 1.0; expected a share in \[0, 1\)"),
        (TrainingConfig, {"lr": float("nan")}, r"training\.lr is nan"),
        (TrainingConfig, {"pretrain_losses": {"link": -0.1}}, r"training\.pretrain_losses\.link is -0.1"),
        (TrainingConfig, {"pretrain_losses": {"link": float("nan")}}, r"training\.pretrain_losses\.link is nan"),
        (AdapterConfig, {"rank": 0}, r"adapter\.rank"),
        (AdapterConfig, {"epochs": 0}, r"adapter\.epochs"),
        (AdapterConfig, {"lr": -1.0}, r"adapter\.lr"),
        (AdapterConfig, {"temperature": 0.0}, r"adapter\.temperature"),
        (AdapterConfig, {"temperature": math.inf}, r"adapter\.temperature"),
        (TrainerConfig, {"keep_mb": -1}, r"trainer\.keep_mb"),
        (AdapterConfig, {"dropout": 1.0}, r"adapter\.dropout"),
        (AdapterConfig, {"negatives": 0}, r"adapter\.negatives"),
        (AdapterConfig, {"negatives": 10**30}, r"adapter\.negatives is 1000000000000.*expected at most 10000"),
        (AdapterConfig, {"rank": 10**9}, r"adapter\.rank is 1000000000; expected at most 384"),
    ],
)
def test_values_that_cannot_be_are_refused_by_name(section: Any, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(TrainingError, match=says):
        section(**wrong)


def test_no_number_of_the_training_may_be_negative_and_no_patience_would_learn_nothing() -> None:
    with pytest.raises(TrainingError, match=r"training\.patience is 0; expected 1 or more"):
        TrainingConfig(patience=0)
    for field in fields(TrainingConfig):
        if field.name != "pretrain_losses":
            wrong: dict[str, Any] = {field.name: -1}
            with pytest.raises(TrainingError, match=rf"training\.{field.name} is -1; expected . or more"):
                TrainingConfig(**wrong)


def test_relations_that_are_separated_by_commas_are_a_list_in_the_identity_of_a_training() -> None:
    assert ModelConfig(excluded_relations="NEXT,about") == ModelConfig(excluded_relations=["NEXT", "about"])
    assert ModelConfig(excluded_relations="*").excluded_relations == ["*"]

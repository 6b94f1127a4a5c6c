from __future__ import annotations

import sqlite3
from pathlib import Path

import optuna
import pytest
import sqlalchemy as sa

from locigraph.research.experiments.hyperparameters import SPACE, Between, OneOf, chosen_for, search_fold
from locigraph.training.config import Settings, changed
from locigraph.training.errors import TrainingError
from locigraph.training.leaks import Fold

FOLD = Fold(0, ("a", "b"), ("c",), ("d",))
TWO: dict[str, Between | OneOf] = {"model.attention_dim": OneOf((8, 32)), "training.scalar_lr": Between(1e-3, 1e-1)}


def test_every_default_lies_inside_the_space_that_is_searched() -> None:
    default = Settings()
    for name, choice in SPACE.items():
        section, _, field = name.partition(".")
        value = getattr(getattr(default, section), field)
        inside = value in choice.values if isinstance(choice, OneOf) else choice.low <= value <= choice.high
        assert inside, name


def test_the_first_trial_is_the_given_configuration_and_the_best_is_kept(tmp_path: Path) -> None:
    tried: list[Settings] = []

    def train(settings: Settings, name: str) -> float:
        tried.append(settings)
        return 1.0 if settings.model.attention_dim == 8 else 0.5

    found = search_fold(FOLD, Settings(), train, trials=8, folder=tmp_path, seed=0, space=TWO)
    assert tried[0] == Settings()
    assert len(found["trials"]) == len(tried) == 8
    assert found["best"]["model.attention_dim"] == 8
    assert changed(Settings(), found["best"]).model.attention_dim == 8
    assert found["test"] == ["d"]


@pytest.mark.parametrize("cut", [3, 6])
def test_an_interrupted_search_goes_on_with_the_trials_of_an_uninterrupted_one(cut: int, tmp_path: Path) -> None:
    calls = 0

    def train(settings: Settings, name: str) -> float:
        nonlocal calls
        calls += 1
        if calls == cut:
            raise KeyboardInterrupt
        return settings.training.lr * settings.model.attention_dim

    with pytest.raises(KeyboardInterrupt):
        search_fold(FOLD, Settings(), train, trials=8, folder=tmp_path / "cut", seed=0)
    found = search_fold(FOLD, Settings(), train, trials=8, folder=tmp_path / "cut", seed=0)
    assert calls == 9
    assert found == search_fold(FOLD, Settings(), train, trials=8, folder=tmp_path / "whole", seed=0)


def test_trials_of_other_data_or_other_folds_are_not_counted_in(tmp_path: Path) -> None:
    calls: list[str] = []

    def train(settings: Settings, name: str) -> float:
        calls.append(name)
        return 1.0

    other = Fold(0, ("a", "d"), ("c",), ("b",))
    for fold, identity in ((FOLD, "x"), (FOLD, "x"), (FOLD, "y"), (other, "x")):
        found = search_fold(fold, Settings(), train, trials=2, folder=tmp_path, seed=0, identity=identity, space=TWO)
        assert len(found["trials"]) == 2
    assert len(calls) == 6


def test_the_given_configuration_is_tried_even_when_its_first_trial_was_cut(tmp_path: Path) -> None:
    tried: list[Settings] = []

    def train(settings: Settings, name: str) -> float:
        tried.append(settings)
        if len(tried) == 1:
            raise KeyboardInterrupt
        return 1.0

    with pytest.raises(KeyboardInterrupt):
        search_fold(FOLD, Settings(), train, trials=3, folder=tmp_path, seed=0, space=TWO)
    search_fold(FOLD, Settings(), train, trials=3, folder=tmp_path, seed=0, space=TWO)
    assert tried[1] == Settings()


def test_a_start_outside_the_space_is_refused(tmp_path: Path) -> None:
    given = changed(Settings(), {"model.attention_dim": 3})
    with pytest.raises(TrainingError, match=r"model\.attention_dim is 3"):
        search_fold(FOLD, given, lambda settings, name: 1.0, trials=1, folder=tmp_path, seed=0, space=TWO)


def test_a_choice_is_not_used_for_other_test_conversations(tmp_path: Path) -> None:
    found = search_fold(FOLD, Settings(), lambda settings, name: 1.0, trials=1, folder=tmp_path, seed=0, space=TWO)
    assert chosen_for([found], FOLD) == found["best"]
    with pytest.raises(TrainingError, match="no fold that tests a"):
        chosen_for([found], Fold(0, ("d",), ("c",), ("a",)))


def test_no_trial_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="trials is 0"):
        search_fold(FOLD, Settings(), lambda settings, name: 1.0, trials=0, folder=tmp_path, seed=0)


def test_a_file_of_trials_that_cannot_be_used_is_one_error_with_a_cure(tmp_path: Path) -> None:
    (tmp_path / "trials.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(
        TrainingError, match=r"trials\.sqlite: the trials .* not a database.*; if it is damaged, delete it"
    ):
        search_fold(FOLD, Settings(), lambda settings, name: 1.0, trials=1, folder=tmp_path, seed=0, space=TWO)


def test_a_full_disk_in_a_search_says_to_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = sa.exc.OperationalError("", None, sqlite3.OperationalError("database or disk is full"))

    def refuse(*_: object, **__: object) -> None:
        raise full

    monkeypatch.setattr(sa.MetaData, "create_all", refuse)
    with pytest.raises(TrainingError, match=r"disk is full\); .*make room"):
        search_fold(FOLD, Settings(), lambda settings, name: 1.0, trials=1, folder=tmp_path, seed=0, space=TWO)


def test_an_interrupt_while_a_score_is_stored_is_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def search() -> object:
        return search_fold(FOLD, Settings(), lambda settings, name: 1.0, trials=1, folder=tmp_path, seed=0, space=TWO)

    with monkeypatch.context() as patched:
        patched.setattr(optuna.storages.RDBStorage, "set_trial_state_values", cut)
        with pytest.raises(KeyboardInterrupt):
            search()
    assert search() == search()

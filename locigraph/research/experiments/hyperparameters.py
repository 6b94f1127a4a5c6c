"""Hyper-parameter search inside folds: each fold chooses by its own validation conversations only.

A single search over the validation scores of all folds would use conversations that other folds are tested on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import optuna

from locigraph.kg.errors import LocigraphError
from locigraph.kg.files import MAKE_ROOM, is_of_disk
from locigraph.kg.types import SpaceId
from locigraph.training.config import Settings, TrainerConfig, changed
from locigraph.training.errors import TrainingError
from locigraph.training.identity import CHECKPOINT_ALGORITHM
from locigraph.training.leaks import Fold

if TYPE_CHECKING:
    from locigraph.research.experiments.folded_corpus import FoldedCorpus
    from locigraph.training.folds import FoldTrainer


@dataclass(frozen=True)
class Between:
    """A number in a range, drawn on a logarithmic scale."""

    low: float
    high: float


@dataclass(frozen=True)
class OneOf:
    """One of a few values."""

    values: tuple[Any, ...]


#: The search space, by dotted field names of ``Settings``. It includes all default values.
SPACE: Mapping[str, Between | OneOf] = {
    "model.attention_dim": OneOf((16, 32, 64)),
    "training.pretrain_epochs": OneOf((0, 3, 6)),
    "training.lr": Between(1e-5, 3e-3),
    "training.scalar_lr": Between(3e-3, 3e-2),
    "training.edge_lr": Between(1e-3, 3e-2),
    "training.weight_decay": Between(0.01, 0.3),
    "training.ema_decay": OneOf((0.0, 0.9, 0.97)),
}


class Trial(TypedDict):
    """Changes to the settings that were tried, and the validation score (recall@10 + nDCG@10) that they reached."""

    changes: dict[str, Any]
    score: float


class FoldSearch(TypedDict):
    """All trials of a fold, in order, and the changes of the best."""

    test: list[str]
    trials: list[Trial]
    best: dict[str, Any]


def described_space() -> dict[str, dict[str, Any]]:
    """The search space as a manifest records it."""
    return {name: asdict(choice) for name, choice in SPACE.items()}


def searched_folds(
    folded: FoldedCorpus, settings: Settings, trainer: TrainerConfig, *, trials: int, seed: int
) -> list[FoldSearch]:
    """Search for each fold of a corpus; of each trial only the score is kept.

    Args:
        folded: The corpus with its folds.
        settings: Settings that the searches start from.
        trainer: Where and how to train.
        trials: Number of settings to try in each fold.
        seed: Random seed.

    Raises:
        LocigraphError: If a training has no validation score.
    """
    found = []
    with folded.trainings(trainer, seed=seed) as (views, trainings):
        for fold in folded.folds:
            fingerprints = [views.at(SpaceId(s), None).fingerprint for s in (*fold.train, *fold.validation)]
            made_by = [str(CHECKPOINT_ALGORITHM), folded.encoder.model_id, folded.corpus.sha256]
            made_by += [trainer.precision, *fingerprints]
            found.append(
                search_fold(
                    fold,
                    settings,
                    partial(_score, trainings, fold, folded.folder, seed),
                    trials=trials,
                    folder=folded.folder,
                    seed=seed,
                    identity=" ".join(made_by),
                )
            )
            shutil.rmtree(folded.folder / f"fold-{fold.index}", ignore_errors=True)  # left by interrupted trials
    return found


def _score(trainings: FoldTrainer, fold: Fold, folder: Path, seed: int, settings: Settings, name: str) -> float:
    made = trainings.train(fold, settings, folder=folder / name, seed=seed, name=name)
    shutil.rmtree(folder / name)
    scores = [stage["val_score"] for stage in made.details["stages"].values() if "val_score" in stage]
    if not scores:
        raise LocigraphError(
            f"{name}: the training has no validation score; either no stage was trained, or no question of the "
            "validation conversations has evidence in its graph"
        )
    return float(scores[-1])  # of the last stage, whose model is the result


def search_fold(
    fold: Fold,
    settings: Settings,
    train: Callable[[Settings, str], float],
    *,
    trials: int,
    folder: Path,
    seed: int,
    identity: str = "",
    space: Mapping[str, Between | OneOf] = SPACE,
) -> FoldSearch:
    """Search for one fold; the first trial is the unchanged configuration.

    Args:
        fold: The fold; its test conversations are recorded in the result but not used.
        settings: Settings that the search starts from.
        train: Trains a configuration under a name and returns its validation score.
        trials: Total number of trials, including those of an interrupted search.
        folder: Folder that stores the trials, so that an interrupted search can be continued.
        seed: Random seed of the sampler.
        identity: Identity of data and code. Trials with another identity, or of other folds, are ignored.
        space: Settings that may change, with the values to try.

    Raises:
        TrainingError: If ``trials`` is below 1, a name of the space is no field, or the configuration's own value is
            not in the space, so that the search could not start from it; or if the file of the trials is damaged or
            its disk is full.
    """
    if trials < 1:
        raise TrainingError(f"trials is {trials}; expected at least 1")
    given = _values_of(settings, space)
    about = [fold.train, fold.validation, fold.test, asdict(settings), sorted(map(repr, space.items())), seed, identity]
    known_as = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    file = folder / "trials.sqlite"
    with _mapped_errors(file):
        study = optuna.create_study(
            storage=f"sqlite:///{file}",
            study_name=f"fold-{fold.index}-{known_as}",
            direction="maximize",
            load_if_exists=True,
        )
        for cut in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):  # left by an interrupted search
            study.tell(cut.number, state=optuna.trial.TrialState.FAIL)
        done = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
        if not done and not study.get_trials(states=[optuna.trial.TrialState.WAITING]):
            study.enqueue_trial(given)

        for number in range(len(done), trials):
            # The storage does not keep the sampler's state: seeded for each trial by its number among the finished
            # ones, an interrupted search makes the same trials as an uninterrupted one.
            first = 10_000 * seed + 1_000 * fold.index
            study.sampler = optuna.samplers.TPESampler(seed=first + number, n_startup_trials=5)
            # Not ``study.optimize``, which turns an interrupt while it stores a score into an UnboundLocalError.
            trial = study.ask()
            changes = {
                name: trial.suggest_categorical(name, choice.values)
                if isinstance(choice, OneOf)
                else trial.suggest_float(name, choice.low, choice.high, log=True)
                for name, choice in space.items()
            }
            study.tell(trial, train(changed(settings, changes), f"fold-{fold.index}/trial-{trial.number}"))
        finished = [t for t in study.trials if t.state == optuna.trial.TrialState.COMPLETE]
        return FoldSearch(
            test=[str(name) for name in fold.test],
            trials=[Trial(changes=dict(t.params), score=float(t.values[0])) for t in finished],
            best=dict(study.best_trial.params),
        )


@contextmanager
def _mapped_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # Optuna raises errors of its own or of the library that it reaches SQLite with
        reason = _of_sqlite(error)
        if reason is None:
            raise
        cure = MAKE_ROOM if is_of_disk(reason) else "if it is damaged, delete it, which begins the search anew"
        raise TrainingError(f"{file}: the trials of the search cannot be read or written ({reason}); {cure}") from error


def _of_sqlite(error: BaseException | None) -> sqlite3.Error | None:
    """The error of SQLite that caused an error; None if another did."""
    while error is not None and not isinstance(error, sqlite3.Error):
        error = getattr(error, "orig", None) or error.__cause__
    return error


def chosen_for(searches: Sequence[FoldSearch], fold: Fold) -> dict[str, Any]:
    """The changes that a search chose for a fold.

    Raises:
        TrainingError: If no searched fold tests the same conversations; any other fold's choice might have seen them.
    """
    for search in searches:
        if sorted(search["test"]) == sorted(str(name) for name in fold.test):
            return search["best"]
    raise TrainingError(
        f"the search has no fold that tests {', '.join(fold.test)}; run locigraph search with the same corpus, folds, "
        "validation and seed"
    )


def _values_of(settings: Settings, space: Mapping[str, Between | OneOf]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, choice in space.items():
        section, _, field = name.partition(".")
        value = getattr(getattr(settings, section, None), field, None)
        is_inside = value in choice.values if isinstance(choice, OneOf) else choice.low <= (value or 0.0) <= choice.high
        if not is_inside:
            raise TrainingError(
                f"{name} is {value!r}, which is outside its search space {choice}; start from a value in it"
            )
        values[name] = value
    return values

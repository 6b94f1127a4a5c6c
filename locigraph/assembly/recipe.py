"""Recipes of shipped checkpoints: the commands that made them, and the comparison with what they make now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from locigraph.kg.errors import LocigraphError, abridged

_RECIPE = "recipe.yaml"


@dataclass(frozen=True)
class Recipe:
    """How a checkpoint is made.

    Attributes:
        needs: Files that must be there, by their paths: what each is, and where it comes from.
        steps: Commands of ``locigraph`` with their options, in order.
        makes: The folder that the last of them writes.
    """

    needs: Mapping[str, str]
    steps: tuple[str, ...]
    makes: str


def read_recipe(folder: Path) -> Recipe:
    """Read the recipe of a checkpoint; raises LocigraphError if there is none, or it is not one."""
    path = folder / _RECIPE
    try:
        found = yaml.safe_load(path.read_text())
        needs = {str(name): str(source) for name, source in found.get("needs", {}).items()}
        return Recipe(needs, tuple(map(str, found["steps"])), str(found["makes"]))
    except OSError as error:
        raise LocigraphError(f"{path}: {error.strerror}; name a folder of checkpoints that has a recipe") from error
    except (yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise LocigraphError(f"{path}: not a recipe with steps and makes ({abridged(error)})") from error


def require_files(recipe: Recipe) -> None:
    """Raise LocigraphError if a file that the recipe needs is missing."""
    for name, source in recipe.needs.items():
        if not Path(name).is_file():
            raise LocigraphError(f"{name}: no such file; put it there: {source}")


def difference(shipped: Path, made: Path) -> str:
    """How the weights in two folders differ, in words; raises LocigraphError if either has none."""
    here, there = _weights(shipped), _weights(made)
    if {name: each.shape for name, each in here.items()} != {name: each.shape for name, each in there.items()}:
        return f"{made} has weights of other names or shapes than {shipped}"
    if all(np.array_equal(each, there[name]) for name, each in here.items()):
        return f"{made} has the weights of {shipped} to the last bit"
    furthest, name = max((float(np.abs(each - there[name]).max()), name) for name, each in here.items())
    return (
        f"{made} differs from {shipped} by at most {furthest:.2g}, in {name}; other processors and versions of torch "
        "round differently"
    )


def _weights(folder: Path) -> dict[str, NDArray[Any]]:
    try:
        (path,) = folder.glob("*.safetensors")
        return load_file(path)
    except (ValueError, SafetensorError) as error:
        raise LocigraphError(f"{folder}: holds no weights that can be read ({abridged(error)})") from error

"""A few tries of each kind, in a process of its own, since they fork; ``make faults`` runs thousands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from locigraph.kg.corpora import FORMATS
from tests.faults import corpora, doubling, full_disk, methods, patterns
from tests.faults.__main__ import KINDS, NAMED_ONLY
from tests.servers.running import require_running

ROOT = Path(__file__).parents[2]


TRIES = {
    "faults": 2,
    "models": 1,
    "adds": 2,
    "late": 2,
    "experiments": 1,
    "disk": 2,
    "serve": 1,
    "damage": 2,
    "residue": 1,
    "tenants": 4,
    "reads": 4,
    "inputs": 56,
    "time": 13,
    "connections": 4,
    "fairness": 1,
    "private": 2,
}


def tried(tries: Mapping[str, int], folder: Path) -> tuple[dict[str, Any], str]:
    """Run these tries in a process; returns its results by kind, and its errors."""
    kinds = [f"{kind}={count}" for kind, count in tries.items()]
    summary = folder / "summary.json"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults", "--summary", str(summary), "--kinds", *kinds],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(summary.read_text())["kinds"] if summary.exists() else {}
    return found, ended.stderr[-4_000:]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The results of all kinds from one process, since its imports take longer than most tries."""
    return tried(TRIES, tmp_path_factory.mktemp("tries"))


@pytest.mark.servers
def test_a_few_tries_on_servers_are_survived(tmp_path: Path) -> None:
    require_running()  # these tries start servers of their own, from the same packages
    kinds, errors = tried({"servers": 6}, tmp_path)
    assert kinds == {"servers": {"tries": 6, "survived": 6}}, errors


@pytest.mark.long(seconds=70)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NAMED_ONLY])
def test_a_few_tries_of_each_kind_are_survived(kind: str, found: tuple[dict[str, Any], str]) -> None:
    kinds, errors = found
    if kind == "disk" and full_disk.obstacle() is not None:
        pytest.skip(full_disk.obstacle() or "")
    assert kinds.get(kind, {}) | {"rows": 0} == {"tries": TRIES[kind], "survived": TRIES[kind], "rows": 0}, errors


@pytest.mark.parametrize("kind", methods.CALLS)
def test_every_public_method_is_called_by_hostile_tenants_or_takes_no_name(kind: type) -> None:
    assert methods.CALLS[kind].keys() == methods.public(kind)


def test_every_corpus_format_is_given_wrong_and_long_files() -> None:
    assert corpora.SOUND.keys() == {*FORMATS}


@pytest.mark.long
def test_every_function_that_makes_a_pattern_is_called_with_long_texts() -> None:
    assert patterns.made() == doubling.CALLED_BY.keys()
    assert {reader for reader in doubling.CALLED_BY.values() if reader} <= doubling.READERS.keys()


@pytest.mark.parametrize("held", ["pattern", "rows", "function"])
def test_a_pattern_is_found_wherever_a_module_holds_it(held: str) -> None:
    place = {
        "pattern": "locigraph.research.published.magma._WHY[0]",
        "rows": "locigraph.consolidation.extractors.slots._SLOTS[1]",
        "function": "kg.store.commit.sanitize_label",
    }
    assert place[held] in patterns.patterns()


@pytest.mark.long
def test_no_pattern_takes_time_by_the_square_of_a_text_of_one_piece() -> None:
    for name, pattern in patterns.patterns().items():
        for piece in doubling.PIECES:
            if (
                doubling.seconds_for(partial(doubling.matched, pattern), ("", piece), 4_000) > 0.005
            ):  # most take a tenth
                doubling.check(name, "", piece)


@pytest.mark.slow
def test_kills_of_models_are_survived_many_times(tmp_path: Path) -> None:
    kinds, errors = tried({"models": 50}, tmp_path)
    assert kinds == {"models": {"tries": 50, "survived": 50}}, errors


@pytest.mark.parametrize(("power", "is_caught"), [(1, False), (2, True)])
def test_a_reader_is_caught_when_its_time_grows_with_the_square_of_the_text(power: int, is_caught: bool) -> None:
    def seconds(_read: object, _text: object, size: int) -> float:
        return 0.03 * (size / 4_000) ** power

    with pytest.raises(AssertionError, match="terms on 'a'") if is_caught else nullcontext():
        doubling.check("terms", "", "a", seconds=seconds)

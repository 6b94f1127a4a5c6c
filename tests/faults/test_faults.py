"""A few tries of each kind, in a process of their own, since they fork; ``make faults`` runs thousands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import doubling
from tests.faults.__main__ import KINDS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("kind", "tries"),
    [
        ("faults", 4),
        ("models", 2),
        ("adds", 6),
        ("damage", 4),
        ("residue", 2),
        ("tenants", 40),
        ("inputs", 120),
        ("time", 20),
        pytest.param("models", 50, marks=pytest.mark.slow),
    ],
)
def test_a_few_tries_of_each_kind_are_survived(kind: str, tries: int, tmp_path: Path) -> None:
    count = tries * 1_000 // KINDS[kind][1] + 1
    summary = tmp_path / "summary.json"
    arguments = ["--count", str(count), "--kinds", kind, "--summary", str(summary)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults", *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    found = json.loads(summary.read_text())["kinds"][kind]
    assert found["tries"] == found["survived"] >= tries


def test_a_quadratic_reader_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doubling.READERS, "slow", lambda text: [text[i:].replace("a", "b") for i in range(len(text))])
    with pytest.raises(AssertionError, match="slow on 'a'"):
        doubling.check("slow", ("a",))

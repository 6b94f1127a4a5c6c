from __future__ import annotations

import json
import pkgutil
import sys
from importlib import import_module
from pathlib import Path

import pytest

import benchmarks
from benchmarks.published import main
from locigraph.assembly import provenance

RUN = sorted(
    {module.name for module in pkgutil.iter_modules(benchmarks.__path__)} - {"hashed_words", "records", "synthetic"}
)


@pytest.mark.parametrize("name", RUN)
def test_every_benchmark_can_write_a_record(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        import_module(f"benchmarks.{name}").main()
    assert ended.value.code == 0
    assert "--output OUTPUT" in capsys.readouterr().out


def test_a_record_holds_what_was_measured_with_the_commit_versions_and_options(tmp_path: Path) -> None:
    main(["--nodes", "60", "80", "--output", str(tmp_path / "new" / "times.json")])
    record = json.loads((tmp_path / "new" / "times.json").read_text())
    assert [row["nodes"] for row in record["rows"]] == [60] * 5 + [80] * 5
    assert all(row["p50_ms"] <= row["p95_ms"] for row in record["rows"])
    manifest = record["manifest"]
    assert manifest["commit"] == provenance.source_commit()
    assert "numpy" in manifest["versions"]
    assert manifest["settings"]["options"] == {"nodes": [60, 80], "at_most_ms": None}


def test_without_a_place_for_it_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    main(["--nodes", "60"])
    assert not any(tmp_path.iterdir())

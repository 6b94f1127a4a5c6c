"""The installed package: one import name, and everything that the commands need."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packages import PACKAGES, ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@pytest.mark.long
def test_the_wheel_installs_nothing_but_locigraph(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"locigraph"}
    assert "locigraph/py.typed" in wheel.namelist()  # type checkers of users read the types


def test_the_wheel_holds_every_source_file_and_bundled_corpus(wheel: zipfile.ZipFile) -> None:
    held = set(wheel.namelist())
    for package, folder in PACKAGES.items():
        for path in folder.rglob("*"):
            if path.suffix in (".py", ".jsonl", ".txt", ".html", ".js", ".css", ".sqlite"):
                assert f"locigraph/{package}/{path.relative_to(folder)}" in held


def test_the_wheel_holds_every_shipped_checkpoint_and_configuration(wheel: zipfile.ZipFile) -> None:
    held = set(wheel.namelist())
    for folder in ("checkpoints", "configs"):
        for path in (ROOT / folder).rglob("*"):
            assert path.is_dir() or f"locigraph/{path.relative_to(ROOT)}" in held


def test_a_checkout_without_symbolic_links_can_be_used(tmp_path: Path) -> None:
    (tmp_path / "locigraph").mkdir()
    for path in (ROOT / "locigraph").iterdir():
        if path.is_symlink():  # what git writes where links are switched off
            (tmp_path / "locigraph" / path.name).write_text(f"../{path.name}")
            (tmp_path / path.name).symlink_to(ROOT / path.name)
        elif path.is_dir():
            (tmp_path / "locigraph" / path.name).symlink_to(path)
        else:
            (tmp_path / "locigraph" / path.name).write_bytes(path.read_bytes())
    code = (
        "import locigraph; from locigraph import Memory; from locigraph.assembly import defaults as d\n"
        "from pathlib import Path; import sys\n"
        "print(Path(locigraph.__file__).parent, sys.modules['locigraph.kg'].__file__)\n"
        "print(all(e.adapter.is_dir() and e.checkpoint.is_dir() for e in d.SHIPPED_PAIRS.values()))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [f"{tmp_path / 'locigraph'} {tmp_path / 'kg' / '__init__.py'}", "True"]


def test_the_command_runs_beside_folders_of_the_users_own(tmp_path: Path) -> None:
    for name in ("scripts", "training", "kg"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the wrong package')\n")
    ran = subprocess.run(
        [sys.executable, "-m", "locigraph", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "recall" in ran.stdout

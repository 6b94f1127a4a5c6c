"""Reads all import statements and fails on a wrong arrow between the packages."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: What each package may import of ours, itself aside.
ALLOWED = {
    "kg": set[str](),
    "consolidation": {"kg"},
    "gnn": {"kg"},
    "retrieval": {"kg"},
    "training": {"kg", "gnn", "retrieval"},
    "scripts": {"kg", "consolidation", "gnn", "retrieval", "training"},
}
#: Foreign packages that a package must do without.
FORBIDDEN = {
    "kg": {"torch", "torch_geometric", "lightning", "openai", "pymilvus", "sentence_transformers"},
    "consolidation": {"torch", "sqlalchemy", "pymilvus", "lightning", "sentence_transformers"},
    "gnn": {"lightning", "sqlalchemy", "pymilvus", "openai", "sentence_transformers", "wandb"},
    "retrieval": {"lightning", "sqlalchemy", "torch_geometric", "openai"},
    "training": {"sqlalchemy", "pymilvus", "openai", "sentence_transformers"},
}


def imported(path: Path) -> set[str]:
    """Top-level names of all that a file imports, wherever in it the statement stands."""
    names: set[str] = set()
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            names.update(alias.name.split(".")[0] for alias in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{path}: relative import of {statement.module}"
            names.add((statement.module or "").split(".")[0])
    return names


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("import a.b\ndef f():\n    from c.d import e\nif True:\n    import g as h, i\n")
    assert imported(path) == {"a", "c", "g", "i"}


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_lies_below_them(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        ours = imported(path) & {*ALLOWED, "tests", "benchmarks"}
        wrong = ours - ALLOWED[package] - {package}
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


@pytest.mark.parametrize("package", FORBIDDEN)
def test_packages_do_without_what_belongs_to_others(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        wrong = imported(path) & FORBIDDEN[package]
        # The text encoder loads torch when it is first used, and only then.
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"

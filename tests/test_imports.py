"""Reads all import statements and fails on a forbidden dependency between the packages."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from locigraph.scripts.command_table import COMMANDS
from tests.packages import PACKAGES, ROOT

#: The packages of this project that each package may import, besides itself.
ALLOWED = {
    "kg": set[str](),
    "consolidation": {"kg"},
    "gnn": {"kg"},
    "retrieval": {"kg"},
    "training": {"kg", "gnn", "retrieval"},
    "assembly": {"kg", "consolidation", "gnn", "retrieval", "training"},
    "memory": {"kg", "consolidation", "gnn", "retrieval", "training", "assembly"},
    "serving": {"kg", "consolidation", "retrieval", "training", "assembly", "memory"},
    "research": {"kg", "consolidation", "gnn", "retrieval", "training", "assembly"},
    "scripts": {"kg", "consolidation", "gnn", "retrieval", "training", "assembly", "memory", "serving", "research"},
}
#: Third-party packages that a package must not import.
FORBIDDEN = {
    "kg": {"torch", "torch_geometric", "lightning", "openai", "pymilvus", "sentence_transformers"},
    "consolidation": {"torch", "sqlalchemy", "pymilvus", "lightning", "sentence_transformers"},
    "gnn": {"lightning", "sqlalchemy", "pymilvus", "openai", "sentence_transformers", "wandb"},
    "retrieval": {"lightning", "sqlalchemy", "torch_geometric", "openai"},
    "training": {"sqlalchemy", "pymilvus", "openai", "sentence_transformers"},
}


def imported(path: Path) -> set[str]:
    """Packages that a file imports anywhere in it; for packages of this project, without the prefix ``locigraph``."""
    modules: list[str] = []
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.Import):
            modules += [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, f"{path}: relative import of {statement.module}"
            module = statement.module or ""
            modules += [f"{module}.{alias.name}" for alias in statement.names] if module == "locigraph" else [module]
    return {module.removeprefix("locigraph.").split(".")[0] for module in modules}


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import a.b\ndef f():\n    from c.d import e\nif True:\n    import g as h, i\n"
        "from locigraph import kg\nfrom locigraph.gnn.x import y\n"
    )
    assert imported(path) == {"a", "c", "g", "i", "kg", "gnn"}


@pytest.mark.parametrize("package", ALLOWED)
def test_packages_import_only_what_lies_below_them(package: str) -> None:
    files = sorted(PACKAGES[package].rglob("*.py"))
    assert files
    for path in files:
        ours = imported(path) & {*ALLOWED, "tests", "benchmarks"}
        wrong = ours - ALLOWED[package] - {package}
        assert not wrong, f"{path} imports {sorted(wrong)}"


@pytest.mark.parametrize("package", FORBIDDEN)
def test_packages_do_without_what_belongs_to_others(package: str) -> None:
    for path in sorted(PACKAGES[package].rglob("*.py")):
        wrong = imported(path) & FORBIDDEN[package]
        # The text encoder loads torch only when it is first used.
        assert not wrong, f"{path} imports {sorted(wrong)}"


def test_only_comparisons_use_the_packages_of_their_extra_and_their_commands_say_so() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = {each.partition(">")[0] for each in project["optional-dependencies"]["research"]}
    assert {name for command in COMMANDS.values() for name in command.needs} == extra
    for package in PACKAGES.keys() - {"research"}:
        for path in PACKAGES[package].rglob("*.py"):
            assert not imported(path) & extra, path


def test_no_two_files_of_the_packages_have_the_same_name() -> None:
    # By convention, each package has its own modules for errors and protocols.
    shared = {"__init__", "__main__", "errors", "protocols"}
    names = [path.stem for folder in PACKAGES.values() for path in folder.rglob("*.py") if path.stem not in shared]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_a_command_leaves_most_of_its_work_to_others() -> None:
    """No function of a command has more than 52 lines beside its parameters and its description."""
    long = {}
    for path in (ROOT / "scripts" / "commands").rglob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.FunctionDef):
                body = each.body[1:] if ast.get_docstring(each) else each.body
                lines = (each.end_lineno or 0) - body[0].lineno + 1 if body else 0
                if lines > 52:
                    long[f"{path.name}: {each.name}"] = lines
    assert long == {}

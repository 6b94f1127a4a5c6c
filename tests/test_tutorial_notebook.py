"""The notebook of the tutorial; ``tests/test_tutorial.py`` runs the blocks that it is made of."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.tutorial_notebook import BLOCK, NOTEBOOK, TUTORIAL, notebook

CELLS: list[Mapping[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
CODE = [("".join(cell["source"]), cell["metadata"]) for cell in CELLS if cell["cell_type"] == "code"]
PROSE = "\n\n".join("".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown")


def test_the_notebook_is_that_of_the_page() -> None:
    assert NOTEBOOK.read_text() == notebook(), "run python -m tests.tutorial_notebook"


def test_every_block_of_the_page_is_a_cell_in_its_place_and_the_slow_ones_say_so() -> None:
    blocks = BLOCK.findall(TUTORIAL.read_text())
    assert [(code.removeprefix("%%bash -e\n"), bool(metadata)) for code, metadata in CODE] == [
        (code.strip(), bool(mark)) for mark, _, code in blocks
    ]
    assert {metadata["tags"][0] for _, metadata in CODE if metadata} == {"slow"}


def test_all_other_words_of_the_page_are_prose_of_the_notebook() -> None:
    assert set(BLOCK.sub("", TUTORIAL.read_text()).split()) <= set(PROSE.split())
    assert "<!--" not in PROSE
    assert not re.search(r"```(bash|python)", PROSE)


@pytest.mark.parametrize("number", range(len(CODE)))
def test_every_cell_can_be_parsed(number: int) -> None:
    code, _ = CODE[number]
    if code.startswith("%%bash -e\n"):
        subprocess.run(["bash", "-n"], input=code.partition("\n")[2], text=True, check=True)
    else:
        ast.parse(code)


def test_cells_have_what_the_format_asks_for() -> None:
    names = [cell["id"] for cell in CELLS]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[\w-]{1,64}", name) for name in names)
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in CELLS if "outputs" in cell)
    assert {cell["cell_type"] for cell in CELLS} == {"markdown", "code"}

"""The examples in the docstrings of the public API, run as they stand."""

from __future__ import annotations

import doctest
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from locigraph import Memory

EXAMPLES = {
    "memory.memory": "",
    "memory.async_memory": "",
    "langchain": "langchain_core",
    "llama_index": "llama_index",
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_docstring_do_what_they_say(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if EXAMPLES[name] and find_spec(EXAMPLES[name]) is None:
        pytest.skip(f"{EXAMPLES[name]} is not installed")
    monkeypatch.chdir(place)
    with Memory.open("memory.sqlite") as memory:
        memory.add(space="ana", session="s1", speaker="Ana", text="I sold the blue bike to Tom.")
    failed, tried = doctest.testmod(import_module(f"locigraph.{name}"), optionflags=doctest.ELLIPSIS)
    assert (failed, tried > 0) == (0, True)

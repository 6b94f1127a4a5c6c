"""Writes ``docs/api.md`` from the docstrings of the public API: ``python -m tests.api_page``.

It reads the source without importing it, so that extras need not be installed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "api.md"
_HEAD = """# Python API

The public API is what `import locigraph` exports: `Memory`, `AsyncMemory`, the settings `EncoderSettings`,
`IndexSettings` and `LLMSettings`, the results `Recalled` and `Hit`, the [errors](#errors) and `__version__`. The
commands with their options, the routes of the server, the retrievers for LangChain and LlamaIndex, the tool for agents,
and the corpus formats are public too.

Before version 1.0 a release 0.x may change any of these, and a release 0.x.y changes none of them; `CHANGELOG.md`
names each change, and what to do. Modules below `locigraph`, the other classes on this page and the wording of error
messages may change at any time: catch errors by their class. A store of an earlier version is migrated when it is
opened for writing; one of a later version is refused.

This page is generated from the docstrings by `python -m tests.api_page`.
"""
#: Heading, import, file, and the public classes in it.
_PARTS = [
    ("A memory", "from locigraph import Memory", "locigraph/memory/memory.py", ["Memory"]),
    ("For asyncio", "from locigraph import AsyncMemory", "locigraph/memory/async_memory.py", ["AsyncMemory"]),
    ("What `Memory.recall` returns", "from locigraph import Hit, Recalled", "locigraph/memory/recalled.py", ["Recalled"]),  # noqa: E501
    ("", "", "retrieval/protocols.py", ["Hit", "Timing"]),
    ("", "", "retrieval/packing.py", ["Context"]),
    ("What `Memory.explain` returns", "", "training/explained.py", ["Explanation", "Influence"]),
    ("What `Memory.profile` returns", "", "locigraph/memory/profile.py", ["Profile", "Statement"]),
    ("What `Memory.state` returns", "", "locigraph/memory/recalled.py", ["MemoryState"]),
    ("Owners of spaces", "", "kg/types.py", ["Scope"]),
    (
        "LangChain and LangGraph", "from locigraph.langchain import MemoryRetriever, RecallTool",
        "locigraph/langchain.py", ["MemoryRetriever", "RecallTool"],
    ),
    (
        "The store of LangGraph", "from locigraph.langgraph import MemoryStore", "locigraph/langgraph.py",
        ["MemoryStore"],
    ),
    ("What `Memory.turns` returns", "", "kg/types.py", ["Turn"]),
    (
        "LlamaIndex", "from locigraph.llama_index import MemoryRetriever", "locigraph/llama_index.py",
        ["MemoryRetriever"],
    ),
    (
        "Errors", "from locigraph import LocigraphError  # and the others, in the same way", "kg/errors.py",
        ["LocigraphError", "StoreError", "UnknownSpaceError", "UnknownScopeError", "UnknownNodeError",
         "TurnConflictError", "StoreVersionError"],
    ),
    ("", "", "retrieval/errors.py", ["IndexUnavailableError", "IndexMismatchError", "TextEncoderError"]),
    ("", "", "training/errors.py", ["CheckpointError"]),
    ("", "", "consolidation/errors.py", ["LanguageModelError"]),
]  # fmt: skip
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Example|Source):$")


def page() -> str:
    """The text of the page."""
    lines = [_HEAD]
    for heading, imported, file, names in _PARTS:
        if heading:
            lines.append(f"## {heading}\n")
        if imported:
            lines.append(f"```python\n{imported}\n```\n")
        tree = ast.parse((ROOT / file).read_text())
        classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        for name in names:
            lines += _of_class(classes[name])
    return "\n".join(lines).rstrip() + "\n"


def _of_class(node: ast.ClassDef) -> list[str]:
    lines = [f"### {node.name}\n", _markdown(ast.get_docstring(node) or "")]
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            lines += [_signature(node.name, each), _markdown(ast.get_docstring(each) or "")]
    return lines


def _signature(owner: str, function: ast.FunctionDef) -> str:
    if any(isinstance(each, ast.Name) and each.id == "property" for each in function.decorator_list):
        return f"#### `{owner}.{function.name}`\n"
    arguments = function.args
    arguments.args = arguments.args[1:]
    result = "" if function.returns is None else f" -> {ast.unparse(function.returns)}"
    given = re.sub(r"(: [^,=]+)=", r"\1 = ", ast.unparse(arguments))
    whole = f"{function.name}({given}){result}"
    if len(whole) > 100:
        # One argument per line, as in the source.
        inner = re.split(r", (?=[*\w]+(?::|$|,))", given)
        whole = f"{function.name}(\n" + "".join(f"    {each},\n" for each in inner) + f"){result}"
    return f"#### `{owner}.{function.name}`\n\n```python\n{whole}\n```\n"


def _markdown(docstring: str) -> str:
    """A docstring in Google style as Markdown: sections become lists, and examples become code."""
    lines, section = [], ""
    for line in docstring.splitlines():
        found = _SECTION.match(line)
        if found:
            section = found[1]
            lines += [f"**{section}**", "", *(["```pycon"] if section == "Example" else [])]
        elif not section or not line.strip():
            if section == "Example":
                lines.append("```")
            section = section if line.strip() else ""
            lines.append(line)
        elif section == "Example":
            lines.append(line[4:])
        elif section in ("Returns", "Source"):
            lines.append(line.strip())
        else:
            item = re.match(r"    ([\w*]+(?:, \w+)*): (.*)", line)
            named = "" if item is None else ", ".join(f"`{name}`" for name in item[1].split(", "))
            lines.append(f"- {named}: {item[2]}" if item else f"  {line.strip()}")
    if section == "Example":
        lines.append("```")
    return re.sub(r"(?<!`)``([^`]+)``(?!`)", r"`\1`", "\n".join(lines)).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())

"""Explains mistakes in a command line, and how to correct them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from itertools import takewhile
from typing import get_args

from jsonargparse import ArgumentParser

from locigraph.kg.errors import nearest, shortened

_UNKNOWN, _MISSING = "unrecognized arguments: ", "the following arguments are required: "
_TYPE = re.compile(
    r'Parser key "(?P<key>[^"]+)":\s+(?:Expected a (?P<one>.+?)\. Got|.+?Subtypes: \[(?P<any>.+?)\]\n.+\n\s*Given) '
    r"value: (?P<value>.*)",
    re.DOTALL,
)
_GROUP = re.compile(r"Group '(?P<name>[\w.]+)' does not accept option '(?P<option>[^']*)'")
_NOT_ACCEPTED = re.compile(r"Option '([^']*)' is not accepted")
_NO_FILE = re.compile(r"""Parser key "(?P<name>[\w.]+)":\s+Unable to load config '(?P<value>[^']*)'""")
#: Beginnings of options of all commands that search or write the index or encode texts.
_OF_SEARCHES = ("--index", "--encoder", "--checkpoint")
#: Commands by the names that other programs give them.
COMMANDS = {
    "delete": "forget",
    "remove": "forget",
    "ask": "recall",
    "query": "recall",
    "search": "recall",
    "add": "build",
    "list": "spaces",
    "version": "--version",
    "-v": "--version",
    "-V": "--version",
}
_TYPES = {
    "dict[str, list[str] | str]": """lists of names by name, such as '{"a": ["b", "c"]}'""",
    "<class 'int'>": "a whole number",
    "<class 'float'>": "a number",
    "<class 'bool'>": "true or false",
    "<class 'str'>": "text",
    "<class 'NoneType'>": "null",
    "<class 'list'>": """a list, such as '["a", "b"]'""",
    "list[str]": """a list, such as '["a", "b"]'""",
    "<class 'dict'>": """values by name, such as '{"a": ...}'""",
    "dict[str, typing.Any]": """values by name, such as '{"a": ...}'""",
    "dict[str, int]": """numbers by name, such as '{"a": 1}'""",
    "typing.Literal": "one of ",
}


def repeated(words: Sequence[str]) -> str | None:
    """A message about the first option that is given twice, since only the last would count; None if there is none.

    ``--config`` may be repeated, and so may ``--option+``, which adds an item to a list.
    """
    seen: set[str] = set()
    for word in words:
        name = word.partition("=")[0]
        if name in seen:
            return f"{name} is given twice; leave one out"
        if name.startswith("--") and name != "--config" and not name.endswith("+"):
            seen.add(name)
    return None


def name_lists(parser: ArgumentParser) -> list[str]:
    """The options of a parser that take several names."""
    listing = [each for each in parser._actions if {list[str], str} <= {*get_args(getattr(each, "_typehint", None))}]
    return [name for action in listing for name in action.option_strings if not name.endswith("+")]


def spread(words: Sequence[str], parser: ArgumentParser) -> str | None:
    """A message about the first list option whose names are separated by blanks, not commas; None if there is none."""
    lists = name_lists(parser)
    # A question that does not come first may follow the names of a list.
    takes_question = any(action.dest == "question" for action in parser._actions)
    most = 2 if takes_question and words and words[0].startswith("-") else 1
    for place, word in enumerate(words):
        names = list(takewhile(lambda each: not each.startswith("-"), words[place + 1 :]))
        if word in lists and len(names) > most:
            joined = shlex.quote(",".join(name.strip(",") for name in (names if most == 1 else names[:-1])))
            return f"several names must be joined by commas, and a name with blanks put in quotes: {word} {joined}"
    return None


def explained(message: str, parser: ArgumentParser) -> str:
    """A message of the parser, reworded for users of the command line, with what to do about it."""
    if message.startswith(_UNKNOWN):
        return _unknown(message.removeprefix(_UNKNOWN), parser)
    if message.startswith(_MISSING):
        actions = {action.dest: action for action in parser._actions}
        missing = [actions[key] for key in message.removeprefix(_MISSING).split(", ")]
        told = [
            f"{(each.option_strings or [each.dest])[0]} ({str(each.help).rstrip('.').replace('``', '`')})"
            for each in missing
        ]
        return f"missing: {' and '.join(told)}"
    group = _GROUP.match(message)
    if group is not None:
        options = f"options {', '.join(_fields(group['name'], parser))}"
        return (
            f"--{group['name']} takes a configuration file with its {options}, but {group['option']!r} is none of them"
        )
    absent = _NO_FILE.match(message)
    if absent is not None and _fields(absent["name"], parser):
        path = f"; name conversations with --corpus.path {absent['value']}" if absent["name"] == "corpus" else ""
        return f"--{absent['name']} takes a configuration file, but {absent['value']!r} is not one" + path
    wrong = _TYPE.fullmatch(message)
    if wrong is None:
        refused = _NOT_ACCEPTED.fullmatch(message)  # by the parser of an item, such as a graph of a list of graphs
        known = [action.dest for action in parser._actions]
        return message if refused is None else f"option {refused[1]!r} is not known{nearest(refused[1], known)}"
    expected = wrong["one"] or wrong["any"].replace(", <class", " or <class")
    for name, words in _TYPES.items():
        expected = expected.replace(name, words)
    return f"--{wrong['key']} is {shortened(wrong['value'])}; expected {expected}{_unquoted(wrong['value'])}"


def _unquoted(value: str) -> str:
    """Which item of a list was not read as text, and what to do about it; empty if there is none."""
    if not value.startswith("["):
        return ""
    items = value.strip("[]").split(", ")
    wrong = next((item for item in items if re.match(r"[\d.+-]|inf|nan|true|false|none", item, re.IGNORECASE)), None)
    if wrong is None:
        return ""
    return f". One item was read as {wrong}; put names that look like numbers, such as 7e974930, in quotes"


def _fields(group: str, parser: ArgumentParser) -> list[str]:
    names = [action.dest for action in parser._actions if action.dest.startswith(f"{group}.")]
    return [f"--{name}" for name in names]


def _unknown(words: str, parser: ArgumentParser) -> str:
    """A message about words that belong to no option, with a guess of what was meant by the first one."""
    options = [name for action in parser._actions for name in action.option_strings if not name.endswith("+")]
    if words.startswith("-"):
        name = re.split(r"[ =]", words)[0]
        if name.startswith(_OF_SEARCHES) and "--store" in options:
            return f"{parser.prog} reads the store alone, so it has no option {name}; leave it out"
        if name in options:
            return f"option {name} stands after --, behind which nothing is an option; put it before"
        hint = nearest("--" + name.lstrip("-").replace("-", "_"), options)
        return f"option {name} is not known" + (hint if hint.startswith("; nearest") else "")
    if any(action.dest == "question" for action in parser._actions):
        example = f'{parser.prog} "What is it?" ...'
        return f"{shortened(words)} follows the question; put the whole question in quotes: {example}"
    name = next((name for name in ("--space", "--corpus.path") if name in options), "--NAME")
    value = shortened(words)
    return f"{value} does not belong to an option; put the name of an option before it: {name} {value}"

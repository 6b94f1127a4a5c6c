"""Inputs: corpora of all formats, configurations and command lines that contain mistakes.

Hypothesis draws the mistakes, and looks for the smallest input that is not answered by one clear line.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from locigraph.kg.corpora import load_corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.kg.times import optional_epoch, optional_moment
from locigraph.kg.types import Turn
from locigraph.scripts import cli
from locigraph.scripts.command_table import COMMANDS
from tests.faults import workbench
from tests.faults.children import as_process, in_child
from tests.faults.corpora import SOUND
from tests.faults.drawing import drawn

#: Values that replace a value, a key or a whole document.
NASTY: tuple[Any, ...] = (
    None, True, 0, -1, 10**30, 1.5, float("nan"), float("inf"), "", " ", "x", "\x00", "\ud800", "\x1b[2J", "a\nb",
    "A" * 300, "A" * 200_000, "1" * 5_000, [], [None], [[[]]], {}, {"a": {"b": {}}}, "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-12:00", "2024-02-30", "1:56 pm on 8 May, 9999", "D" + "1" * 5_000 + ":1", "../../x",
    "é" * 200, "\u00a0", "\u0085",
)  # fmt: skip
_RAW = (
    b"",
    b"\xff\xfe",
    b"\x00",
    b"[" * 100_000,
    b"{",
    b"null",
    b'"x"',
    b"\xef\xbb\xbf[]",
    b"1e999",
    b"[1,]",
    b"a: &a [x, x]\n" + b"".join(b"a%d: &a [*a, *a, *a, *a]\n" % i for i in range(30)),
)
#: All commands except ``demo``, which needs no input, with their required options.
_COMMANDS = {command: {"space": "x"} if command in ("recall", "explain", "forget") else {} for command in COMMANDS}
del _COMMANDS["demo"]
#: Commands that would do much work if nothing were wrong: their configuration is only resolved.
_MAKE_MUCH = ("ablate", "build", "evaluate", "serve", "transfer")


#: Replacement values: the nasty ones, and others that Hypothesis generates.
_VALUES: st.SearchStrategy[Any] = st.sampled_from(NASTY) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.datetimes().map(str),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_WORDS = st.sampled_from([each for each in NASTY if isinstance(each, str)]) | st.text(max_size=20)
_RAW_BYTES = st.sampled_from(_RAW) | st.binary(max_size=40)
_AT_ONCE = 5  # tries for each start of Hypothesis
_IN_PROCESS, _INTERPRETER = 20, 1_000  # every 20th try runs in its own process, every 1,000th in its own interpreter


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Endless tries, alternating between corpora of each format, configurations and command lines."""
    folder.mkdir(exist_ok=True)
    held = folder / "held"
    in_child(lambda: _hold(held))
    checked: list[tuple[st.SearchStrategy[Any], Callable[..., None]]] = [
        *((_corpora(kind), partial(_check_corpus, folder / kind, kind, held)) for kind in SOUND),
        *((way, partial(_check_words, folder / "words")) for way in 2 * (_configurations(), _command_lines())),
    ]
    done = 0
    while True:
        for strategy, check in checked:
            if done % _INTERPRETER == 0:
                yield partial(_check_interpreter, folder, sorted(SOUND)[done // _INTERPRETER % len(SOUND)])
            for fault in _faults(seed + done, strategy, check, is_process=done % _IN_PROCESS == 0):
                done += 1
                yield partial(_raise, fault)


def _hold(held: Path) -> None:
    workbench.prepare(held)
    workbench.run_all(held, "build")


def _raise(fault: str | None) -> None:
    assert fault is None, fault


def _faults(
    number: int, strategy: st.SearchStrategy[Any], check: Callable[..., None], *, is_process: bool
) -> list[str | None]:
    """None for each try that went well, and the error of the smallest one that did not."""
    found: list[str | None] = []

    @drawn(number, _AT_ONCE, strategy)
    def tried(each: Any) -> None:
        check(each, is_process=is_process and not found)  # a process takes a hundred times as long
        found.append(None)

    try:
        tried()
    except Exception:
        found.append(traceback.format_exc()[-2_500:])
    return found


@st.composite
def _corpora(draw: st.DrawFn, kind: str) -> Any:
    """A corpus of a format with one or two mistakes, or bytes that are no document at all."""
    if draw(st.integers(0, 19)) == 0:
        return draw(_RAW_BYTES)
    return _sound_but(SOUND[kind].make(workbench.TURNS), draw)


def _sound_but(document: Any, draw: st.DrawFn) -> Any:
    """The document with one or two values replaced, removed, repeated or renamed."""
    for _ in range(draw(st.integers(1, 2))):
        places = list(_places(document))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        way = draw(st.sampled_from(("replace", "replace", "replace", "rename", "repeat", "remove")))
        if way == "replace":
            holder[key] = copy.deepcopy(draw(_VALUES))
        elif way == "rename" and isinstance(holder, dict):
            holder[draw(_WORDS)[:300]] = holder.pop(key)
        elif way == "repeat" and isinstance(holder, list):
            holder.append(copy.deepcopy(holder[key]))
        else:
            del holder[key]
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _check_corpus(folder: Path, kind: str, held: Path, document: Any, *, is_process: bool) -> None:
    """Check that a corpus is either read and can be stored, or refused in one line, with the memory unchanged."""
    path = SOUND[kind].write(folder, SOUND[kind].make(workbench.TURNS) if isinstance(document, bytes) else document)
    if isinstance(document, bytes):
        next(each for each in sorted(folder.rglob("*")) if each.is_file()).write_bytes(document)
    if is_process:
        _check_build(folder, kind, held, path)
    fault = ""
    try:
        corpus = load_corpus(kind, str(path))
    except LocigraphError as error:
        fault = str(error)
    assert len(fault) < 2_000, fault[:2_000]
    if fault:
        return
    with Store(":memory:") as store:  # what was read can be stored
        turns = [turn for conversation in corpus.conversations for turn in conversation.turns]
        assert store.append_turns(turns) == len(turns)
        for conversation in corpus.conversations:
            # Sessions with the same time are sorted by name, whatever their order in the file.
            assert _by_session(store.turns(conversation.space)) == _by_session(conversation.turns)


def _check_build(folder: Path, kind: str, held: Path, path: Path) -> None:
    place = folder.with_name("try")
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(held, place)
    workbench.commands(place)  # sets the text encoder
    store = ["--store", str(place / "graph.sqlite"), "--checkpoint", "null"]
    words = ["build", "--corpus.path", str(path), "--corpus.format", kind, *store]
    code, said = as_process(lambda: cli.main(words), folder.with_name("said"))
    if code == 2:
        _check_line(said)
        assert _content(place) == _content(held)
    else:
        assert code in (0, 1), said  # 1 if turns were stored but nothing could be extracted from them


def _check_line(said: str) -> None:
    assert said.startswith("locigraph: "), said
    assert said.count("\n") == 1, said
    assert said.rstrip("\n").isprintable(), said


def _content(folder: Path) -> dict[str, bytes]:
    """The files below a folder, except those that SQLite creates when it opens a database."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    }


def _by_session(turns: Sequence[Turn]) -> dict[str, list[Turn]]:
    found: dict[str, list[Turn]] = {}
    for turn in turns:
        held = replace(
            turn, position=0, spoken_at=optional_moment(optional_epoch(turn.spoken_at))
        )  # only whole seconds are stored
        found.setdefault(turn.session_id, []).append(held)
    return found


@cache
def _sound_configuration(command: str) -> Any:
    """A command's own options with their defaults."""
    parser = cli._parser(command)
    return yaml.safe_load(parser.dump(parser.get_defaults(), skip_validation=True)) | _COMMANDS[command]


@st.composite
def _configurations(draw: st.DrawFn) -> tuple[str, bytes, list[str]]:
    """A command with a configuration that contains one or two mistakes."""
    command = draw(st.sampled_from(list(_COMMANDS)))
    if draw(st.integers(0, 9)) == 0:
        return command, draw(_RAW_BYTES), []
    text = yaml.safe_dump(_sound_but(copy.deepcopy(_sound_configuration(command)), draw), allow_unicode=True)
    return command, text.encode(errors="surrogatepass"), []


@st.composite
def _command_lines(draw: st.DrawFn) -> tuple[str, bytes, list[str]]:
    """A command with its required options, and up to three more options or words, right or wrong."""
    command = draw(st.sampled_from(list(_COMMANDS)))
    options = st.sampled_from(sorted(_options(command))) | st.text(max_size=8).map("--{}".format)
    words = [f"--{name}={value}" for name, value in _COMMANDS[command].items()]
    for _ in range(draw(st.integers(1, 3))):
        option = draw(options)
        value = draw(_VALUES.map(_written) | _WORDS)
        words += draw(st.sampled_from(([f"{option}={value}"], [option, value], [option], [value])))
    return command, b"", [word for word in words if not _asks_for_help(word)]


def _written(value: Any) -> str:
    return str(value) if isinstance(value, str | float) else json.dumps(value)


def _options(command: str) -> list[str]:
    return [name for action in cli._parser(command)._actions for name in action.option_strings]


def _asks_for_help(word: str) -> bool:
    """Whether to leave a word out: it makes a command print something, or holds a NUL, which no process accepts."""
    is_help = word.startswith(("-h", "--help", "--print_", "--config")) or word.partition("=")[0].endswith(".help")
    return is_help or "\0" in word


def _check_words(folder: Path, given: tuple[str, bytes, list[str]], *, is_process: bool) -> None:
    """Check that words are refused in one line, at least since there is no store, or are only resolved."""
    command, configuration, more = given
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    makes_much = command in _MAKE_MUCH
    asked = ["q"] if command in ("recall", "explain") else []
    words = [command, *asked, *more, *(["--print_config"] if makes_much else [])]
    if configuration or not more:
        (folder / "run.yaml").write_bytes(configuration)
        words += ["--config", "run.yaml"]
    content, before = _content(folder), Path.cwd()
    os.chdir(folder)
    try:
        code, said = as_process(lambda: cli.main(words), folder.with_name("said")) if is_process else _ended(words)
    finally:
        os.chdir(before)
    what = f"{words} {configuration[:300]!r}"
    assert code == 2 or (code == 0 and makes_much), f"{what}: {code} {said}"
    assert (code == 0) == (said == ""), f"{what}: {said}"
    if code == 2:
        _check_line(said)
    assert _content(folder) == content, f"{what} wrote {_content(folder).keys() - content.keys()}"


def _ended(words: list[str]) -> tuple[int, str]:
    error = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        try:
            cli.main(words)
        except SystemExit as stop:
            return int(stop.code or 0), error.getvalue()
    return 0, error.getvalue()


def _check_interpreter(folder: Path, kind: str) -> None:
    """Check that a new interpreter prints one line and exits with code 2."""
    path = folder / "broken.json"
    path.write_bytes(b"[{")
    arguments = ["build", "--corpus.path", str(path), "--corpus.format", kind, "--store", str(folder / "none.sqlite")]
    ended = subprocess.run(
        [sys.executable, "-m", "locigraph", *arguments], capture_output=True, text=True, check=False, cwd=folder
    )
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith("locigraph: "), ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert not (folder / "none.sqlite").exists()

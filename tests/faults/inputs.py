"""Inputs: corpora of all formats and configurations with something wrong in them; the answer is one clear line."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from locigraph.kg.corpora import load_corpus
from locigraph.kg.errors import LocigraphError
from locigraph.kg.store import Store
from locigraph.kg.times import moment, optional_epoch
from locigraph.kg.types import Turn
from locigraph.scripts import cli
from tests.faults import workbench
from tests.faults.children import as_process

#: What stands in the place of a value, a key or a whole document.
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
#: All commands but ``demo``, which needs no input, with what must be named.
_COMMANDS = {command: {"space": "x"} if command in ("recall", "explain", "forget") else {} for command in cli._HELP}
del _COMMANDS["demo"]
#: These would do much if nothing were wrong: their configuration is resolved, and no more.
_MAKE_MUCH = ("ablate", "build", "evaluate", "search", "serve", "transfer")


def _locomo() -> list[Any]:
    said = [{"dia_id": f"D1:{i}", "speaker": "Ann", "text": text} for i, text in enumerate(workbench.TURNS, start=1)]
    asked = [{"question": "Who?", "answer": "Ann", "evidence": ["D1:1"], "category": 1}]
    talk = {"session_1": said, "session_1_date_time": "1:56 pm on 8 May, 2023", "speaker_a": "Ann", "speaker_b": "Ben"}
    return [{"sample_id": "c1", "conversation": talk, "qa": asked}]


def _longmemeval() -> list[Any]:
    session = [{"role": "user", "content": text, "has_answer": i == 0} for i, text in enumerate(workbench.TURNS)]
    return [
        {
            "question_id": "q1", "question_type": "single", "question": "Who?", "answer": "Ann",
            "question_date": "2023/05/30 (Tue) 03:16", "haystack_dates": ["2023/05/20 (Sat) 02:21"],
            "haystack_session_ids": ["s1"], "haystack_sessions": [session], "answer_session_ids": ["s1"],
        }
    ]  # fmt: skip


def _jsonl() -> list[Any]:
    told = workbench.conversation("c1")
    told["questions"] = [{"question_id": "q", "text": "Who?", "evidence_turn_ids": ["t0"], "category": "x"}]
    told["events"] = [{"text": "A party.", "turn_ids": ["t1"], "start": "2024-01-01", "end": None}]
    told["facts"] = [{"text": "Ann is here.", "turn_ids": ["t0"]}]
    return [told]


_SOUND: dict[str, Callable[[], list[Any]]] = {"locomo": _locomo, "longmemeval": _longmemeval, "jsonl": _jsonl}


def tries(seed: int, folder: Path) -> Iterator[Callable[[], None]]:
    """Tries without end: of corpora and configurations by turns, now and then in a process of their own."""
    randomness = random.Random(seed)
    folder.mkdir(exist_ok=True)
    cli._parser = _parser  # made once: making them is most of the work
    number = 0
    while True:
        number += 1
        kind = randomness.choice(sorted(_SOUND))
        command = randomness.choice(list(_COMMANDS))
        if number % 1_000 == 1:
            yield partial(_check_interpreter, folder, kind)
        elif number % 2:
            yield partial(_check_corpus, folder, kind, _corpus(randomness, kind))
        else:
            text = _configuration(randomness, command)
            yield partial(_check_configuration, folder, command, text, is_process=number % 20 == 0)


def _corpus(randomness: random.Random, kind: str) -> bytes:
    if randomness.random() < 0.05:
        return randomness.choice(_RAW)
    return _written(kind, _sound_but(_SOUND[kind](), randomness))


def _written(kind: str, documents: list[Any]) -> bytes:
    text = "\n".join(json.dumps(each) for each in documents) if kind == "jsonl" else json.dumps(documents)
    return text.encode()


def _sound_but(document: Any, randomness: random.Random) -> Any:
    """A copy with one or two values replaced, removed or renamed."""
    changed = copy.deepcopy(document)
    for _ in range(randomness.randint(1, 2)):
        places = list(_places(changed))
        if not places:
            break
        holder, key = randomness.choice(places)
        way = randomness.random()
        if way < 0.75:
            holder[key] = copy.deepcopy(randomness.choice(NASTY))
        elif isinstance(holder, dict) and way < 0.85:
            holder[str(randomness.choice(NASTY))[:300]] = holder.pop(key)
        elif isinstance(holder, list) and way < 0.9:
            holder.append(copy.deepcopy(holder[key]))
        else:
            del holder[key]
    return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])


def _check_corpus(folder: Path, kind: str, raw: bytes) -> None:
    path = folder / "corpus.json"
    path.write_bytes(raw)
    fault = ""
    try:
        corpus = load_corpus(kind, str(path))
    except LocigraphError as error:
        fault = str(error)
    assert len(fault) < 2_000, fault[:2_000]
    if fault:
        return
    (folder / "graph.sqlite").unlink(missing_ok=True)
    with Store(folder / "graph.sqlite") as store:  # what was read can be kept
        turns = [turn for conversation in corpus.conversations for turn in conversation.turns]
        assert store.append_turns(turns) == len(turns)
        for conversation in corpus.conversations:
            # Sessions of one time stand in the order of their names, whatever that of the file.
            assert _by_session(store.turns(conversation.space)) == _by_session(conversation.turns)


def _by_session(turns: Sequence[Turn]) -> dict[str, list[Turn]]:
    found: dict[str, list[Turn]] = {}
    for turn in turns:
        held = replace(turn, position=0, spoken_at=moment(optional_epoch(turn.spoken_at)))  # whole seconds are kept
        found.setdefault(turn.session_id, []).append(held)
    return found


@cache
def _parser(command: str, make: Callable[[str], Any] = cli._parser) -> Any:
    return make(command)


@cache
def _sound_configuration(command: str) -> Any:
    """A command's own options with their defaults."""
    parser = _parser(command)
    return yaml.safe_load(parser.dump(parser.get_defaults(), skip_validation=True)) | _COMMANDS[command]


def _configuration(randomness: random.Random, command: str) -> bytes:
    if randomness.random() < 0.1:
        return randomness.choice(_RAW)
    text = yaml.safe_dump(_sound_but(_sound_configuration(command), randomness), allow_unicode=True)
    return text.encode(errors="surrogatepass")


def _check_configuration(folder: Path, command: str, text: bytes, *, is_process: bool) -> None:
    """A configuration is refused in one line, if only for want of a store; or it is resolved, and no more is done."""
    path = folder / "run.yaml"
    path.write_bytes(text)
    makes_much = command in _MAKE_MUCH
    asked = ["q"] if command in ("recall", "explain") else []
    words = [command, *asked, "--config", str(path), *(["--print_config"] if makes_much else [])]
    before = Path.cwd()
    os.chdir(folder)
    try:
        code, said = as_process(lambda: cli.main(words), folder / "said") if is_process else _ended(words)
    finally:
        os.chdir(before)
    assert code == 2 or (code == 0 and makes_much), f"{command} {text[:300]!r}: {code} {said}"
    assert (code == 0) == (said == ""), f"{command} {text[:300]!r}: {said}"
    if code == 2:
        assert said.startswith("locigraph: "), said
        assert said.count("\n") == 1, said
        assert said.rstrip("\n").isprintable(), said


def _ended(words: list[str]) -> tuple[int, str]:
    error = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
        try:
            cli.main(words)
        except SystemExit as stop:
            return int(stop.code or 0), error.getvalue()
    return 0, error.getvalue()


def _check_interpreter(folder: Path, kind: str) -> None:
    """An interpreter of its own says one line and ends with 2."""
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

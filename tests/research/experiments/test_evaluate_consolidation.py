from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.consolidation.endpoints import NOWHERE
from tests.consolidation.stub_server import Stub, extracted, stub_server
from tests.fakes_models import tiny_text_encoder
from tests.test_cli import assert_one_line_and_code_2, run

TURNS = [
    {"turn_id": "t0", "speaker": "Ann", "text": "I repair old wooden boats in Porto."},
    {"turn_id": "t1", "speaker": "Ann", "text": "I bought a red racing bicycle last week."},
]
FACTS = [{"text": "Ann said: I repair old wooden boats in Porto.", "turn_ids": ["t0"]}]
EVENTS = [{"text": "Ann bought a bicycle", "turn_ids": ["t1"], "start": "2024-01-01", "end": "2024-01-07"}]


def corpus(**recorded: object) -> str:
    session = {"session_id": "s1", "started_at": "2024-01-10T10:00:00Z", "turns": TURNS}
    return json.dumps({"conversation_id": "c", "sessions": [session], "questions": [], **recorded}) + "\n"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command over a small corpus with a recorded fact, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    Path("chat.jsonl").write_text(corpus(facts=FACTS))
    model = tiny_text_encoder(tmp_path / "tiny")
    return ["evaluate-consolidation", "--corpus.path", "chat.jsonl", "--encoder.model", model]


@pytest.mark.long
def test_a_model_is_judged_beside_rules_and_records_with_what_it_cost(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chat.jsonl").write_text(corpus(facts=FACTS, events=EVENTS))
    command = ["evaluate-consolidation", "--corpus.path", "chat.jsonl"]
    command += ["--encoder.model", tiny_text_encoder(tmp_path / "tiny"), "--threshold", "0.99", "--llm.model", "m"]
    with stub_server(Stub(extracted, rate=1, faults=["prose"], most=1)) as stub:
        asked = ["--output", "out", "--llm.base_url", stub.url, "--llm.output_price", "50"]
        code, out, error = run(capsys, *command, *asked)
    assert code == 0, error
    rows = json.loads(Path("out/consolidation.json").read_text())["rows"]
    assert list(rows) == ["rules", "recorded", "m"]
    assert rows["recorded"]["covered"] == rows["recorded"]["dates_right"] == 1
    assert rows["m"]["counts"]["recorded"] == 2
    assert rows["m"]["counts"]["covered"] >= 1  # the fact is word for word what the model writes
    faults = {"invalid": 1, "repaired": 1, "given_up": 0, "failed": 0}
    assert {name: rows["m"][name] for name in faults} == faults
    assert rows["m"]["stages"]["architect"]["invalid"] == 1
    assert rows["m"]["calls"] == len(stub.requests) == 5
    assert rows["m"]["cost"] == pytest.approx(5 * 20 * 50 / 1e6)
    assert "covered" in out
    assert "\nrecorded" in out
    assert rows["m"]["seconds_per_turn"] > 0
    code, shown, error = run(capsys, *command, *asked)  # everything is done, and the endpoint is gone
    assert code == 0, error
    assert shown == out
    assert json.loads(Path("out/consolidation.json").read_text())["rows"] == rows


@pytest.mark.long
def test_a_replay_shows_what_the_recorded_replies_took_or_that_it_is_unknown(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command += ["--llm.model", "m"]
    with stub_server(Stub(extracted, rate=1, faults=["prose"], most=3)) as stub:  # one turn fails, one reply is mended
        asked = ["--output", "out", "--llm.base_url", stub.url, "--llm.output_price", "50"]
        assert run(capsys, *command, *asked)[0] == 0
    rows = json.loads(Path("out/consolidation.json").read_text())["rows"]
    assert (rows["m"]["calls"], rows["m"]["invalid"], rows["m"]["repaired"], rows["m"]["failed"]) == (5, 3, 1, 1)

    command += ["--llm.mode", "replay"]
    code, _, error = run(capsys, *command)
    assert_one_line_and_code_2(code, error, "llm.cassette is not set")
    cassette = next(Path("out").glob("llm-*.replies.sqlite"))
    command += ["--llm.cassette", str(cassette)]
    for _ in range(2):
        assert run(capsys, *command, "--output", "replayed")[0] == 0
        replayed = json.loads(Path("replayed/consolidation.json").read_text())["rows"]["m"]
        # How long the models took is not known here; everything else is.
        assert replayed == rows["m"] | {"seconds_per_turn": None, "setup": replayed["setup"]}

    with closing(sqlite3.connect(cassette)) as file:  # as earlier versions recorded it
        file.execute("DROP TABLE origins")
    code, shown, error = run(capsys, *command, "--output", "unknown")
    assert code == 0, error
    unknown = json.loads(Path("unknown/consolidation.json").read_text())["rows"]["m"]
    assert unknown["counts"] == rows["m"]["counts"]
    assert unknown["stages"] == {"architect": None, "scribe": None}
    assert shown.splitlines()[-2].split()[-8:] == ["1", *7 * ["-"]]  # failed turns are counted in any case


def test_only_the_same_models_at_the_same_endpoints_with_the_same_parameters_share_a_row(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command += ["--output", "out"]

    def nothing(request: dict[str, Any]) -> Any:
        return extracted(request) | {"add": []}

    with stub_server(Stub(extracted)) as stub, stub_server(Stub(nothing)) as other:
        runs = [
            (stub, ["--llm.model", "model", "--llm.scribe.model", "a"]),
            (stub, ["--llm.model", "model", "--llm.scribe.model", "b"]),
            (stub, ["--llm.model", "model"]),
            (other, ["--llm.model", "model"]),
            (stub, ["--llm.model", "model", "--llm.temperature", "1"]),
            (other, ["--llm.model", "rules"]),
        ]
        for server, options in runs:
            before = len(server.requests)
            code, _, error = run(capsys, *command, "--llm.base_url", server.url, *options)
            assert code == 0, error
            assert len(server.requests) - before == (4 if server is stub else 2)
        code, _, error = run(capsys, *command, "--llm.base_url", f"{stub.url}/", "--llm.model", "model")
        assert code == 0, error
        assert len(stub.requests) == 4 * 4
        rows = json.loads(Path("out/consolidation.json").read_text())["rows"]
        assert {name: row["made"] for name, row in rows.items()} == {
            "rules": 2, "recorded": 1, "model + a": 2, "model + b": 2,
            f"model ({stub.url}, temperature 0.0)": 2, f"model ({other.url}, temperature 0.0)": 0,
            f"model ({stub.url}, temperature 1.0)": 2, f"rules ({other.url})": 0,
        }  # fmt: skip
        assert "calls" not in rows["rules"]


def test_a_reply_of_one_endpoint_is_not_taken_for_anothers(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command += ["--llm.model", "m", "--llm.cassette", "c.sqlite"]
    with stub_server(Stub(extracted)) as stub, stub_server(Stub(extracted)) as other:
        assert run(capsys, *command, "--llm.base_url", stub.url)[0] == 0
        again = [*command, "--llm.base_url", other.url, "--output", "other"]
        code, _, error = run(capsys, *again)
        assert code == 2
        assert f"c.sqlite: the architect's reply about turn 't0' was recorded at {stub.url}, not at" in error
        assert other.requests == []
        assert run(capsys, *again, "--llm.mode", "replay")[0] == 0


def test_an_interrupted_evaluation_ends_with_the_usage_of_one_that_was_not(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    command += ["--llm.model", "m", "--output", "out"]

    def then_an_outage(request: dict[str, Any]) -> Any:
        stub.rate = 1.0 if len(stub.requests) == 3 else 0.0  # the plan of the second turn is the last reply
        return extracted(request)

    with stub_server(Stub(then_an_outage, faults=["503"])) as stub:
        command += ["--llm.base_url", stub.url]
        assert run(capsys, *command, "--llm.deadline_s", "0.1")[0] == 2
        stub.rate = 0.0
        code, _, error = run(capsys, *command)
        assert code == 0, error
    row = json.loads(Path("out/consolidation.json").read_text())["rows"]["m"]
    assert (row["calls"], row["tokens"]) == (4, 480)
    assert row["seconds_per_turn"] > 0


def test_models_are_compared_in_one_table_each_by_a_graph_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chat.jsonl").write_text(corpus(facts=FACTS, events=EVENTS))
    command = ["evaluate-consolidation", "--corpus.path", "chat.jsonl", "--output", "out"]
    command += ["--encoder.model", tiny_text_encoder(tmp_path / "tiny")]
    with stub_server(Stub(extracted)) as stub:
        assert run(capsys, *command, "--llm.base_url", stub.url, "--llm.model", "m")[0] == 0
        asked = len(stub.requests)
        code, out, error = run(capsys, *command, "--llm.base_url", stub.url, "--llm.model", "n")
        assert code == 0, error
        assert len(stub.requests) == 2 * asked
        rows = json.loads(Path("out/consolidation.json").read_text())["rows"]
        assert list(rows) == ["rules", "recorded", "m", "n"]
        assert rows["m"]["counts"] == rows["n"]["counts"]
        assert [line.split()[0] for line in out.splitlines()[2:6]] == list(rows)
        # At another threshold the earlier rows would not be comparable.
        code, out, error = run(capsys, *command, "--llm.base_url", stub.url, "--llm.model", "n", "--threshold", "0.5")
        assert code == 0, error
        assert "its rows had another threshold, and are left out" in out
    assert list(json.loads(Path("out/consolidation.json").read_text())["rows"]) == ["rules", "recorded", "n"]


def test_a_dry_run_counts_what_the_models_would_be_asked_and_makes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chat.jsonl").write_text(corpus(facts=FACTS, events=EVENTS))
    command = ["evaluate-consolidation", "--corpus.path", "chat.jsonl", "--dry_run", "true", "--llm.base_url", NOWHERE]
    code, out, error = run(capsys, *command, "--llm.model", "m")
    assert code == 0, error
    assert out.startswith("dry run: 2 turns to consolidate by llm, about 4 calls, ")
    assert [path.name for path in tmp_path.iterdir()] == ["chat.jsonl"]


def test_a_corpus_without_recorded_facts_cannot_judge_and_nothing_is_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("chat.jsonl").write_text(corpus())
    code, _, error = run(capsys, "evaluate-consolidation", "--corpus.path", "chat.jsonl")
    assert_one_line_and_code_2(code, error, "conversation 'c' has no recorded facts to compare with")
    code, _, error = run(capsys, "evaluate-consolidation", "--threshold", "0")
    assert_one_line_and_code_2(code, error, "threshold is 0.0")
    assert [path.name for path in tmp_path.iterdir()] == ["chat.jsonl"]

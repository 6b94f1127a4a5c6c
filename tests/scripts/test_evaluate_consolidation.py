from __future__ import annotations

import json
from pathlib import Path

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
    code, _, error = run(capsys, *command, *asked)  # everything is done, and the endpoint is gone
    assert code == 0, error
    again = json.loads(Path("out/consolidation.json").read_text())["rows"]["m"]
    assert again["stages"] == rows["m"]["stages"]

    code, _, error = run(capsys, *command, "--output", "replayed", "--llm.mode", "replay")
    assert code == 0, error
    replayed = json.loads(Path("replayed/consolidation.json").read_text())["rows"]["m"]
    assert replayed["counts"] == rows["m"]["counts"]
    assert (replayed["calls"], replayed["cost"]) == (0, 0)


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
        assert run(capsys, *command, "--llm.base_url", stub.url, "--llm.model", "n", "--threshold", "0.5")[0] == 0
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

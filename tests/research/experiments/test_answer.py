"""Answers from contexts and their judges, against the scripted endpoint."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from locigraph.assembly.opening import read_corpus
from locigraph.assembly.settings import CorpusSettings
from locigraph.consolidation import llm
from locigraph.kg.types import Question, SpaceId
from locigraph.research.evaluation.contexts import write_contexts
from locigraph.research.evaluation.outcomes import PackedContext, StrategyRun
from tests.consolidation.stub_server import Stub, stub_server
from tests.test_cli import assert_one_line_and_code_2, run

WRONG_REPLIES = ("empty", "no choices", "cut off", "refusal", "prose", "surplus field", "no list")


def locomo(folder: Path) -> Path:
    """Two conversations of four questions, and one that is not answered; the second has a reference for it."""

    def conversation(name: str, answers: list[str]) -> dict[str, Any]:
        asked = [
            {"question": f"What of {name} {i}?", "answer": answer, "evidence": ["D1:1"], "category": 4}
            for i, answer in enumerate(answers)
        ]
        adversarial = {"question": f"What of nobody in {name}?", "evidence": ["D1:1"], "category": 5}
        asked.append(adversarial if name == "one" else {**adversarial, "answer": "No"})
        said = [{"speaker": "Ann", "dia_id": "D1:1", "text": "I bought a canoe"}]
        talk = {"session_1": said, "session_1_date_time": "1:56 pm on 8 May, 2023"}
        return {"sample_id": name, "conversation": talk, "qa": asked}

    path = folder / "locomo.json"
    made = [
        conversation("one", ["a canoe", "tom", "seven", "lake"]),
        conversation("two", ["red", "bread", "may", "oslo"]),
    ]
    path.write_text(json.dumps(made))
    return path


@pytest.fixture
def evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results: the contexts of v2 hold the answer of every question but one, those of v1 hold none."""
    monkeypatch.setattr(llm, "_FIRST_PAUSE_S", 0.01)
    corpus = read_corpus(CorpusSettings(path=str(locomo(tmp_path)), format="locomo"))
    assert [q.question_id for q in corpus.unanswerable] == ["one:4", "two:4"]
    assert len(corpus.questions) == 8

    def contexts(question: Question, told: bool) -> dict[int, PackedContext]:
        lines = (f"[8 May 2023] Ann: {question.answer} (D1:1)",) if told else ()
        return {1_000: PackedContext(lines, (), 10)}

    everything = (*corpus.questions, *corpus.unanswerable)
    runs = [
        StrategyRun("v2", {}, {}, {}, None, {
            q.question_id: contexts(q, q.category != "adversarial" and q.question_id != "one:3")
            for q in everything
        }),
        StrategyRun("v1", {}, {}, {}, None, {q.question_id: contexts(q, False) for q in everything}),
    ]  # fmt: skip
    folder = tmp_path / "run"
    folder.mkdir()
    write_contexts(folder / "contexts.jsonl.gz", runs)
    (folder / "results.json").write_text(json.dumps({"corpus": {"sha256": corpus.sha256}}))
    return folder


def replied(request: dict[str, Any]) -> Any:
    """Answers what the only memory says, and judges by equality; the grade is too kind to wrong answers."""
    document = json.loads(request["messages"][1]["content"])
    if "memories" in document:
        if not document["memories"]:
            return {"is_known": False, "answer": ""}
        return {"is_known": True, "answer": document["memories"][0].split("Ann: ")[1].split(" (")[0]}
    is_right = document["answer"] == document["reference"]
    if "fact by fact" in request["messages"][0]["content"]:
        return {"facts": [{"fact": document["reference"], "is_covered": is_right}]}
    return {"grade": 1.0 if is_right else 0.6}


def options(folder: Path, stub: Stub, *more: str) -> list[str]:
    """Words of the command; ``more`` changes options or adds some."""
    usual = {
        "--results": str(folder), "--corpus.path": str(folder.parent / "locomo.json"), "--corpus.format": "locomo",
        "--llm.base_url": stub.url, "--llm.model": "m", "--llm.cassette": str(folder.parent / "tape.sqlite"),
    }  # fmt: skip
    changed = usual | dict(zip(more[::2], more[1::2], strict=True))
    return ["answer", *(word for pair in changed.items() for word in pair)]


def test_answers_are_judged_and_abstention_is_scored_apart(evaluated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with stub_server(Stub(replied)) as stub:
        code, out, err = run(capsys, *options(evaluated, stub, "--wrong", "4"))
        assert code == 0, err
        asked = len(stub.requests)
        # Two strategies of ten questions, two judges of seven known answers and of four wrong ones; the contexts of
        # nothing are alike for both strategies, but their answers are asked for at the same time or replayed.
        assert 10 + 14 + 8 <= asked <= 20 + 14 + 8
        run(capsys, *options(evaluated, stub, "--wrong", "4"))
        assert len(stub.requests) == asked  # the second time all came from the cassette
    held = json.loads((evaluated / "answers.json").read_text())
    assert held["strategies"]["v2"]["overall"] == pytest.approx(
        {"f1": 7 / 8, "bleu1": 7 / 8, "facts": 7 / 8, "grade": 7 / 8, "abstained": 1 / 8}
    )
    assert held["strategies"]["v1"]["overall"]["abstained"] == 1.0
    assert held["strategies"]["v2"]["unanswerable"] == 1.0
    assert held["judges"] == {"wrong_answers": 4, "facts_taken_for_right": 0.0, "grade_taken_for_right": 1.0}
    assert set(held["prompts"]) == set(held["spent"]) == {"answer", "judge_facts", "judge_grade"}
    assert sum(stage["calls"] for stage in held["spent"].values()) == asked
    assert "4 answers known to be wrong that the judges accepted: by facts 0.000, by grade 1.000" in out
    lines = [json.loads(line) for line in (evaluated / "answers.jsonl").read_text().splitlines()]
    assert len(lines) == 20
    assert lines[0]["verdict"] == {"facts": 1.0, "grade": 1.0}


@pytest.mark.parametrize("more", [[], ["--corpus.categories", '["single-hop", "adversarial"]']])
def test_an_adversarial_question_with_a_reference_is_in_no_number_but_its_own(
    evaluated: Path, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    with stub_server(Stub(replied)) as stub:
        code, _, err = run(capsys, *options(evaluated, stub, "--wrong", "0", *more))
        assert code == 0, err
    held = json.loads((evaluated / "answers.json").read_text())["strategies"]
    assert [held[name]["answers"] for name in ("v1", "v2")] == [8, 8]
    assert [held[name]["unanswerable"] for name in ("v1", "v2")] == [1.0, 1.0]
    assert set(held["v1"]["by_category"]) == {"single-hop"}
    lines = map(json.loads, (evaluated / "answers.jsonl").read_text().splitlines())
    asked = [(line["question_id"], line["reference"]) for line in lines if line["strategy"] == "v1"]
    assert len(asked) == 10
    assert ("two:4", None) in asked


def test_a_limit_stops_with_code_3_and_a_higher_one_goes_on_where_it_stopped(
    evaluated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stub_server(Stub(replied)) as stub:
        call = options(evaluated, stub, "--wrong", "2", "--concurrency", "1")
        code, _, err = run(capsys, *call, "--max_tokens", "1500")
        assert code == 3
        assert "stopped by max_tokens 1,500" in err
        assert not (evaluated / "answers.json").exists()
        before = len(stub.requests)
        assert 0 < before <= 13  # 120 tokens each
        code, _, err = run(capsys, *call, "--max_tokens", "1000000")
        assert code == 0, err
        together = len(stub.requests)
    held = json.loads((evaluated / "answers.json").read_text())
    assert sum(stage["calls"] for stage in held["spent"].values()) == together > before  # both runs
    with stub_server(Stub(replied)) as stub:
        other = evaluated.parent / "tape2.sqlite"
        again = [str(other) if word.endswith("tape.sqlite") else word for word in options(evaluated, stub)]
        (evaluated / "spent_by_stage.json").unlink()
        run(capsys, *again, "--wrong", "2", "--concurrency", "1")
        assert len(stub.requests) == together  # nothing had been asked twice


def test_faults_of_the_endpoint_change_no_number(evaluated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults = (*WRONG_REPLIES, "fence", "around", "429", "503", "no JSON", "reset")
    # Of this seed the first 20 requests meet all twelve faults, whichever of two at a time comes first.
    with stub_server(Stub(replied, rate=0.3, faults=faults, most=12, chance=random.Random(149))) as stub:
        code, _, err = run(capsys, *options(evaluated, stub, "--wrong", "4", "--concurrency", "2"))
        assert code == 0, err
        assert len(stub.met) == 12
    held = json.loads((evaluated / "answers.json").read_text())
    failed = held["failed"]  # a fault twice on one request: counted, and in no mean
    assert failed <= 4
    assert held["strategies"]["v1"]["overall"]["abstained"] == 1.0
    assert held["strategies"]["v2"]["answers"] + held["strategies"]["v1"]["answers"] >= 16 - failed


def test_replies_that_stay_useless_are_counted_and_in_no_mean(
    evaluated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def kind(request: dict[str, Any]) -> Any:
        reply = replied(request)
        return {"grade": 7} if "grade" in reply else reply

    with stub_server(Stub(kind)) as stub:
        code, out, err = run(capsys, *options(evaluated, stub, "--wrong", "0"))
    assert code == 0, err
    assert "7 unusable answers are left out, of all strategies" in out
    held = json.loads((evaluated / "answers.json").read_text())
    assert held["failed"] == 7
    assert held["strategies"]["v2"]["answers"] == 1
    assert held["judges"]["wrong_answers"] == 0


def test_an_endpoint_that_is_down_is_an_error_and_no_answer(
    evaluated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stub_server(Stub(replied, rate=1.0, faults=["503"])) as stub:
        code, _, err = run(capsys, *options(evaluated, stub, "--llm.deadline_s", "0.05"))
    assert code == 2
    told = err.splitlines()[-1]  # behind the progress
    assert told.startswith("locigraph: ")
    assert "503" in told
    assert "run again" in told
    assert not (evaluated / "answers.json").exists()


def test_what_cannot_be_answered_is_refused_before_anything_is_asked(
    evaluated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stub_server(Stub(replied)) as stub:
        for more, words in (
            (["--strategies", "v2,v3"], ["strategy 'v3' was not evaluated", "v2, v1"]),
            (["--budget_tokens", "700"], ["no contexts of 700 tokens", "1000"]),
            (["--concurrency", "0"], ["concurrency is 0"]),
            (["--corpus.path", "sample"], ["SHA-256", "name the same corpus"]),
            (["--results", str(evaluated.parent)], ["not an output folder of locigraph evaluate"]),
            (["--llm.model", ""], ["llm.model"]),
            (
                ["--max_cost", "1", "--llm.input_price", "1", "--judge.model", "big", "--judge.base_url", stub.url],
                ["max_cost is 1.0, but judge.input_price"],
            ),
        ):
            code, _, err = run(capsys, *options(evaluated, stub, *more))
            assert_one_line_and_code_2(code, err, *words)
        assert stub.requests == []


def test_a_draw_of_questions_is_the_same_for_all_strategies(
    evaluated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stub_server(Stub(replied)) as stub:
        run(capsys, *options(evaluated, stub, "--questions", "3", "--wrong", "0", "--strategies", "v1,v2"))
    lines = [json.loads(line) for line in (evaluated / "answers.jsonl").read_text().splitlines()]
    drawn = [[line["question_id"] for line in lines if line["strategy"] == name] for name in ("v1", "v2")]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 3 + 2  # and both that are not answered
    assert {SpaceId(each.split(":")[0]) for each in drawn[0]} <= {"one", "two"}


def test_questions_are_drawn_from_those_that_were_evaluated(
    evaluated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = {1_000: PackedContext(("[8 May 2023] Ann: hm (D1:1)",), (), 10)}
    some = StrategyRun("v2", {}, {}, {}, None, {"one:0": context, "two:1": context})
    write_contexts(evaluated / "contexts.jsonl.gz", [some])
    with stub_server(Stub(replied)) as stub:
        run(capsys, *options(evaluated, stub, "--questions", "2", "--wrong", "0"))
    lines = (evaluated / "answers.jsonl").read_text().splitlines()
    assert {json.loads(line)["question_id"] for line in lines} == {"one:0", "two:1"}

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from locigraph.kg.corpora import Conversation, Corpus
from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.kg.types import Question, SpaceId, TurnId
from locigraph.research.evaluation.outcomes import StrategyRun
from locigraph.research.evaluation.question_scores import compare_again
from locigraph.research.experiments.result_files import write_results
from locigraph.training.leaks import Fold
from tests.fakes import make_turns

SPACES = [SpaceId(f"s{i}") for i in range(6)]
LINES = [f"turn {i}" for i in range(4)]


def corpus() -> Corpus:
    conversations = tuple(Conversation(space, tuple(make_turns(LINES, space=space))) for space in SPACES)
    questions = tuple(
        Question(space, f"{space}:q", "what?", "c", (TurnId("t0"),), evidence_sessions=("s1",)) for space in SPACES
    )
    corrections = {"s0:q": (TurnId("t3"),)}
    return Corpus(conversations, questions, format="locomo", path="x.json", sha256="ab", corrections=corrections)


def run(name: str, turn: str, seed: int | None = None) -> StrategyRun:
    ids = [f"{space}:q" for space in SPACES]
    return StrategyRun(name, dict.fromkeys(ids, (turn,)), dict.fromkeys(ids, 1.0), dict.fromkeys(ids, 0.0), seed)


def test_files_hold_every_run_and_a_second_gold(tmp_path: Path) -> None:
    runs = [run("v1", "t1"), run("v2", "t0", 0), run("v2", "t1", 1)]
    folds = [Fold(0, (), (), tuple(SPACES[:3])), Fold(1, (), (), tuple(SPACES[3:]))]
    (tmp_path / "contexts.jsonl.gz").write_bytes(b"of an earlier run")
    results = write_results(
        tmp_path, corpus(), runs, folds, [("v2", "v1")], ["a note"], {"commit": "x"}, seed=0, learnt=SeenTexts()
    )
    assert not (tmp_path / "contexts.jsonl.gz").exists()
    assert results["corpus"]["conversations"] == len(SPACES)
    assert json.loads((tmp_path / "results.json").read_text()) == json.loads(json.dumps(results))
    # One seed finds all, the other none.
    assert results["strategies"]["v2"]["overall"]["recall@10"] == pytest.approx(0.5)
    second = results["second_gold"]
    assert second is not None
    assert second["changed"] == 1
    # With the corrected gold of s0 the first seed finds five of six.
    assert second["strategies"]["v2"]["overall"]["recall@10"] == pytest.approx(5 / 12)
    lines = [json.loads(line) for line in (tmp_path / "rankings.jsonl").read_text().splitlines()]
    assert len(lines) == 18
    assert {(line["strategy"], line["seed"]) for line in lines} == {("v1", None), ("v2", 0), ("v2", 1)}
    assert sum("Check of the test itself" in note for note in results["notes"]) == 2
    page = (tmp_path / "report.html").read_text()
    assert '"text":"what?"' in page
    assert '"turns":[["t0","turn 0"]' in page
    report = (tmp_path / "report.md").read_text()
    assert "By seed" in report
    assert "Against corrected evidence" in report
    assert "gold of 1 question" in report


def test_questions_whose_evidence_or_wording_was_learnt_are_in_the_means_but_in_no_comparison(tmp_path: Path) -> None:
    learnt = "The piano went to the attic before the storms of that winter."
    asked = corpus()
    turns = make_turns([learnt, *LINES[1:]], space=SPACES[0])
    questions = (*asked.questions[:1], replace(asked.questions[1], text="Who moved the piano?"), *asked.questions[2:])
    changed = replace(
        asked, conversations=(Conversation(SPACES[0], tuple(turns)), *asked.conversations[1:]), questions=questions
    )
    ids = [q.question_id for q in questions]
    # v2 is right about these two questions only, and v1 about the others.
    found = {name: "t0" if (name in ids[:2]) else "t1" for name in ids}
    runs = [
        replace(run("v1", "t0"), rankings={name: ("t1" if turn == "t0" else "t0",) for name, turn in found.items()}),
        replace(run("v2", "t0"), rankings={name: (turn,) for name, turn in found.items()}),
    ]
    seen = SeenTexts([learnt.upper(), "who moved the PIANO"])
    results = write_results(tmp_path, changed, runs, [], [("v2", "v1")], [], {}, seed=0, learnt=seen)
    assert results["left_out"] == ids[:2]
    assert results["strategies"]["v2"]["overall"]["recall@10"] == pytest.approx(2 / 6)
    assert {row["delta"] for row in results["comparisons"]} == {-1.0}
    assert results["comparisons"][0]["clusters"] == 4
    assert "the sign-flip test over 4 conversations" in results["notes"][0]  # that of these comparisons
    again = compare_again(tmp_path / "question_scores.jsonl.gz", [("v2", "v1")])
    assert [row["delta"] for row in again] == [-1.0, -1.0]


def test_where_everything_was_learnt_nothing_is_compared(tmp_path: Path) -> None:
    runs = [run("v1", "t1"), run("v2", "t0")]
    results = write_results(tmp_path, corpus(), runs, [], [("v2", "v1")], [], {}, seed=0, learnt=SeenTexts(["What?"]))
    assert results["comparisons"] == []
    assert results["strategies"]["v2"]["overall"]["recall@10"] == 1.0

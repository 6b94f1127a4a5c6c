from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from locigraph.research.errors import EvaluationError
from locigraph.research.evaluation.outcomes import QuestionOutcome, StrategyRun
from locigraph.research.evaluation.question_scores import compare_again, write_question_scores
from locigraph.research.evaluation.summary import summarise
from tests.research.evaluation.planted import planted_questions, planted_run


def outcomes(count: int = 40) -> list[QuestionOutcome]:
    return [QuestionOutcome(f"q{i}", f"space {i % 6}", "odd" if i % 2 else "even", ("t0", "t1")) for i in range(count)]


def run(name: str, strength: float, seed: int | None = None) -> StrategyRun:
    rng = np.random.default_rng([len(name), seed or 0])
    turns = [f"t{i}" for i in range(30)]
    rankings: dict[str, tuple[str, ...]] = {}
    for question in outcomes():
        keys = rng.random(30)
        keys[:2] -= strength
        rankings[question.question_id] = tuple(turns[i] for i in np.argsort(keys))
    none = dict.fromkeys(rankings, 0.0)
    return StrategyRun(name, rankings, none, none, seed)


def test_the_statistics_of_a_record_come_out_the_same_again(tmp_path: Path) -> None:
    runs = [run("v2", 0.5, 0), run("v2", 0.5, 1), run("v1", 0.2), run("dense", 0.1)]
    path = tmp_path / "scores.jsonl.gz"
    write_question_scores(path, outcomes(), runs)
    pairs = [("v2", "v1"), ("v2", "dense")]
    expected = summarise(outcomes(), runs, comparisons=pairs, seed=3)["comparisons"]
    assert compare_again(path, pairs, seed=3) == expected
    assert compare_again(path, pairs[:1], metrics=["recall@5"], without=["q0"])[0]["delta"] != expected[0]["delta"]


def test_strategies_of_two_records_of_the_same_questions_are_compared_as_if_they_stood_in_one(tmp_path: Path) -> None:
    runs = [run("v2", 0.5), run("v1", 0.2)]
    both, one, other, fewer = (tmp_path / f"{name}.jsonl.gz" for name in ("both", "one", "other", "fewer"))
    write_question_scores(both, outcomes(), runs, left_out=["q1", "q2"])
    write_question_scores(one, outcomes(), runs[:1], left_out=["q1"])
    write_question_scores(other, outcomes(), runs[1:], left_out=["q2"])
    (expected,) = compare_again(both, [("v2", "v1")], metrics=["recall@10"])
    (found,) = compare_again(one, [("v2", "v1@2")], also=[other], metrics=["recall@10"])
    assert found == {**expected, "b": "v1@2"}
    write_question_scores(fewer, outcomes(39), runs[1:])
    with pytest.raises(EvaluationError, match=r"fewer.*its questions are not those of .*one.* \(39 and 40\)"):
        compare_again(one, [("v2", "v1@2")], also=[fewer])


def test_records_of_which_some_have_contexts_are_compared_in_the_metrics_of_all(tmp_path: Path) -> None:
    with_contexts = planted_run("v2", first_gold_rank=1, tokens_a_turn=100)
    without = replace(with_contexts, contexts={})
    paths = [tmp_path / "with.jsonl.gz", tmp_path / "without.jsonl.gz"]
    for path, each in zip(paths, (with_contexts, without), strict=True):
        write_question_scores(path, planted_questions(), [each])
    for first, second in (paths, paths[::-1]):
        (row,) = compare_again(first, [("v2", "v2@2")], also=[second], metrics=["recall@10"])
        assert row["delta"] == 0
        with pytest.raises(EvaluationError, match="metric 'recall@500tokens' is not computed"):
            compare_again(first, [("v2", "v2@2")], also=[second], metrics=["recall@500tokens"])


def test_contexts_are_among_the_scores(tmp_path: Path) -> None:
    runs = [
        planted_run("v2", first_gold_rank=1, tokens_a_turn=100),
        planted_run("v1", first_gold_rank=5, tokens_a_turn=100),
    ]
    path = tmp_path / "scores.jsonl.gz"
    write_question_scores(path, planted_questions(), runs)
    (row,) = compare_again(path, [("v2", "v1")], metrics=["recall@500tokens"])
    assert row["delta"] == pytest.approx(0.5)


def test_a_record_that_is_absent_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(
        EvaluationError, match=r"absent\.gz: no such file; name one that locigraph evaluate has written"
    ):
        compare_again(tmp_path / "absent.gz", [("v2", "v1")])


def test_the_same_scores_are_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        write_question_scores(tmp_path / name, outcomes(), [run("v1", 0.3)])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "content", [b"", b"no gzip", gzip.compress(b"no json", mtime=0), gzip.compress(b'{"a": 1}\n', mtime=0)]
)
def test_what_are_no_question_scores_is_said_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "scores.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(EvaluationError, match=r"not a question scores file|no question is left"):
        compare_again(path, [("a", "b")])


def test_unknown_strategies_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl.gz"
    write_question_scores(path, outcomes(), [run("v1", 0.3)])
    with pytest.raises(EvaluationError, match="there is no strategy 'v2'"):
        compare_again(path, [("v2", "v1")])
    with pytest.raises(EvaluationError, match="no question is left"):
        compare_again(path, [("v1", "v1")], without=[q.question_id for q in outcomes()])
    with pytest.raises(EvaluationError, match="question 'zzz' is not in it"):
        compare_again(path, [("v1", "v1")], without=["q0", "zzz"])
    assert json.loads(gzip.decompress(path.read_bytes()).splitlines()[0])["space"] == "space 0"

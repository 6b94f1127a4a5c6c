from __future__ import annotations

from pathlib import Path

import pytest

from locigraph.research.evaluation.question_scores import write_question_scores
from locigraph.scripts.commands.research.compare import compare
from tests.research.evaluation.planted import planted_questions, planted_run


def test_one_value_stands_for_a_list_of_one_and_commas_separate_pairs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "scores.jsonl.gz")
    runs = [planted_run("v2", first_gold_rank=1), planted_run("v1", first_gold_rank=5)]
    questions = planted_questions()
    write_question_scores(Path(path), questions, runs)
    left_out = questions[0].question_id
    compare(scores=path, also=path, pairs="v2:v1,v2:v1@2", without=left_out)
    told = capsys.readouterr().out
    assert [line.split("  ")[0] for line in told.splitlines()] == ["v2 - v1", "v2 - v1@2"] * 2
    compare(scores=path, also=[path], pairs=["v2:v1", "v2:v1@2"], without=[left_out])
    assert capsys.readouterr().out == told

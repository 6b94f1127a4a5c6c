from __future__ import annotations

from pathlib import Path

import ir_measures
import pytest

from locigraph.research.errors import EvaluationError
from locigraph.research.evaluation.trec import export_trec
from locigraph.research.experiments.result_files import write_rankings
from locigraph.retrieval.metrics import score_ranking
from locigraph.scripts.commands.research.compare import compare
from tests.research.evaluation.test_question_scores import outcomes, run


def test_another_tool_finds_the_same_scores_in_the_exported_files(tmp_path: Path) -> None:
    made = run("v2", 0.3, 1)
    write_rankings(tmp_path / "rankings.jsonl", outcomes(), [made, run("v1", 0.1)])
    written = export_trec(tmp_path / "rankings.jsonl", tmp_path / "trec")
    assert [path.name for path in written] == ["qrels.txt", "v2-seed1.run", "v1.run"]
    measures = {"recall@5": "R@5", "recall@10": "R@10", "ndcg@10": "nDCG@10", "mrr": "RR"}
    found = {
        (metric.query_id, str(metric.measure)): metric.value
        for metric in ir_measures.iter_calc(
            [ir_measures.parse_measure(name) for name in measures.values()],
            list(ir_measures.read_trec_qrels(str(written[0]))),
            list(ir_measures.read_trec_run(str(written[1]))),
        )
    }
    for question in outcomes():
        ours = score_ranking(made.rankings[question.question_id], frozenset(question.gold))
        for name, theirs in measures.items():
            assert ours[name] == pytest.approx(found[question.question_id, theirs], abs=1e-4), (question, name)


def test_ids_with_blanks_stay_one_column(tmp_path: Path) -> None:
    line = '{"question_id": "a b", "seed": null, "gold": ["t 1"], "ranking": ["t 1", "t\\t2"], "strategy": "x y"}\n'
    (tmp_path / "r.jsonl").write_text(line)
    qrels, ranked = export_trec(tmp_path / "r.jsonl", tmp_path / "out")
    assert qrels.read_text() == "a%20b 0 t%201 1\n"
    assert [row.split()[2] for row in ranked.read_text().splitlines()] == ["t%201", "t%092"]
    assert ranked.name == "x_y.run"


def test_a_question_for_which_nothing_was_found_is_judged_but_has_no_line_in_the_run_as_the_help_says(
    tmp_path: Path,
) -> None:
    line = '{"question_id": "q%d", "seed": null, "gold": ["t"], "ranking": %s, "strategy": "v1"}\n'
    (tmp_path / "r.jsonl").write_text(line % (1, '["t"]') + line % (2, "[]"))
    qrels, ranked = export_trec(tmp_path / "r.jsonl", tmp_path / "out")
    assert qrels.read_text() == "q1 0 t 1\nq2 0 t 1\n"
    assert ranked.read_text() == "q1 Q0 t 1 1.000000 v1\n"
    assert "-c" in (export_trec.__doc__ or "").split("``trec_eval``")[1]
    assert "trec_eval with -c" in (compare.__doc__ or "")


@pytest.mark.parametrize("content", ["", "nonsense", '{"question_id": "q"}'])
def test_what_are_no_rankings_is_said_so(tmp_path: Path, content: str) -> None:
    (tmp_path / "r.jsonl").write_text(content)
    with pytest.raises(EvaluationError, match=r"not a rankings file|holds no ranking"):
        export_trec(tmp_path / "r.jsonl", tmp_path / "out")

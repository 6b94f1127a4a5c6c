"""Evaluation of retrieval without LLM judges: metrics, significance tests, leak checks and the report.

Call ``make_folds`` and ``check_folds`` before training, ``summarise`` with the rankings of all strategies, then
``text_table`` for the terminal and ``write_report`` for files. Everything is a pure function of its arguments and seed,
except ``write_report``. The package knows no strategy and no corpus by name: which strategies are compared, and how
each is explained, are arguments.
"""

from __future__ import annotations

from locigraph.retrieval.evaluation.errors import EvaluationError, IncompleteRunError, LeakError
from locigraph.retrieval.evaluation.leaks import (
    Fold,
    check_folds,
    check_text_leak,
    copied_evidence,
    make_folds,
    seen_evidence,
)
from locigraph.retrieval.evaluation.metrics import evidence_recall, ndcg, score_ranking
from locigraph.retrieval.evaluation.outcomes import QuestionOutcome, StrategyRun
from locigraph.retrieval.evaluation.report import text_table, write_report
from locigraph.retrieval.evaluation.results import Results, SecondGold, Summary
from locigraph.retrieval.evaluation.sessions import session_recall
from locigraph.retrieval.evaluation.significance import cluster_bootstrap, sign_flip_test
from locigraph.retrieval.evaluation.summary import summarise

__all__ = [
    "EvaluationError",
    "Fold",
    "IncompleteRunError",
    "LeakError",
    "QuestionOutcome",
    "Results",
    "SecondGold",
    "StrategyRun",
    "Summary",
    "check_folds",
    "check_text_leak",
    "cluster_bootstrap",
    "copied_evidence",
    "evidence_recall",
    "make_folds",
    "ndcg",
    "score_ranking",
    "seen_evidence",
    "session_recall",
    "sign_flip_test",
    "summarise",
    "text_table",
    "write_report",
]

"""Judge-free evaluation of retrieval: scores, significance, leak checks and the report.

The way through the package: ``make_folds`` and ``check_folds`` before training, ``summarise`` over the
rankings of all strategies, ``text_table`` on the terminal and ``write_report`` on disk. Everything is a pure
function of its arguments and seed, except ``write_report``.
"""

from __future__ import annotations

from locigraph.retrieval.evaluation.errors import EvaluationError, IncompleteRunError, LeakError
from locigraph.retrieval.evaluation.leaks import Fold, check_folds, check_text_leak, copied_evidence, make_folds
from locigraph.retrieval.evaluation.metrics import (
    METRICS,
    all_evidence_recall,
    evidence_recall,
    hit,
    ndcg,
    recall_curve,
    reciprocal_rank,
    score_ranking,
)
from locigraph.retrieval.evaluation.outcomes import QuestionOutcome, StrategyRun
from locigraph.retrieval.evaluation.report import text_table, write_report
from locigraph.retrieval.evaluation.results import (
    Comparison,
    CorpusSummary,
    Results,
    SecondGold,
    StrategySummary,
    Summary,
)
from locigraph.retrieval.evaluation.sessions import session_recall
from locigraph.retrieval.evaluation.significance import (
    AACheck,
    a_a_check,
    cluster_bootstrap,
    holm,
    question_level_test,
    sign_flip_test,
    smallest_p,
)
from locigraph.retrieval.evaluation.summary import default_comparisons, summarise

__all__ = [
    "METRICS",
    "AACheck",
    "Comparison",
    "CorpusSummary",
    "EvaluationError",
    "Fold",
    "IncompleteRunError",
    "LeakError",
    "QuestionOutcome",
    "Results",
    "SecondGold",
    "StrategyRun",
    "StrategySummary",
    "Summary",
    "a_a_check",
    "all_evidence_recall",
    "check_folds",
    "check_text_leak",
    "cluster_bootstrap",
    "copied_evidence",
    "default_comparisons",
    "evidence_recall",
    "hit",
    "holm",
    "make_folds",
    "ndcg",
    "question_level_test",
    "recall_curve",
    "reciprocal_rank",
    "score_ranking",
    "session_recall",
    "sign_flip_test",
    "smallest_p",
    "summarise",
    "text_table",
    "write_report",
]

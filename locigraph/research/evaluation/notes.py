"""A note in the report on its significance test: whether the test rejects true null hypotheses too often."""

from __future__ import annotations

from collections.abc import Sequence

from locigraph.kg.counts import counted
from locigraph.research.evaluation.outcomes import QuestionOutcome, StrategyRun
from locigraph.research.evaluation.significance import NOMINAL, TRIALS, a_a_check
from locigraph.retrieval.metrics import evidence_recall


def a_a_note(questions: Sequence[QuestionOutcome], first: StrategyRun, second: StrategyRun, *, seed: int) -> str:
    """How often the sign-flip test rejects if there is no difference, in data with the spread of these conversations.

    Args:
        questions: The questions that are compared.
        first: Rankings of a strategy.
        second: Rankings of the strategy that it is compared with.
        seed: Random seed of the trials.
    """
    differences = [
        evidence_recall(first.rankings[q.question_id], set(q.gold), 10)
        - evidence_recall(second.rankings[q.question_id], set(q.gold), 10)
        for q in questions
    ]
    check = a_a_check(differences, [q.space for q in questions], seed=seed)
    if not check.can_reject:
        verdict = "cannot find any difference with so few conversations"
    elif check.is_near_nominal:
        verdict = "works as it should"
    elif check.is_anti_conservative:
        verdict = "rejects too often, so its p-values must not be believed"
    else:
        verdict = "is conservative here"
    return (
        f"Check of the test itself, on {first.name} against {second.name}: on data without any difference, the "
        f"sign-flip test over {counted(check.clusters, 'conversation')} finds one in {check.rate:.1%} of {TRIALS:,} "
        f"trials; {NOMINAL:.0%} is expected. It {verdict}."
    )

"""The browser of questions in the report: which strategy found which evidence at which rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from locigraph.research.evaluation.document import Interactive
from locigraph.research.evaluation.outcomes import QuestionOutcome, StrategyRun, by_strategy

_SCRIPT = files("locigraph.research.evaluation").joinpath("question_browser.js")


def browser_data(
    questions: Sequence[QuestionOutcome],
    runs: Sequence[StrategyRun],
    texts: Mapping[str, str],
    turns: Mapping[str, Mapping[str, str]],
) -> dict[str, Any]:
    """Data of the browser, in which every name and turn is stored once.

    Args:
        questions: Questions with their gold evidence.
        runs: One for each strategy and seed; of several seeds the first is shown.
        texts: Text of each question by its ID.
        turns: Text of each turn by conversation and ID.

    Returns:
        JSON with ``strategies``, ``categories``, ``turns`` (pairs of ID and text) and ``questions``, which have
        ``text``, ``space``, ``category`` and ``evidence`` (the last two as positions in the lists above), and
        ``ranks`` by strategy and evidence: from 1, or 0 if not found.
    """
    first = {name: same[0] for name, same in by_strategy(runs).items()}
    categories = sorted({question.category for question in questions})
    place: dict[tuple[str, str], int] = {}
    shown = []
    for question in questions:
        ranks = []
        for run in first.values():
            rank = {turn: at for at, turn in enumerate(run.rankings[question.question_id], start=1)}
            ranks.append([rank.get(turn, 0) for turn in question.gold])
        shown.append(
            {
                "text": texts[question.question_id],
                "space": question.space,
                "category": categories.index(question.category),
                "evidence": [place.setdefault((question.space, turn), len(place)) for turn in question.gold],
                "ranks": ranks,
            }
        )
    return {
        "strategies": list(first),
        "categories": categories,
        "turns": [[turn, turns[space][turn]] for space, turn in place],
        "questions": shown,
    }


def browser_block(data: Mapping[str, Any]) -> Interactive:
    """The browser as a part of a document."""
    return Interactive(
        element="browser",
        data_element="questions",
        data=data,
        script=_SCRIPT.read_text(encoding="utf-8"),
        instead="In report.html, this section lets you browse all questions; it needs JavaScript.",
    )

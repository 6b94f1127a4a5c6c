"""Small results with known winners, shared by the tests of results, plots and report."""

from __future__ import annotations

from collections.abc import Sequence

from locigraph.research.evaluation.outcomes import PackedContext, QuestionOutcome, StrategyRun
from locigraph.research.evaluation.results import CorpusSummary, Results, Summary
from locigraph.research.evaluation.summary import summarise
from locigraph.retrieval.metrics import TOKEN_BUDGETS

NASTY = '<script>alert("x")</script> $x$ | `a` & \x1b[31m'
CONVERSATIONS = 6
QUESTIONS_EACH = 4


def run_of(name: str, rankings: dict[str, tuple[str, ...]]) -> StrategyRun:
    """A run of equal times."""
    return StrategyRun(name, rankings, dict.fromkeys(rankings, 1.0), dict.fromkeys(rankings, 0.0))


def planted_questions() -> list[QuestionOutcome]:
    return [
        QuestionOutcome(
            question_id=f"c{conversation}/q{index}",
            space=f"c{conversation}",
            category="odd" if index % 2 else "even",
            gold=("g1", "g2"),
        )
        for conversation in range(CONVERSATIONS)
        for index in range(QUESTIONS_EACH)
    ]


def planted_run(
    name: str, *, first_gold_rank: int, search_ms: float = 2.0, tokens_a_turn: int | None = None
) -> StrategyRun:
    """A run that puts its two gold turns next to each other, the first at ``first_gold_rank``.

    With ``tokens_a_turn`` it has contexts of as many turns as fit.
    """
    fillers = [f"t{index}" for index in range(60)]
    ranking = (*fillers[: first_gold_rank - 1], "g1", "g2", *fillers[first_gold_rank - 1 :])
    ids = [question.question_id for question in planted_questions()]
    return StrategyRun(
        name=name,
        rankings=dict.fromkeys(ids, ranking),
        search_ms={question_id: search_ms * (index + 1) for index, question_id in enumerate(ids)},
        encode_ms=dict.fromkeys(ids, 5.0),
        contexts={} if tokens_a_turn is None else dict.fromkeys(ids, contexts_of(ranking, tokens_a_turn)),
    )


def contexts_of(ranking: Sequence[str], tokens_a_turn: int) -> dict[int, PackedContext]:
    made = {}
    for budget in TOKEN_BUDGETS:
        turns = tuple(ranking[: budget // tokens_a_turn])
        made[budget] = PackedContext(tuple(f"memory {turn}" for turn in turns), turns, tokens_a_turn * len(turns))
    return made


def planted_summary(names: Sequence[str] = ("v2", "v1", "dense")) -> Summary:
    """Each strategy finds the gold three ranks later than the one before; the first is compared with each other."""
    runs = [planted_run(name, first_gold_rank=1 + 3 * index) for index, name in enumerate(names)]
    return summarise(planted_questions(), runs, comparisons=[(names[0], other) for other in names[1:]])


def planted_results(names: Sequence[str] = ("v2", "v1", "dense")) -> Results:
    return {
        **planted_summary(names),
        "corpus": CorpusSummary(path="data/sample.json", sha256="ab12", questions=24, skipped={"no evidence": 3}),
        "manifest": {"command": "locigraph evaluate --config run.yaml", "commit": "c0ffee", "seed": 0},
        "notes": ["The corpus is planted."],
        "left_out": [],
        "sessions": {},
        "second_gold": None,
    }

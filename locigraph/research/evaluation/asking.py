"""Runs a strategy on every question, and packs its hits into contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from locigraph.kg.types import Question
from locigraph.kg.views import Views
from locigraph.research.evaluation.outcomes import PackedContext, QuestionOutcome, StrategyRun
from locigraph.research.evaluation.results import CURVE_TOP_KS
from locigraph.retrieval.budgets import Budget
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.metrics import TOKEN_BUDGETS
from locigraph.retrieval.packing import SnapshotDates, retrieve_contexts
from locigraph.retrieval.protocols import Retriever

#: Number of turns that are kept of each ranking.
DEPTH = max(CURVE_TOP_KS)


def run_strategy(
    retriever: Retriever,
    questions: Sequence[Question],
    views: Views | None = None,
    *,
    name: str | None = None,
    unanswerable: Sequence[Question] = (),
    packer: Retriever | None = None,
) -> StrategyRun:
    """Run one strategy on all questions, one at a time, as a user would, and pack its hits into contexts.

    A context may need more memories than a ranking holds, so contexts come from a second search, which is not timed.

    Args:
        retriever: The strategy.
        questions: Questions with evidence.
        views: The graphs, for the contexts; None packs no contexts.
        name: Name of the run in the results; None takes the retriever's own.
        unanswerable: Questions for which only contexts are packed.
        packer: The same strategy over the same vectors in memory, which makes that second search several times faster
            than in an embedded index; None makes it with ``retriever``.
    """
    packer = packer or retriever
    rankings: dict[str, tuple[str, ...]] = {}
    contexts: dict[str, dict[int, PackedContext]] = {}
    search_ms: dict[str, float] = {}
    encode_ms: dict[str, float] = {}
    label = name or retriever.name
    for question in tqdm(questions, desc=label, unit="question"):
        result = retriever.retrieve(question.text, question.space, as_of=question.asked_at, top_k=DEPTH)
        rankings[question.question_id] = tuple(turns_of_hits(result.hits, top_k=DEPTH))
        search_ms[question.question_id] = result.timing.search_ms
        encode_ms[question.question_id] = result.timing.encode_ms
        if views is not None:
            contexts[question.question_id] = packed_contexts(packer, question, views)
    if views is not None:
        contexts |= {each.question_id: packed_contexts(packer, each, views) for each in unanswerable}
    return StrategyRun(label, rankings, search_ms, encode_ms, contexts=contexts)


def packed_contexts(retriever: Retriever, question: Question, views: Views) -> dict[int, PackedContext]:
    """The hits of a strategy for a question, packed into one context for each of ``TOKEN_BUDGETS``."""
    _, contexts = retrieve_contexts(
        retriever,
        question.text,
        SnapshotDates(views.at(question.space, question.asked_at)),
        [Budget(tokens=tokens) for tokens in TOKEN_BUDGETS],
        space=question.space,
        as_of=question.asked_at,
    )
    packed = {}
    for tokens, context in zip(TOKEN_BUDGETS, contexts, strict=True):
        turns = dict.fromkeys(turn for line in context.memories for turn in line.turn_ids)
        packed[tokens] = PackedContext(context.texts, tuple(turns), context.tokens)
    return packed


def joined_runs(runs: Sequence[StrategyRun], *, seed: int | None = None) -> StrategyRun:
    """Merge runs of one strategy over different questions, such as the folds that were trained with one seed."""

    def merged(field: str) -> dict[str, Any]:
        return {key: value for run in runs for key, value in getattr(run, field).items()}

    return StrategyRun(
        runs[0].name, merged("rankings"), merged("search_ms"), merged("encode_ms"), seed, merged("contexts")
    )


def outcomes(questions: Sequence[Question], fold_of: Mapping[str, int]) -> list[QuestionOutcome]:
    """The questions with their gold evidence, and with the fold that tests each of them."""
    return [
        QuestionOutcome(q.question_id, q.space, q.category, q.evidence, q.evidence_sessions, fold_of.get(q.space))
        for q in questions
    ]

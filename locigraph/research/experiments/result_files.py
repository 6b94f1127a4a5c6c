"""Scores the rankings of an evaluation, and writes its files: rankings, numbers, report."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from locigraph.kg.corpora import Corpus
from locigraph.kg.counts import counted, is_or_are
from locigraph.kg.files import replace_file
from locigraph.kg.language.seen_texts import SeenTexts
from locigraph.research.evaluation.asking import outcomes
from locigraph.research.evaluation.contexts import write_contexts
from locigraph.research.evaluation.notes import a_a_note
from locigraph.research.evaluation.outcomes import QuestionOutcome, StrategyRun, by_strategy
from locigraph.research.evaluation.question_browser import browser_data
from locigraph.research.evaluation.question_scores import write_question_scores
from locigraph.research.evaluation.report import write_report
from locigraph.research.evaluation.results import Results, SecondGold
from locigraph.research.evaluation.sessions import session_recall
from locigraph.research.evaluation.summary import summarise
from locigraph.training.leaks import Fold, copied_evidence, seen_evidence


def write_results(
    folder: Path,
    corpus: Corpus,
    runs: Sequence[StrategyRun],
    folds: Sequence[Fold],
    pairs: Sequence[tuple[str, str]] | None,
    notes: Sequence[str],
    manifest: Mapping[str, Any],
    *,
    seed: int,
    learnt: SeenTexts,
    strategies: Mapping[str, str] | None = None,
) -> Results:
    """Score runs and write rankings.jsonl, contexts.jsonl.gz, question_scores.jsonl.gz, results.json and the report.

    Args:
        folder: Where to write.
        corpus: The corpus whose questions were asked.
        runs: Rankings of each strategy and seed.
        folds: Folds of the trained strategies; empty if none was trained.
        pairs: Strategies to compare, the proposed one first; None for the default pairs.
        notes: Notes for the report.
        manifest: How the numbers were computed.
        seed: Random seed of the statistics.
        learnt: Texts that a given checkpoint or adapter has learnt from, and turns of further corpora that were trained
            on in every fold. Questions whose wording or evidence is among them are left out of comparisons, as are
            those whose evidence occurs word for word in the training conversations of their fold.
        strategies: Name of a strategy -> a sentence that explains it in the report; None for no explanations.
    """
    questions = outcomes(corpus.questions, {space: fold.index for fold in folds for space in fold.test})
    # Written first, since the rankings took most of the time and must survive an error in the statistics.
    write_rankings(folder / "rankings.jsonl", questions, runs)
    if any(run.contexts for run in runs):
        write_contexts(folder / "contexts.jsonl.gz", runs)
    else:  # those of an earlier run would be taken for contexts of these results
        (folder / "contexts.jsonl.gz").unlink(missing_ok=True)
    left_out = learnt_questions(corpus, folds, learnt)
    write_question_scores(folder / "question_scores.jsonl.gz", questions, runs, left_out=left_out)
    repetitions = by_strategy(runs)
    said = [*notes, *_notes_on_comparisons(questions, repetitions, left_out, pairs, seed)]
    session_of = {str(c.space): {str(t.turn_id): t.session_id for t in c.turns} for c in corpus.conversations}
    sessions: dict[str, dict[str, float]] = {}
    for name, same in repetitions.items():
        found = [session_recall(questions, run, session_of) for run in same]
        if found[0]:
            sessions[name] = {key: sum(each[key] for each in found) / len(found) for key in found[0]}
    said += [f"{name}: session recall@5 {s['recall@5']:.3f}, @10 {s['recall@10']:.3f}" for name, s in sessions.items()]
    second: SecondGold | None = None
    if corpus.corrections:
        corrected = [dataclasses.replace(q, gold=corpus.corrections.get(q.question_id, q.gold)) for q in questions]
        second = {
            **summarise(corrected, runs, comparisons=pairs, left_out=left_out, seed=seed),
            "changed": sum(set(a.gold) != set(b.gold) for a, b in zip(questions, corrected, strict=True)),
        }
    results: Results = {
        **summarise(questions, runs, comparisons=pairs, left_out=left_out, seed=seed),
        "corpus": {
            "path": corpus.source["path"], "sha256": corpus.sha256, "content": corpus.content,
            "conversations": len(corpus.conversations), "questions": len(corpus.questions), "skipped": corpus.skipped,
        },
        "manifest": manifest,
        "notes": said,
        "left_out": left_out,
        "sessions": sessions,
        "second_gold": second,
    }  # fmt: skip
    replace_file(folder / "results.json", json.dumps(results, indent=1) + "\n")
    texts = {question.question_id: question.text for question in corpus.questions}
    write_report(folder, results, strategies=strategies, questions=browser_data(questions, runs, texts, corpus.texts))
    return results


def _notes_on_comparisons(
    questions: Sequence[QuestionOutcome],
    repetitions: Mapping[str, Sequence[StrategyRun]],
    left_out: Sequence[str],
    pairs: Sequence[tuple[str, str]] | None,
    seed: int,
) -> Iterator[str]:
    """How sound the test of the first pair is, and how many questions no comparison uses."""
    compared = [question for question in questions if question.question_id not in left_out]
    if pairs and compared:
        proposed, baseline = pairs[0]
        for run in repetitions[proposed]:
            of_seed = "" if run.seed is None else f" (seed {run.seed})"
            yield a_a_note(compared, run, repetitions[baseline][0], seed=seed) + of_seed
    if left_out:
        yield (
            f"{counted(len(left_out), 'question')} {is_or_are(len(left_out))} in the means but left out of all "
            "comparisons, since their wording or some of their evidence occurs word for word in the training data; "
            "left_out in results.json lists them"
        )


def learnt_questions(corpus: Corpus, folds: Sequence[Fold], learnt: SeenTexts) -> list[str]:
    """IDs of the questions to leave out of comparisons, since their wording or evidence was learnt from.

    Args:
        corpus: The corpus whose questions are asked.
        folds: Folds of strategies that learn inside them; empty if none does.
        learnt: As in ``write_results``.
    """
    evidence = {q.question_id: (str(q.space), q.evidence) for q in corpus.questions}
    seen = {*copied_evidence(folds, evidence, corpus.texts), *seen_evidence(learnt, evidence, corpus.texts)}
    return [q.question_id for q in corpus.questions if q.question_id in seen or q.text in learnt]


def write_rankings(path: Path, questions: Sequence[QuestionOutcome], runs: Sequence[StrategyRun]) -> None:
    """Write one line of JSON per run and question: IDs of the turns, best first, with the gold and the fold."""
    lines = [
        {
            "question_id": question.question_id,
            "space": question.space,
            "category": question.category,
            "strategy": run.name,
            "seed": run.seed,
            "fold": question.fold,
            "gold": question.gold,
            "ranking": run.rankings[question.question_id],
        }
        for run in runs
        for question in questions
    ]
    replace_file(path, "".join(json.dumps(line) + "\n" for line in lines))

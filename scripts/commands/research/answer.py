"""``locigraph answer``: have a language model answer questions from the contexts of an evaluation."""

from __future__ import annotations

from pathlib import Path

from locigraph.assembly.settings import CorpusSettings, ModelSettings
from locigraph.kg.name_list import Names, names_in


def answer(
    *,
    results: str = "runs/evaluate",
    corpus: CorpusSettings = CorpusSettings(),
    strategies: Names | None = None,
    budget_tokens: int = 1_000,
    questions: int | None = None,
    wrong: int = 100,
    llm: ModelSettings = ModelSettings(),
    judge: ModelSettings | None = None,
    concurrency: int = 4,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    seed: int = 0,
) -> None:
    """Have a language model answer questions from each strategy's context, and judge them against the corpus' answers.

    Writes answers.json and answers.jsonl into the folder of the results. Can be interrupted and run again: replies
    are kept in the cassette.

    Args:
        results: Folder of locigraph evaluate.
        corpus: The corpus that was evaluated; its answers are the reference.
        strategies: Names of evaluated strategies; null for all.
        budget_tokens: Size of the contexts: 500, 1000 or 4000.
        questions: Number of answerable questions to sample, and also of unanswerable ones; null for all.
        wrong: Number of answers known to be wrong that are judged first, in the same way as all others, to measure the
            judges' errors.
        llm: Language model that answers.
        judge: Language model that judges; null for the one that answers, although models favour their own answers.
        concurrency: Largest number of concurrent requests.
        max_tokens: Limit on the tokens used, including earlier runs in this folder; at the limit the command stops with
            exit code 3.
        max_cost: The same limit for the cost, in the currency of the prices.
        seed: Random seed of the sample of questions.
    """
    import random

    from locigraph.assembly import opening
    from locigraph.assembly.language_models import clients_of
    from locigraph.kg.corpora import FORMATS
    from locigraph.kg.errors import LocigraphError
    from locigraph.research.evaluation.contexts import read_contexts
    from locigraph.research.experiments.answers import Answering, SpentFile, answers_table

    for name, value, least in (("concurrency", concurrency, 1), ("questions", questions, 1), ("wrong", wrong, 0)):
        if value is not None and value < least:
            raise LocigraphError(f"{name} is {value}; expected {least} or more")
    clients = clients_of(llm, max_tokens=max_tokens, max_cost=max_cost)
    answerer = clients("answer")
    judging = answerer if judge is None else clients_of(judge, ledger=answerer.ledger, option="judge")("judge")
    folder = Path(results)
    evaluated = _evaluated(folder)
    loaded = opening.read_corpus(corpus)
    if loaded.sha256 != evaluated:
        raise LocigraphError(
            f"{folder} holds an evaluation of a corpus with SHA-256 {evaluated}, but {loaded.path} has "
            f"{loaded.sha256}; name the same corpus"
        )
    contexts = _named(read_contexts(folder / "contexts.jsonl.gz", budget_tokens), strategies, folder)
    row = FORMATS[loaded.format]
    asked = set[str]().union(*contexts.values())  # an evaluation may have been of some categories alone
    answerable = [
        question
        for question in loaded.questions
        if question.answer and question.category not in row.unanswerable and question.question_id in asked
    ]
    unanswerable = [question for question in loaded.unanswerable if question.question_id in asked]
    if questions is not None:
        chance = random.Random(seed)
        answerable = chance.sample(answerable, min(questions, len(answerable)))
        unanswerable = chance.sample(unanswerable, min(questions, len(unanswerable)))
    if not answerable:
        raise LocigraphError(
            f"{loaded.path}: no question that was evaluated has a reference answer, so answers cannot be judged"
        )
    answerer.ledger.bind(SpentFile(folder / "spent_by_stage.json"))
    run = Answering(answerer, judging, contexts, answerable, unanswerable, row.listing, row.explained, concurrency)
    made = run.run(folder, wrong=wrong, seed=seed)
    print(answers_table(made))
    print(f"spent: {answerer.ledger.total}; numbers: {folder / 'answers.json'}; answers: {folder / 'answers.jsonl'}")


def _evaluated(folder: Path) -> str:
    """SHA-256 of the corpus of the results in a folder; raises LocigraphError if there are none."""
    import json

    from locigraph.kg.errors import LocigraphError

    try:
        return str(json.loads((folder / "results.json").read_text())["corpus"]["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LocigraphError(
            f"{folder}: not an output folder of locigraph evaluate ({error!r}); name one with --results"
        ) from error


def _named(contexts: dict[str, dict[str, str]], strategies: Names | None, folder: Path) -> dict[str, dict[str, str]]:
    """The contexts of some strategies, or of all; raises LocigraphError if one was not evaluated."""
    from locigraph.kg.errors import LocigraphError

    if strategies is None:
        return contexts
    named = names_in(strategies)
    missing = [name for name in named if name not in contexts]
    if missing:
        raise LocigraphError(f"strategy {missing[0]!r} was not evaluated; {folder} has {', '.join(contexts)}")
    return {name: contexts[name] for name in named}

"""Has questions answered from the contexts of an evaluation and the answers judged, and writes the results."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm

from locigraph.consolidation.errors import ReplyFormatError
from locigraph.consolidation.llm import ChatClient
from locigraph.kg.counts import Spent, counted, is_or_are
from locigraph.kg.files import replace_file
from locigraph.kg.types import Question, SpaceId
from locigraph.research.evaluation.answer_scores import (
    AnswerRecord,
    Verdict,
    judges_on_wrong,
    summarise_answers,
    wrong_answers,
)
from locigraph.research.experiments.answering import answer_from, covered_facts, grade_of, prompt_versions

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


class SpentFile:
    """A JSON file of the tokens and cost spent so far, earlier runs included: stage to counts.

    Args:
        path: The file; created when something is first spent.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        held = json.loads(path.read_text()) if path.exists() else {}
        self._held = {stage: Spent.of_stored(counts) for stage, counts in held.items()}

    def spent_by_stage(self) -> dict[str, Spent]:
        """What was spent on all questions, by stage."""
        return self._held

    def add_spent(self, space: SpaceId, turn_id: str, stage: str, spent: Spent) -> None:
        """Add what was spent, and write the file."""
        self._held[stage] = self._held.get(stage, Spent()) + spent
        replace_file(self._path, json.dumps({name: each.stored() for name, each in self._held.items()}))


@dataclass(frozen=True, eq=False)
class Answering:
    """Has a model answer questions from contexts, and the same or another model judge the answers.

    Attributes:
        answerer: Client of the model that answers.
        judge: Client of the model that judges, once by facts covered and once by grade.
        contexts: Contexts by strategy and question.
        questions: Questions that have an answer.
        unanswerable: Questions to which the right answer is that nothing is known, whatever answer the corpus gives.
        listing: Categories whose answers list several things.
        explained: Categories whose answers have an explanation after a semicolon.
        concurrency: Largest number of questions at a time.
    """

    answerer: ChatClient
    judge: ChatClient
    contexts: Mapping[str, Mapping[str, str]]
    questions: Sequence[Question]
    unanswerable: Sequence[Question]
    listing: Sequence[str]
    explained: Sequence[str]
    concurrency: int

    def run(self, folder: Path, *, wrong: int, seed: int) -> dict[str, Any]:
        """Ask, judge, and write answers.jsonl and answers.json; earlier replies are taken from the cassette.

        Questions whose replies are unusable even after a repair are counted as ``failed``. One that fails for one
        strategy is left out of the means of all.

        Args:
            folder: Where to write.
            wrong: Number of answers known to be wrong that are judged as well.
            seed: Random seed of their choice.

        Raises:
            LanguageModelError: If the endpoint fails or a limit is reached. Nothing is written then, but replies are
                kept in the cassette.
        """
        asked = [
            (strategy, question)
            for strategy in self.contexts
            for question in (*self.questions, *(replace(question, answer=None) for question in self.unanswerable))
            if question.question_id in self.contexts[strategy]
        ]
        known_wrong = wrong_answers(self.questions, wrong, seed=seed)
        # Wrong answers first, so that the judges' errors are known however far a limited run gets.
        verdicts = self._all("judge wrong answers", lambda each: self._verdict(*each), known_wrong)
        records = self._all("answer", lambda each: self._record(*each), asked)
        made = [record for record in records if record is not None]
        judged = [verdict for verdict in verdicts if verdict is not None]
        results = {
            "strategies": summarise_answers(made, self.listing, self.explained),
            "failed": len(asked) - len(made) + len(known_wrong) - len(judged),
            "judges": judges_on_wrong(judged),
            "spent": {stage: each.stored() for stage, each in self.answerer.ledger.by_stage().items()},
            "models": {"answer": self.answerer.model, "judges": self.judge.model},
            "prompts": prompt_versions(),
        }
        lines = "".join(json.dumps(dataclasses.asdict(record)) + "\n" for record in made)
        replace_file(folder / "answers.jsonl", lines)
        replace_file(folder / "answers.json", json.dumps(results, indent=1) + "\n")
        return results

    def _all(self, title: str, work: Callable[[_Item], _Made], items: Sequence[_Item]) -> list[_Made | None]:
        """The results of all items, in order; None for those whose replies were unusable."""
        found: list[_Made | None] = [None] * len(items)
        with ThreadPoolExecutor(self.concurrency) as pool:
            waiting = {pool.submit(work, item): at for at, item in enumerate(items)}
            try:
                for done in tqdm(as_completed(waiting), total=len(items), desc=title, unit="answer"):
                    with suppress(ReplyFormatError):  # the replies are kept beside the cassette
                        found[waiting[done]] = done.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)  # requests that were not sent yet would fail too
                raise
        return found

    def _record(self, strategy: str, question: Question) -> AnswerRecord:
        form = answer_from(self.answerer, question, self.contexts[strategy][question.question_id])
        is_judged = form.is_known and question.answer is not None
        return AnswerRecord(
            strategy,
            question.question_id,
            question.category,
            form.answer,
            form.is_known,
            question.answer,
            self._verdict(question, form.answer) if is_judged else None,
        )

    def _verdict(self, question: Question, answer: str) -> Verdict:
        return Verdict(covered_facts(self.judge, question, answer), grade_of(self.judge, question, answer))


def answers_table(results: Mapping[str, Any]) -> str:
    """Means by strategy as aligned text for the terminal, with the error rates of the judges."""
    names = ["facts", "grade", "f1", "bleu1", "abstained"]
    rows = [["strategy", "answers", *names, "unanswerable"]]
    for strategy, entry in results["strategies"].items():
        overall, apart = entry["overall"], entry["unanswerable"]
        cells = [f"{overall[name]:.3f}" if overall else "-" for name in names]
        rows.append([strategy, str(entry["answers"]), *cells, "-" if apart is None else f"{apart:.3f}"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    judges = results["judges"]
    if judges["wrong_answers"]:
        lines.append(
            f"Share of {judges['wrong_answers']} answers known to be wrong that the judges accepted: by facts "
            f"{judges['facts_taken_for_right']:.3f}, by grade {judges['grade_taken_for_right']:.3f}."
        )
    if results["failed"]:
        failed = results["failed"]
        lines.append(f"{counted(failed, 'unusable answer')} {is_or_are(failed)} left out, of all strategies.")
    return "\n".join(lines)

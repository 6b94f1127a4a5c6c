"""Training questions that need no labels: made from facts and events, whose source turns are the answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from locigraph.kg.schema import fact_types
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.types import TurnId

_DATE_SUFFIX = re.compile(r"(?<!\s)\s*\([^()]*\d{4}\)\s*$")  # lookbehind: else quadratic on blanks
_PREFIX = re.compile(r"^(\w+): ")
# Subject, a past or present verb, the rest.
_STATEMENT = re.compile(
    r"^(?P<who>[A-Z][\w'’-]+(?: and [A-Z][\w'’-]+)?) (?P<verb>is|was|are|were|has|had|will|would|can|said"
    r"|\w+s|\w+ed|went|made|took|got|bought|saw|met|found|gave|felt|started|told|won|lost|left) (?P<rest>.+)$"
)


class QuestionWriter(Protocol):
    """Turns statements into questions that they answer."""

    @property
    def name(self) -> str:
        """Identifies the writer and everything that affects what it writes; part of a training's identity."""

    def write(self, statements: Sequence[str]) -> list[list[str]]:
        """The questions that each statement answers; an empty list for a statement about which none can be asked."""


def pseudo_questions(snapshot: Snapshot, writer: QuestionWriter) -> list[tuple[str, tuple[TurnId, ...]]]:
    """Questions about the facts and events of a space, each with the turns that the fact or event came from."""
    rows = [row for row in snapshot.active_rows(fact_types()).tolist() if snapshot.turns_of[row]]
    written = writer.write([snapshot.descriptions[row] for row in rows])
    return [(text, snapshot.turns_of[row]) for texts, row in zip(written, rows, strict=True) for text in texts]


class RuleQuestions:
    """The built-in writer: two questions for each statement that matches the rules' pattern."""

    name = "rules"

    def write(self, statements: Sequence[str]) -> list[list[str]]:
        """See ``QuestionWriter``."""
        return [questions_about(statement) for statement in statements]


RULES = RuleQuestions()


def questions_about(statement: str) -> list[str]:
    """Questions that a statement answers, most specific first; empty if the statement does not match the pattern.

    >>> questions_about("Ann bought a red canoe (7 May 2023)")
    ['What did Ann say about bought a red canoe?', 'When did Ann mention a red canoe?']
    """
    text = _DATE_SUFFIX.sub("", statement).strip().rstrip(".!")
    text = _PREFIX.sub(r"\1 said ", text)
    match = _STATEMENT.match(text)
    if match is None:
        return []
    who, verb, rest = match["who"], match["verb"], match["rest"]
    if verb in _WHAT:
        return [f"{_WHAT[verb]} {who} {rest}?", f"What do we know about {who} and {rest}?"]
    said = rest if verb == "said" else f"{verb} {rest}"
    return [f"What did {who} say about {said}?", f"When did {who} mention {rest}?"]


_WHAT = {
    "is": "Why is", "was": "When was", "are": "Why are", "were": "When were", "has": "What has", "had": "When had",
    "will": "When will", "would": "What would", "can": "What can",
}  # fmt: skip

"""Question-shaped rewrites of facts, by rules: training queries that need no labels.

Statements make poor training queries, since the queries of use are questions.
"""

from __future__ import annotations

import re

_DATE_SUFFIX = re.compile(r"\s*\([^()]*\d{4}\)\s*$")
_PREFIX = re.compile(r"^(\w+): ")
# Subject, a past or present verb, the rest.
_STATEMENT = re.compile(
    r"^(?P<who>[A-Z][\w'’-]+(?: and [A-Z][\w'’-]+)?) (?P<verb>is|was|are|were|has|had|will|would|can|said"
    r"|\w+s|\w+ed|went|made|took|got|bought|saw|met|found|gave|felt|started|told|won|lost|left) (?P<rest>.+)$"
)
_AUXILIARY = frozenset({"is", "was", "are", "were", "has", "had", "will", "would", "can"})


def pseudo_questions(statement: str) -> list[str]:
    """Questions that a statement answers, most specific first; empty when it has no shape that the rules know.

    >>> pseudo_questions("Ann bought a red canoe (7 May 2023)")
    ['What did Ann say about bought a red canoe?', 'When did Ann mention a red canoe?']
    """
    text = _DATE_SUFFIX.sub("", statement).strip().rstrip(".!")
    text = _PREFIX.sub(r"\1 said ", text)
    match = _STATEMENT.match(text)
    if match is None:
        return []
    who, verb, rest = match["who"], match["verb"], match["rest"]
    if verb == "said":
        return [f"What did {who} say about {rest}?", f"When did {who} mention {rest}?"]
    if verb in _AUXILIARY:
        return [f"{_WHAT[verb]} {who} {rest}?", f"What do we know about {who} and {rest}?"]
    return [f"What did {who} say about {verb} {rest}?", f"When did {who} mention {rest}?"]


_WHAT = {
    "is": "Why is", "was": "When was", "are": "Why are", "were": "When were", "has": "What has", "had": "When had",
    "will": "When will", "would": "What would", "can": "What can",
}  # fmt: skip

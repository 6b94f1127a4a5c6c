"""Makes one or more search queries of a question, by rules."""

from __future__ import annotations

import re

#: Most clauses of a question that are searched for by themselves: each costs two searches.
MAX_CLAUSES = 8
# Of single blanks, since a run of blanks in a pattern is tried from each of its places.
_CLAUSE = re.compile(
    r",? (?:and|or) (?=(?:what|when|where|who|whom|why|how|which|did|does|do|is|was)\b)", re.IGNORECASE
)


def generate_queries(question: str) -> list[str]:
    """The question itself and, if it has several clauses that begin with a question word, the first of these."""
    found = _CLAUSE.split(" ".join(question.split()), maxsplit=MAX_CLAUSES)[:MAX_CLAUSES]
    clauses = [clause.strip() for clause in found if clause.strip()]
    return [question, *(clauses if len(clauses) > 1 else [])]

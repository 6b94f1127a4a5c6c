"""Makes one or more search queries of a question, by rules."""

from __future__ import annotations

import re

_CLAUSE = re.compile(
    r",?\s+(?:and|or)\s+(?=(?:what|when|where|who|whom|why|how|which|did|does|do|is|was)\b)", re.IGNORECASE
)


def generate_queries(question: str) -> list[str]:
    """The question itself and, if it consists of several clauses that begin with a question word, each of these."""
    clauses = [clause.strip() for clause in _CLAUSE.split(question) if clause.strip()]
    return [question, *(clauses if len(clauses) > 1 else [])]

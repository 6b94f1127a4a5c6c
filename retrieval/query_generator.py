"""From a question to one or more queries, by rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

_CLAUSE = re.compile(
    r",?\s+(?:and|or)\s+(?=(?:what|when|where|who|whom|why|how|which|did|does|do|is|was)\b)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """One thing to look for. ``types`` None means every searchable type."""

    text: str
    types: tuple[str, ...] | None = None


class QueryGenerator(Protocol):
    """Writes the queries that serve a question."""

    def generate(self, question: str, *, asked_at: datetime | None) -> list[SearchQuery]:
        """At least one query; the first is the question as it stands."""
        ...


class RuleQueryGenerator:
    """The question itself and, where it asks several things, each of them."""

    def generate(self, question: str, *, asked_at: datetime | None) -> list[SearchQuery]:
        """The question, and its clauses when there are two or more that begin with a question word."""
        clauses = [clause.strip() for clause in _CLAUSE.split(question) if clause.strip()]
        parts = clauses if len(clauses) > 1 else []
        return [SearchQuery(question), *(SearchQuery(part) for part in parts)]

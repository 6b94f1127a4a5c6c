"""Generators of the search queries of a question: one table, from which commands and their help derive."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from locigraph.consolidation.extractors import Clients
from locigraph.kg.registry import Table
from locigraph.retrieval.query_generator import QueryGenerator, WrittenQueries, generate_queries


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A choice of query generator.

    Attributes:
        name: The name by which users choose it.
        description: One sentence for help texts.
        build: Makes the generator; it is given a function that makes clients of language models.
    """

    name: str
    description: str
    build: Callable[[Clients], QueryGenerator]


def _llm(clients: Clients) -> QueryGenerator:
    from locigraph.consolidation.query_writer import STAGE, LLMQueries  # pydantic takes a moment to import

    return WrittenQueries(LLMQueries(clients(STAGE)))


QUERY_GENERATORS: Table[QueryRow] = Table(
    "query generator",
    [
        QueryRow(
            "rules", "The question, and each clause that begins with a question word.", lambda _: generate_queries
        ),
        QueryRow("llm", "The question, and further queries that a language model writes (--llm).", _llm),
    ],
)


def queries_of(name: str | None, clients: Clients) -> QueryGenerator | None:
    """The generator of a name; None leaves each strategy its default."""
    return None if name is None else QUERY_GENERATORS[name].build(clients)


def notes_of(queries: QueryGenerator | None) -> list[str]:
    """Notes for a report on the queries that were generated."""
    return queries.notes if isinstance(queries, WrittenQueries) else []


def version_of(queries: QueryGenerator | None) -> str | None:
    """Name and version of a generator, for a manifest; None for the defaults of the strategies."""
    if isinstance(queries, WrittenQueries):
        return queries.name
    return None if queries is None else "rules"

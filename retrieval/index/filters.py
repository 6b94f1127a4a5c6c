"""Filter expressions of Milvus; this is the only place where they are written, and every value is escaped here."""

from __future__ import annotations

from collections.abc import Iterable

from locigraph.kg.joint import by_space
from locigraph.kg.times import epoch
from locigraph.kg.types import NodeId
from locigraph.retrieval.errors import FilterError
from locigraph.retrieval.protocols import SearchFilter

#: Largest number of nodes to which an expression limits a search; a longer one takes longer to read than it saves.
MOST_NAMED = 300


def filter_expression(scope: SearchFilter) -> str:
    """Milvus boolean expression of a scope."""
    named = ", ".join(quote(space) for space in scope.spaces)
    clauses = [f"space == {named}" if len(scope.spaces) == 1 else f"space in [{named}]"]
    if scope.types is not None:
        clauses.append(f"type in [{', '.join(quote(t) for t in scope.types)}]")
    if scope.as_of is not None:
        clauses.append(f"recorded_at <= {epoch(scope.as_of)}")
    if scope.only is not None and len(scope.only) <= MOST_NAMED:
        clauses.append(_among(scope.only) if isinstance(scope.space, str) else _among_joint(scope.only))
    return " and ".join(clauses)


def _among(nodes: Iterable[str]) -> str:
    return f"node_id in [{', '.join(map(quote, sorted(nodes)))}]"


def _among_joint(nodes: Iterable[NodeId]) -> str:
    parts = [f"(space == {quote(space)} and {_among(own)})" for space, own in sorted(by_space(nodes).items())]
    return f"({' or '.join(parts)})"


def quote(value: str) -> str:
    """A string literal; backslash and quotation mark escaped.

    Raises:
        FilterError: If the value holds a control character, which Milvus's grammar cannot carry.
    """
    if any(ord(character) < 32 for character in value):
        raise FilterError(f"filter value {value!r} holds a control character; ids must be printable")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

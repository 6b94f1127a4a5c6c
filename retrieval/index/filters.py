"""Filter expressions of Milvus; this is the only place where they are written, and every value is escaped here."""

from __future__ import annotations

from locigraph.kg.times import epoch
from locigraph.retrieval.errors import FilterError
from locigraph.retrieval.protocols import SearchFilter


def filter_expression(scope: SearchFilter) -> str:
    """Milvus boolean expression of a scope.

    Raises:
        FilterError: If the scope names no space (there is no search across all) or its list of types is empty.
    """
    spaces = (scope.space,) if isinstance(scope.space, str) else scope.space
    if not spaces or not all(spaces):
        raise FilterError("a search must name its space; pass the space to search")
    named = ", ".join(quote(space) for space in spaces)
    clauses = [f"space == {named}" if len(spaces) == 1 else f"space in [{named}]"]
    if scope.types is not None:
        if not scope.types:
            raise FilterError(f"space {scope.space!r}: the list of node types is empty, so nothing could be found")
        clauses.append(f"type in [{', '.join(quote(t) for t in scope.types)}]")
    if scope.as_of is not None:
        clauses.append(f"recorded_at <= {epoch(scope.as_of)}")
    return " and ".join(clauses)


def quote(value: str) -> str:
    """A string literal; backslash and quotation mark escaped.

    Raises:
        FilterError: If the value holds a control character, which Milvus's grammar cannot carry.
    """
    if any(ord(character) < 32 for character in value):
        raise FilterError(f"filter value {value!r} holds a control character; ids must be printable")
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

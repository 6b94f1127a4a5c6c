"""Errors of the gnn package.

LocigraphError
└── GnnError                   a graph or a model is not what the encoder can work with
    ├── UnknownNodeTypeError   a node type that the schema does not hold
    └── GraphError             the graph contradicts itself: an index out of range, a wrong shape
"""

from __future__ import annotations

from collections.abc import Iterable

from locigraph.kg.errors import LocigraphError, nearest


class GnnError(LocigraphError):
    """A graph or a model is not what the encoder can work with."""


class UnknownNodeTypeError(GnnError):
    """A node type that the schema does not hold."""

    def __init__(self, node_type: str, known: Iterable[str]) -> None:
        super().__init__(f"node type {node_type!r} is not in the schema{nearest(node_type, known)}")


class GraphError(GnnError):
    """The graph contradicts itself; names the type, the value and the bound."""

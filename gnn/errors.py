"""Errors of the gnn package.

LocigraphError
└── GraphError    a graph contradicts itself, or is not what the encoder was made for
"""

from locigraph.kg.errors import LocigraphError


class GraphError(LocigraphError):
    """A graph contradicts itself, or is not what the encoder was made for; names the value and the bound."""

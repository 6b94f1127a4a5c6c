"""Comparisons of strategies: the published memories, evaluations with their statistics, and experiments.

Nothing that remembers, serves or trains imports this package. Strategies that it adds to ``locigraph recall`` are found
by the entry point ``locigraph.strategies`` of ``pyproject.toml``, as those of any other package would be.
"""

"""Retrieval: strategies, text encoder, indexes and metrics. It does not import the ``gnn`` package."""

"""Retrieval: strategies, text encoder, indexes and evaluation. It does not import the ``gnn`` package."""

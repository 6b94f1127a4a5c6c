"""Retrieval strategies, one per file."""

"""Retrieval strategies, a file each."""

"""The knowledge graph: data model, store, snapshots and corpus readers.

This package imports neither torch nor model clients nor ranking code.
"""

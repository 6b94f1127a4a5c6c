"""The store: turns, the graph with its history, embeddings, and the outbox, over SQLAlchemy Core."""

from locigraph.kg.store.graph import Store

__all__ = ["Store"]

"""The store, built on SQLAlchemy Core: turns, the graph with its history, embeddings, and the outbox."""

from locigraph.kg.store.conversations import TurnFailure
from locigraph.kg.store.graph import Store

__all__ = ["Store", "TurnFailure"]

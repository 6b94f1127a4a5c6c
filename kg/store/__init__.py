"""The store, built on SQLAlchemy Core: turns, the graph with its history, embeddings, and the outbox."""

from locigraph.kg.store.graph import Store
from locigraph.kg.store.remembered import IDENTITY
from locigraph.kg.store.turns import TurnFailure

__all__ = ["IDENTITY", "Store", "TurnFailure"]

"""The knowledge graph: data model, store, snapshots, corpora. Imports no torch, model clients or ranking."""

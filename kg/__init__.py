"""The knowledge graph: data model, store, snapshots, corpora. Knows nothing of torch, models or ranking."""

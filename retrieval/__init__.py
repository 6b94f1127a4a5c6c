"""Search: strategies, text encoder, indexes and evaluation; it knows nothing of the graph network."""

"""Search: strategies, text encoder, indexes and evaluation; it does not import the graph network."""

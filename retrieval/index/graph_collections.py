"""Names of the collections of graph embeddings."""

#: Alias of the collection that v2 searches.
GRAPH_ALIAS = "graph_embeddings"
#: Prefix of the names of these collections.
GRAPH_PREFIX = "emb_"
#: Regular expression that matches a whole name.
GRAPH_COLLECTION = GRAPH_PREFIX + "[0-9a-f]{16}"

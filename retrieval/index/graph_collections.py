"""Names of the collections of graph embeddings, and of their locks (``Store.held``)."""

#: Alias of the collection that v2 searches.
GRAPH_ALIAS = "graph_embeddings"
#: Name of the lock of a refresh, which makes a new collection while the one in use goes on being kept up to date.
REFRESH_LOCK = "refresh"
#: Prefix of the names of these collections.
GRAPH_PREFIX = "emb_"
#: Regular expression that matches a whole name.
GRAPH_COLLECTION = GRAPH_PREFIX + "[0-9a-f]{16}"

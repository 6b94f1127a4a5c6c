"""Collections of graph embeddings: how they are named."""

#: Alias of the collection that v2 searches.
GRAPH_ALIAS = "graph_embeddings"
#: How the names of these collections begin.
PREFIX = "emb_"
#: Regular expression for the whole of such a name.
GRAPH_COLLECTION = PREFIX + "[0-9a-f]{16}"

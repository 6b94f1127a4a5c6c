"""Collections of graph embeddings: how they are named."""

#: Alias of the collection that v2 searches.
GRAPH_ALIAS = "graph_embeddings"
#: How the names of these collections begin.
PREFIX = "emb_"

"""Indexes: Milvus, exact vectors in memory, BM25, and the code that fills them from the store."""

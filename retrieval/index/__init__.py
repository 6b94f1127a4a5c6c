"""Indexes: Milvus, exact vectors in memory, BM25, and what fills them from the store."""

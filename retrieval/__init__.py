"""Search: arms, strategies, the text encoder, the vector index and the evaluation. Sees no GNN."""

"""Training of adapters and graph encoders, folds, checkpoints, refresh of embeddings and explanations."""

"""Training of text adapters and graph encoders; folds, checkpoints, embedding refresh and explanations."""

"""The graph network: tensors of a snapshot, encoders and losses. Plain modules and functions; no files are read."""

"""The graph network: snapshots as tensors, encoders and losses. Plain modules and functions that read no files."""

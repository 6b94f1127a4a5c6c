"""The graph network: snapshot to tensors, encoders, losses. Plain modules and functions; no I/O."""

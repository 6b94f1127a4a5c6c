"""The graph network: snapshot to tensors, encoders, losses, sampling. Plain modules and functions; no I/O."""

"""Graphs of the store as tensors, their encoders, heads and losses."""

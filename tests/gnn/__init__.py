"""Tests of the gnn package."""

"""Benchmarks; each is a module with a command line."""

"""Extractors: what turns a turn into changes of the graph."""

"""Puts parts together: from settings to corpora, stores, text encoders, indexes, graphs and strategies."""

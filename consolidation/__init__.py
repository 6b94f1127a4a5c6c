"""Consolidation of turns into the graph: an architect plans changes, a scribe writes texts, the pipeline commits."""

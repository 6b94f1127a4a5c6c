"""Consolidates turns into the graph: an architect plans what changes, a scribe writes the texts, a pipeline commits."""

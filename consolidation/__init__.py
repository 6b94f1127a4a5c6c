"""Turns into graph: architect (what changes), scribe (the words), resolution, and the pipeline that commits."""

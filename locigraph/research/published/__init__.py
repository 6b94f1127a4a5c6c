"""Graph memories from publications, rebuilt on the same graphs and texts, so that they can be compared."""

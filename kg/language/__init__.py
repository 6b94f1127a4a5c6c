"""English as consolidation, search and features all read it: terms and dates."""

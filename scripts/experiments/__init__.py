"""Trainings and comparisons, and the files that come of them."""

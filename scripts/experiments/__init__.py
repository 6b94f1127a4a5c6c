"""Trainings and comparisons, and the files that they write."""

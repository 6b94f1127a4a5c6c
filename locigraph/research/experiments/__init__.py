"""Trainings inside folds, comparisons, ablations and searches, and the files that they write."""

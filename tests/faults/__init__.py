"""Tries to break the system in several ways: a few tries of each in the tests, thousands with ``make faults``."""

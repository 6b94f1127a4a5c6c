"""Tries to break the system: several kinds, a few tries of each in the tests, thousands by ``make faults``."""

"""Tries to break the system: six kinds, a few tries of each in the tests, thousands by ``make faults``."""

"""Tests of the consolidation package."""

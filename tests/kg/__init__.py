"""Tests of the kg package."""

"""Builders: settings in, parts out. The one place where packages meet that do not import each other."""

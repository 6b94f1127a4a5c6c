"""Settings of Sphinx, which makes a site of these pages: make docs."""

import importlib.metadata
import re

from sphinx.application import Sphinx

project = "Locigraph"
release = importlib.metadata.version("locigraph")
copyright = ""
extensions = ["myst_parser"]
html_theme = "furo"
html_show_copyright = False
exclude_patterns = ["tutorial.ipynb"]
myst_heading_anchors = 4

# Links to files that only a checkout has.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./((?:README|checkpoints|clients)[^)]*)\)")


def _within(app: Sphinx, name: str, source: list[str]) -> None:
    """Show links that leave this folder as the names of their files."""
    source[0] = _OUTSIDE.sub(r"\1 (`\2`)", source[0])


def setup(app: Sphinx) -> None:
    """Connect what is done with each page."""
    app.connect("source-read", _within)

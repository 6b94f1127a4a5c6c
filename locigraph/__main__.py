"""``python -m locigraph COMMAND``: the same as the ``locigraph`` command."""

from locigraph.scripts.cli import main

main()

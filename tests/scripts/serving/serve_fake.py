"""``locigraph serve`` over a fake text encoder: ``python -m tests.scripts.serving.serve_fake FOLDER [options]``."""

from __future__ import annotations

import sys
from pathlib import Path

from locigraph.assembly import opening
from locigraph.scripts.cli import main
from tests.faults.workbench import FakeCachedEncoder


def run() -> None:
    """Run."""
    place = Path(sys.argv[1])
    opening.text_encoder = lambda settings: FakeCachedEncoder("fake", cache=place / "cache.sqlite")
    main(["serve", "--store", f"{place}/memory.sqlite", "--checkpoint", f"{place}/checkpoint", *sys.argv[2:]])


if __name__ == "__main__":
    run()

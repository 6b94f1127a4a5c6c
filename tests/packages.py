"""Where the source of each package lies."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parent.parent
#: Folder of each package below ``locigraph``: those at the top of the repository, to which that package has links, and
#: its own.
PACKAGES = {
    **{name: ROOT / name for name in ("kg", "consolidation", "gnn", "retrieval", "training", "scripts")},
    **{name: ROOT / "locigraph" / name for name in ("assembly", "memory", "serving", "research")},
}

from __future__ import annotations

from pathlib import Path

from locigraph.kg.store import Store
from locigraph.scripts.assembly import defaults


def test_a_store_with_a_checkpoint_of_its_own_goes_back_to_the_shipped_one_by_name(tmp_path: Path) -> None:
    with Store(tmp_path / "g.sqlite") as graph:
        defaults.remember_checkpoint(graph, tmp_path / "checkpoint")
        assert defaults.checkpoint_folder("default", graph) == tmp_path / "checkpoint"
        assert defaults.checkpoint_folder("shipped", graph) == defaults.SHIPPED_CHECKPOINT

from __future__ import annotations

import json
from pathlib import Path

import pytest

from locigraph.assembly import opening
from locigraph.scripts.commands.research.ablate import ablate
from tests.fakes_graph import CPU, small_settings
from tests.faults.workbench import FakeCachedEncoder
from tests.research.experiments.test_evaluation import written


def test_evidence_that_is_copied_between_conversations_is_left_out_of_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "text_encoder", lambda settings: FakeCachedEncoder("fake", cache=tmp_path / "c"))
    copied = "My aunt sold her green camper van and lent me twelve thousand"
    told = {"harbor": copied, "meadow": copied, "ward": "The two cats of the ward were asleep all day again"}
    settings = small_settings(pretrain=0, finetune=1)
    ablate(
        corpus=written(tmp_path / "own.jsonl", told),
        variants=["no dates"],
        folds=3,
        validation=0,
        model=settings.model,
        training=settings.training,
        trainer=CPU,
        output=str(tmp_path / "out"),
    )
    made = json.loads((tmp_path / "out" / "ablation.json").read_text())
    assert made["left_out"] == ["harbor:q", "meadow:q"]
    assert made["comparisons"][0]["clusters"] == 1

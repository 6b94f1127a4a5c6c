from __future__ import annotations

from benchmarks.published_parts import rows
from locigraph.training.folds import plan_folds
from tests.fakes import FakeEncoder
from tests.fakes_graph import TEXT_DIM, planted_space


def test_every_part_that_can_be_left_out_has_a_row() -> None:
    encoder = FakeEncoder(TEXT_DIM)
    planted = [planted_space(number, things=3) for number in range(5)]
    snapshots = {snapshot.space: snapshot for snapshot, _ in planted}
    questions = [question for _, asked in planted for question in asked]
    folds = plan_folds(questions, folds=5, validation=1, seed=0)
    found = list(rows(lambda space, as_of: snapshots[space], encoder, questions, folds))
    assert [variant for strategy, variant, _ in found if strategy == "gaama"] == ["as it is", "without PageRank"]
    assert [variant for strategy, variant, _ in found if strategy == "magma"] == [
        "as it is", "without the beam search: anchors alone",
    ]  # fmt: skip
    assert sum(strategy == "assomem" for strategy, _, _ in found) == 2 + 2 * 3 + 2 * 3
    assert all(len(scores) == len(questions) for _, _, scores in found)  # each question is tested in one fold

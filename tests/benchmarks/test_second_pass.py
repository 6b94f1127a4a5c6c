from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from benchmarks.second_pass import compared, shown
from tests.fakes_graph import planted_space


def test_what_is_compared_fits_into_a_record_and_on_a_line() -> None:
    asked = [replace(question, category=str(at % 2)) for at, question in enumerate(planted_space(0)[1][:4])]
    before = np.array([[0.0, 0.0], [0.5, 0.5], [1.0, 1.0], [0.5, 0.5]])
    made = compared(asked, np.add(before, [0.25, 0.0]), before)
    assert json.loads(json.dumps(made)) == {
        "questions": 4,
        "recall@10": {"mean": 0.75, "difference": 0.25, "p": made["recall@10"]["p"]},
        "ndcg@10": {"mean": 0.5, "difference": 0.0, "p": 1.0},
        "categories": {"0": {"mean": 0.75, "difference": 0.25}, "1": {"mean": 0.75, "difference": 0.25}},
    }
    assert shown(made).endswith("0.500 (+0.000, p 1.000)  0 0.750 (+0.250)  1 0.750 (+0.250)")
    assert shown(compared(asked, before, None)) == "0.500  0.500  0 0.500  1 0.500"

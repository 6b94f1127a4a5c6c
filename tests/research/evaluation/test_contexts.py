from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from locigraph.research.errors import EvaluationError
from locigraph.research.evaluation.contexts import read_contexts, write_contexts
from locigraph.research.evaluation.outcomes import PackedContext, StrategyRun


def run(name: str, seed: int | None, **lines: tuple[str, ...]) -> StrategyRun:
    contexts = {
        question: {500: PackedContext(held[:1], (), 1), 1_000: PackedContext(held, (), 2)}
        for question, held in lines.items()
    }
    return StrategyRun(name, {}, {}, {}, seed, contexts)


def test_contexts_come_back_as_they_were_by_strategy_and_question(tmp_path: Path) -> None:
    path = tmp_path / "contexts.jsonl.gz"
    first = run("v2", 0, q1=("Ann: a\u2028b", "Ben: c"), q2=())
    write_contexts(path, [first, run("v2", 1, q1=("another seed",)), run("v1", None, q1=("Ben: c",))])
    assert read_contexts(path, 1_000) == {"v2": {"q1": "Ann: a\u2028b\nBen: c", "q2": ""}, "v1": {"q1": "Ben: c"}}
    assert read_contexts(path, 500)["v2"]["q1"] == "Ann: a\u2028b"
    with pytest.raises(EvaluationError, match=r"no contexts of 700 tokens; choose one of 500, 1000"):
        read_contexts(path, 700)


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"[]\n"), gzip.compress(b'{"lines": []}\n{}\n')],
    ids=["empty", "not packed", "a list", "without contexts"],
)
def test_what_are_no_contexts_is_said_so(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "contexts.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(EvaluationError, match="not a contexts file of locigraph evaluate"):
        read_contexts(path, 500)

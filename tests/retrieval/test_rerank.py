from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrieval.errors import TextEncoderError
from retrieval.rerank import CrossEncoderReranker
from tests.fakes_graph import hit


class LengthModel:
    """A cross-encoder that prefers long descriptions."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def predict(self, pairs: Sequence[tuple[str, str]], *, show_progress_bar: bool) -> Any:
        self.asked += pairs
        return np.asarray([len(text) for _, text in pairs], dtype=np.float32)


class LengthReranker(CrossEncoderReranker):
    """The reranker with that model instead of one from a folder."""

    def __init__(self, *, depth: int) -> None:
        super().__init__("lengths", depth=depth)
        self.model = LengthModel()

    def _load(self) -> Any:
        return self.model


def test_the_best_are_rescored_and_the_others_follow_as_they_were() -> None:
    hits = [hit("aa", "episode"), hit("aaaa", "episode"), hit("b", "episode"), hit("bbbbbbbb", "episode")]
    reranker = LengthReranker(depth=3)
    ranked = reranker.rerank("a question", hits)
    assert [(h.node_id, h.signals.get("rerank")) for h in ranked] == [
        ("aaaa", 4.0), ("aa", 2.0), ("b", 1.0), ("bbbbbbbb", None),
    ]  # fmt: skip
    assert [h.score for h in ranked] == [4.0, 2.0, 1.0, 1.0]
    assert reranker.model.asked == [("a question", "aa"), ("a question", "aaaa"), ("a question", "b")]


def test_nothing_to_rerank_loads_no_model(tmp_path: Path) -> None:
    assert CrossEncoderReranker(str(tmp_path / "absent")).rerank("a question", []) == []


def test_a_model_that_cannot_be_loaded_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TextEncoderError, match=r"cross-encoder .*absent.* cannot be loaded .*name a directory"):
        CrossEncoderReranker(str(tmp_path / "absent")).rerank("a question", [hit("a", "episode")])

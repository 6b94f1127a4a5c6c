from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locigraph.kg.types import SpaceId
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.protocols import DEFAULT_TOP_K, Hit, Result, Retriever, Timing
from locigraph.retrieval.rerank import CrossEncoderReranker, ReadAhead, RerankedRetriever, UnreadError
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

    def _load(self, model: str) -> Any:
        self.model = LengthModel()
        return self.model


class OneRanking(Retriever):
    """A strategy that always finds the same."""

    name = "v1"

    def __init__(self, hits: Sequence[Hit]) -> None:
        self._hits = tuple(hits)

    def retrieve(
        self, query: str, space: SpaceId, *, as_of: datetime | None = None, top_k: int = DEFAULT_TOP_K
    ) -> Result:
        return Result(self._hits[:top_k], Timing(1.0, 2.0))


def test_the_best_are_rescored_and_the_others_follow_as_they_were() -> None:
    hits = [hit("aa", "episode"), hit("aaaa", "episode"), hit("b", "episode"), hit("bbbbbbbb", "episode")]
    reranker = LengthReranker("lengths", depth=3)
    ranked = reranker.rerank("a question", hits, [each.text for each in hits])
    assert [(h.node_id, h.signals.get("rerank")) for h in ranked] == [
        ("aaaa", 4.0), ("aa", 2.0), ("b", 1.0), ("bbbbbbbb", None),
    ]  # fmt: skip
    assert [h.score for h in ranked] == [4.0, 2.0, 1.0, 1.0]
    assert reranker.model.asked == [("a question", "aa"), ("a question", "aaaa"), ("a question", "b")]


class Numbered(OneRanking):
    """The same with a number and stars for a cross-encoder to read."""

    def reworded(self, hits: Sequence[Hit], space: SpaceId, as_of: datetime | None = None) -> list[str]:
        return [f"{len(hits) - place} {'*' * place}" for place, _ in enumerate(hits)]


def test_a_strategy_says_what_the_cross_encoder_reads_and_its_hits_keep_their_texts() -> None:
    hits = [hit("bbbb", "episode"), hit("aa", "episode"), hit("c", "episode")]
    reranker = LengthReranker("lengths", depth=2)
    found = RerankedRetriever(Numbered(hits), reranker).retrieve("a question", SpaceId("s"), top_k=3)
    assert reranker.model.asked == [("a question", "3 "), ("a question", "2 *")]
    assert [(h.node_id, h.text, h.score) for h in found.hits] == [
        ("aa", "aa", 3.0), ("bbbb", "bbbb", 2.0), ("c", "c", 2.0),  # its distance to those before it is kept
    ]  # fmt: skip


def test_scores_and_confidences_fall_from_hit_to_hit_also_beyond_those_that_are_read_again() -> None:
    scored = [("bbbb", 9.0, 0.8), ("aa", 8.0, 0.7), ("c", 7.5, 0.6), ("d", 7.0, 0.5)]
    hits = [replace(hit(name, "episode"), score=score, confidence=sure) for name, score, sure in scored]
    found = LengthReranker("lengths", depth=2).rerank("a question", hits, [each.text for each in hits])
    assert [(each.node_id, each.score, each.confidence) for each in found] == [
        ("bbbb", 4.0, 0.8), ("aa", 2.0, 0.7), ("c", 1.5, 0.6), ("d", 1.0, 0.5),
    ]  # fmt: skip
    found = LengthReranker("lengths", depth=2).rerank("a question", hits[1:3], ["a", "ccc"])
    assert [(each.node_id, each.confidence) for each in found] == [("c", 0.7), ("aa", 0.6)]


def test_what_was_read_ahead_is_reranked_alike_and_only_what_is_missing_is_read() -> None:
    hits = [hit("aa", "episode"), hit("bbbb", "episode"), hit("ccc", "episode")]
    texts = [each.text for each in hits]
    reranker = LengthReranker("lengths", depth=3)
    ahead = ReadAhead(reranker, "a question")
    ahead.read_ahead(["aa"])
    with pytest.raises(UnreadError) as unread:
        ahead.rerank("a question", hits, texts)
    assert unread.value.texts == ["bbbb", "ccc"]
    ahead.read_ahead(unread.value.texts)
    reranked = ahead.rerank("a question", hits, texts)
    assert [text for _, text in reranker.model.asked] == ["aa", "bbbb", "ccc"]
    assert reranked == reranker.rerank("a question", hits, texts)


def test_no_hits_stay_no_hits() -> None:
    assert LengthReranker("lengths").rerank("a question", [], []) == []


def test_a_strategy_with_a_second_look_is_asked_for_all_that_the_look_takes() -> None:
    hits = [hit("b", "episode"), hit("aa", "episode"), hit("ccc", "episode"), hit("dddd", "episode")]
    retriever = RerankedRetriever(OneRanking(hits), LengthReranker("lengths", depth=3))
    found = retriever.retrieve("a question", SpaceId("s"), top_k=1)
    assert [h.node_id for h in found.hits] == ["ccc", "aa", "b"]
    assert retriever.name == "v1"
    assert found.timing.encode_ms == 1.0
    assert found.timing.search_ms > 2.0


def test_a_model_that_cannot_be_loaded_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(TextEncoderError, match=r"cross-encoder .*absent.* cannot be loaded .*name a directory"):
        CrossEncoderReranker(str(tmp_path / "absent"))


@pytest.mark.parametrize(("config", "fault"), [
    ({"architectures": ["BertModel"], "num_labels": 1}, "BertModel"),
    ({"architectures": ["BertForSequenceClassification"], "id2label": {"0": "a", "1": "b", "2": "c"}}, "3 labels"),
])  # fmt: skip
def test_a_model_that_gives_no_single_score_is_refused(tmp_path: Path, config: dict[str, Any], fault: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    with pytest.raises(TextEncoderError, match=fault):
        CrossEncoderReranker(str(tmp_path))


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(TextEncoderError, match="its name is empty"):
        CrossEncoderReranker("")

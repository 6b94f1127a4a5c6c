from __future__ import annotations

import pytest

from locigraph.consolidation.extractors import EXTRACTORS, ExtractorRow
from locigraph.consolidation.extractors.recorded import RecordedExtractor
from locigraph.kg.corpora import load_corpus
from locigraph.kg.registry import UnknownNameError
from tests.fakes import FakeExtractor


def test_every_extractor_has_its_rows_name_and_a_sentence_for_help_texts() -> None:
    corpus = load_corpus("jsonl", "threads")
    for row in EXTRACTORS.values():
        assert row.build(corpus).name == row.name
        assert row.description.endswith(".")
    assert isinstance(EXTRACTORS["recorded"].build(corpus), RecordedExtractor)


def test_an_extractor_is_added_by_one_row_and_an_unknown_one_lists_the_known() -> None:
    corpus = load_corpus("jsonl", "sample")
    EXTRACTORS.add(ExtractorRow("toy", "Plans a fact of every turn.", lambda _: FakeExtractor(name="toy")))
    assert EXTRACTORS["toy"].build(corpus).name == "toy"
    EXTRACTORS.remove("toy")
    with pytest.raises(UnknownNameError, match=r"extractor 'toy' is not known; known: rules, recorded"):
        EXTRACTORS["toy"]

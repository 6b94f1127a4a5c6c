from __future__ import annotations

from pathlib import Path

import pytest

from locigraph.consolidation.cassette import Cassette
from locigraph.consolidation.extractors import EXTRACTORS, ExtractorRow
from locigraph.consolidation.extractors.recorded import RecordedExtractor
from locigraph.consolidation.llm import ChatClient, Endpoint
from locigraph.kg.corpora import load_corpus
from locigraph.kg.registry import UnknownNameError
from tests.consolidation.endpoints import NOWHERE
from tests.fakes import FakeExtractor


def clients(stage: str) -> ChatClient:
    return ChatClient(Endpoint(NOWHERE, stage), Cassette(Path("unused.sqlite")))


def test_every_extractor_has_its_rows_name_and_a_sentence_for_help_texts() -> None:
    conversations = load_corpus("jsonl", "threads").conversations
    for row in EXTRACTORS.values():
        assert row.build(conversations, clients).name == row.name
        assert row.description.endswith(".")
    assert isinstance(EXTRACTORS["recorded"].build(conversations, clients), RecordedExtractor)


def test_an_extractor_is_added_by_one_row_and_an_unknown_one_lists_the_known() -> None:
    EXTRACTORS.add(
        ExtractorRow("toy", "Plans a fact of every turn.", lambda conversations, clients: FakeExtractor(name="toy"))
    )
    assert EXTRACTORS["toy"].build((), clients).name == "toy"
    EXTRACTORS.remove("toy")
    with pytest.raises(UnknownNameError, match=r"extractor 'toy' is not known; known: rules, recorded, llm"):
        EXTRACTORS["toy"]

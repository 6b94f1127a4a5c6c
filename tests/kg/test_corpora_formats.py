from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from locigraph.kg.corpora import FORMATS, Conversation, Corpus, CorpusFormat, load_corpus
from locigraph.kg.corpora.parsing import Utterance, number_turns
from locigraph.kg.errors import CorpusFormatError, nearest
from locigraph.kg.registry import UnknownNameError
from locigraph.kg.types import Question, SpaceId, TurnId


def read_lines(path: str) -> Corpus:
    """The toy format: an utterance a line, and a question of each category about the first."""
    space = SpaceId("toy")
    lines = Path(path).read_text().splitlines()
    turns = number_turns(space, [Utterance(f"t{i}", "s", "Ann", line, None) for i, line in enumerate(lines)])
    questions = tuple(Question(space, c, f"A {c} one?", c, (TurnId("t0"),)) for c in ("fair", "trick"))
    return Corpus((Conversation(space, turns),), questions)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[str]:
    """A file of the toy format, whose row is in the table for the time of a test."""
    FORMATS.add(CorpusFormat("toy", read_lines, categories=("fair",), known_sha256={"ab": "the published toy"}))
    (tmp_path / "corpus.txt").write_text("Boats!\nWhich?")
    yield str(tmp_path / "corpus.txt")
    FORMATS.remove("toy")


def test_a_format_is_added_by_one_row(path: str) -> None:
    corpus = load_corpus("toy", path)
    assert [turn.text for turn in corpus.conversations[0].turns] == ["Boats!", "Which?"]
    assert [question.category for question in corpus.questions] == ["fair"]
    assert corpus.skipped == {"category trick not asked for": 1}
    assert "known: the published toy ab" in corpus.notes[0]
    assert [q.category for q in load_corpus("toy", path, categories=("trick",)).questions] == ["trick"]


def test_corrections_are_read_by_the_format_and_refused_by_one_that_has_none(path: str) -> None:
    with pytest.raises(CorpusFormatError, match=r"'corrections' is 'x'; expected null.*have corrections: locomo$"):
        load_corpus("toy", path, corrections="x")
    FORMATS.remove("toy")
    FORMATS.add(CorpusFormat("toy", read_lines, with_corrections=lambda corpus, path: replace(corpus, notes=(path,))))
    assert load_corpus("toy", path, corrections="x").notes == ("x",)


def test_records_name_the_file_without_its_folder(path: str) -> None:
    corpus = load_corpus("toy", path)
    assert corpus.source == {"path": Path(path).name, "sha256": corpus.sha256}
    assert corpus.path == path


def test_a_hint_for_a_wrong_name_compares_it_with_a_bounded_number_of_names() -> None:
    names = [f"user-{n}" for n in range(3_000)] + ["harbour"]
    assert nearest("harbor", names) == "; nearest is 'harbour'"
    assert nearest("zebra", names) == "; known: 'harbour', 'user-0', 'user-1', 'user-10', 'user-100', ..."


def test_an_unknown_format_lists_the_known_names() -> None:
    with pytest.raises(UnknownNameError, match=r"'lokomo'.*nearest is 'locomo'; known: locomo, longmemeval, jsonl"):
        load_corpus("lokomo", "none.json")

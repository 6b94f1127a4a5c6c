from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from locigraph.kg.corpora import Corpus, load_corpus
from locigraph.kg.errors import CorpusFormatError

REAL = Path(__file__).parents[3] / "shared" / "data" / "longmemeval" / "longmemeval_s_dev100.json.gz"


def item() -> dict[str, Any]:
    """Three sessions out of order; session ``a`` comes twice."""
    return {
        "question_id": "q1",
        "question": "Which boat?",
        "question_type": "multi-session",
        "answer": 7,
        "question_date": "2023/05/30 (Tue) 03:16",
        "answer_session_ids": ["a"],
        "haystack_session_ids": ["a", "b", "a"],
        "haystack_dates": ["2023/05/30 (Tue) 23:40", "2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"],
        "haystack_sessions": [
            [{"role": "user", "content": "last"}],
            [{"role": "user", "content": "first"}, {"role": "assistant", "content": " "}],
            [
                {"role": "user", "content": "middle"},
                {"role": "assistant", "content": "The red one.", "has_answer": True},
            ],
        ],
    }


def read(tmp_path: Path, *items: Any, name: str = "lme.json") -> Corpus:
    path = tmp_path / name
    raw = json.dumps(list(items)).encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return load_corpus("longmemeval", str(path))


@pytest.mark.parametrize("name", ["lme.json", "lme.json.gz"])
def test_sessions_come_in_the_order_of_their_dates_and_repeated_ids_are_numbered(tmp_path: Path, name: str) -> None:
    corpus = read(tmp_path, item(), name=name)
    turns = corpus.conversations[0].turns
    assert [(t.turn_id, t.text, t.position) for t in turns] == [
        ("b:0", "first", 0), ("a:0", "middle", 1), ("a:1", "The red one.", 2), ("a#2:0", "last", 3),
    ]  # fmt: skip
    assert [t.session_id for t in turns] == ["b", "a", "a", "a#2"]
    assert turns[0].spoken_at == datetime(2023, 5, 20, 2, 21, tzinfo=UTC)
    assert corpus.notes == ("1 repeated session id numbered",)


def test_a_question_sees_its_whole_day(tmp_path: Path) -> None:
    (question,) = read(tmp_path, item()).questions
    assert question.asked_at == datetime(2023, 5, 30, 23, 59, 59, tzinfo=UTC)
    assert (question.evidence, question.evidence_sessions) == (("a:1",), ("a",))
    assert (question.category, question.answer) == ("multi-session", "7")


def test_turns_after_the_day_of_the_question_are_counted_in_a_note(tmp_path: Path) -> None:
    data = item() | {"question_date": "2023/05/29 (Mon) 09:00"}
    assert "1 turn is dated after the day of a question" in read(tmp_path, data).notes[1]


def test_a_question_without_marked_evidence_is_counted(tmp_path: Path) -> None:
    data = item()
    del data["haystack_sessions"][2][1]["has_answer"]
    corpus = read(tmp_path, data)
    assert corpus.questions == ()
    assert corpus.skipped == {"no evidence turn marked": 1}
    assert len(corpus.conversations) == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"haystack_dates": ["2023/05/30 (Tue) 23:40"]}, "field 'haystack_sessions' is '3 sessions, 3 ids, 1 date'"),
        ({"haystack_dates": ["x", "y", "z"]}, r"field 'haystack_dates\[0\].date' is 'x'; expected a time such as"),
        ({"question_date": "2023-05-30"}, "field 'question_date' is '2023-05-30'"),
        ({"haystack_session_ids": ["a", 2, "c"]}, r"field 'haystack_session_ids\[1\]' is 2"),
        ({"haystack_session_ids": ["a", "a#2", "a"]}, "field 'haystack_session_ids' is 'a'; expected ids that do not"),
        ({"haystack_sessions": [[], [], "x"]}, r"field 'haystack_sessions\[2\].turns' is 'x'; expected a list"),
        (
            {"haystack_sessions": [[], [{"role": "user"}], []]},
            r"field 'haystack_sessions\[1\].turns\[0\].content' is None",
        ),
        (
            {"haystack_sessions": [[], [{"content": "x"}], []]},
            r"field 'haystack_sessions\[1\].turns\[0\].role' is None",
        ),
        ({"question": ""}, "field 'question' is ''"),
        ({"question_type": 1}, "field 'question_type' is 1"),
        ({"answer_session_ids": None}, "field 'answer_session_ids' is None; expected a list"),
    ],
)
def test_a_malformed_file_names_file_conversation_field_and_value(
    tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(CorpusFormatError, match=rf"lme\.json: conversation 'q1': {named}"):
        read(tmp_path, item() | changes)


def test_a_question_id_must_be_new(tmp_path: Path) -> None:
    with pytest.raises(CorpusFormatError, match="expected an id that no earlier question has"):
        read(tmp_path, item(), item())


def test_a_damaged_gz_file_is_refused_by_name(tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps([item()]).encode())
    middle = len(whole) // 2
    for content in (whole[:middle], whole[:middle] + b"\xff" * 9 + whole[middle + 9 :], b"plain text"):
        path = tmp_path / "lme.json.gz"
        path.write_bytes(content)
        with pytest.raises(CorpusFormatError, match=r"lme\.json\.gz"):
            load_corpus("longmemeval", str(path))


@pytest.mark.long
@pytest.mark.skipif(not REAL.is_file(), reason=f"the LongMemEval sample is not at {REAL}")
def test_the_published_questions_find_their_evidence_in_time() -> None:
    corpus = load_corpus("longmemeval", str(REAL))
    turns = {(c.space, t.turn_id): t for c in corpus.conversations for t in c.turns}
    assert (len(corpus.conversations), len(corpus.questions)) == (98, 94)
    for question in corpus.questions:
        for turn_id in question.evidence:
            spoken_at = turns[question.space, turn_id].spoken_at
            assert spoken_at is not None
            assert question.asked_at is not None
            assert spoken_at <= question.asked_at

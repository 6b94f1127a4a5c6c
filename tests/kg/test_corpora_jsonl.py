from __future__ import annotations

import gzip
import itertools
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from locigraph.kg.corpora import Corpus, load_corpus
from locigraph.kg.corpora.parsing import read_bytes
from locigraph.kg.corpora.reading import BUNDLED
from locigraph.kg.errors import CorpusFileError, CorpusFormatError


def line() -> dict[str, Any]:
    """Two sessions, the later one first, and one question."""
    return {
        "conversation_id": "c1",
        "sessions": [
            {"session_id": "s2", "started_at": "2024-02-01T10:00:00+02:00",
             "turns": [{"turn_id": "t3", "speaker": "Ann", "text": "", "image_caption": "a boat"},
                       {"turn_id": "t4", "speaker": "Ann", "text": "  "}]},
            {"session_id": "s1", "started_at": "2024-01-01",
             "turns": [{"turn_id": "t1", "speaker": "Ann", "text": "Hi!"},
                       {"turn_id": "t2", "speaker": "Ben", "text": "Ho!", "spoken_at": "2024-01-01T09:30:00"}]},
        ],
        "questions": [{"question_id": "q1", "text": "Who?", "evidence_turn_ids": ["t2", "t2"], "category": "odd"}],
    }  # fmt: skip


def read(tmp_path: Path, *lines: Any, name: str = "corpus.jsonl", extractions: list[Any] | None = None) -> Corpus:
    path = tmp_path / name
    raw = "\n".join(json.dumps(entry) for entry in lines).encode()
    path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    if extractions is not None:
        beside = tmp_path / "extractions.jsonl"
        beside.write_text("\n\n".join(json.dumps(entry) for entry in extractions))
        return load_corpus("jsonl", str(path), extractions=str(beside))
    return load_corpus("jsonl", str(path))


@pytest.mark.parametrize("name", ["corpus.jsonl", "corpus.jsonl.gz"])
def test_sessions_come_in_order_of_time_and_empty_messages_are_left_out(tmp_path: Path, name: str) -> None:
    corpus = read(tmp_path, line(), name=name)
    turns = corpus.conversations[0].turns
    assert [(t.turn_id, t.session_id, t.position) for t in turns] == [("t1", "s1", 0), ("t2", "s1", 1), ("t3", "s2", 2)]
    assert [t.spoken_at for t in turns] == [
        datetime(2024, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 9, 30, tzinfo=UTC),
        datetime(2024, 2, 1, 8, tzinfo=UTC),
    ]
    (question,) = corpus.questions
    assert (question.question_id, question.evidence, question.category) == ("c1:q1", ("t2",), "odd")


def test_a_question_is_asked_on_the_day_in_utc_like_the_turns_said_with_it(tmp_path: Path) -> None:
    data = line()
    data["sessions"][0]["started_at"] = data["questions"][0]["asked_at"] = "2024-02-01T20:30:00-07:00"
    corpus = read(tmp_path, data)
    said, asked = corpus.conversations[0].turns[-1].spoken_at, corpus.questions[0].asked_at
    assert said is not None
    assert asked is not None
    assert (said.date(), asked.date()) == (date(2024, 2, 2), date(2024, 2, 2))


def test_sessions_keep_the_order_of_the_file_when_one_has_no_date(tmp_path: Path) -> None:
    data = line()
    del data["sessions"][1]["started_at"]
    assert [t.turn_id for t in read(tmp_path, data).conversations[0].turns] == ["t3", "t1", "t2"]


def test_a_question_without_evidence_is_counted(tmp_path: Path) -> None:
    data = line()
    del data["questions"][0]["evidence_turn_ids"]
    assert read(tmp_path, data).skipped == {"no evidence turn given": 1}


def test_turns_that_say_nothing_are_no_evidence_and_no_source(tmp_path: Path) -> None:
    data = line()
    data["questions"][0]["evidence_turn_ids"] = ["t4", "t1"]
    data["questions"].append({"question_id": "q2", "text": "What?", "evidence_turn_ids": ["t4"]})
    data["facts"] = [{"text": "Ann greets", "turn_ids": ["t1", "t4"]}, {"text": "Nothing", "turn_ids": ["t4"]}]
    corpus = read(tmp_path, data)
    assert [question.evidence for question in corpus.questions] == [("t1",)]
    assert corpus.skipped == {"evidence turn is empty": 1}
    assert corpus.notes == ("2 cited turns could not be resolved: c1:q1: t4 is empty; c1:q2: t4 is empty",)
    assert [(fact.text, fact.turn_ids) for fact in corpus.conversations[0].extractions.facts] == [
        ("Ann greets", ("t1",))
    ]


def test_questions_that_are_asked_too_early_and_fields_that_are_not_read_are_noted(tmp_path: Path) -> None:
    data = line()
    data["questions"][0] |= {"evidence_turn_ids": ["t1"], "asked_at": "2020-05-01", "evidence_turns": ["t2"]}
    corpus = read(tmp_path, data)
    assert corpus.notes == (
        "1 question is asked before some of their evidence was said",
        "fields of questions that are not read: evidence_turns",
    )
    assert corpus.questions[0].asked_at == datetime(2020, 5, 1, 23, 59, 59, tzinfo=UTC)  # a day alone: at its end


def test_recorded_extractions_join_their_conversation(tmp_path: Path) -> None:
    recorded = {
        "conversation_id": "c1",
        "facts": [{"text": "Ann says hi", "turn_ids": ["t1"]}, {"text": "from nowhere", "turn_ids": []}],
        "entities": [{"name": "Ann", "turn_ids": ["t1", "t2"], "type": "Who"}],
        "events": [{"text": "They met", "turn_ids": ["t1"], "start": "2024-01-01", "end": "Unknown"}],
    }
    corpus = read(tmp_path, line(), extractions=[recorded, {"conversation_id": "of a larger corpus", "facts": 3}])
    found = corpus.conversations[0].extractions
    assert [(f.text, f.turn_ids) for f in found.facts] == [("Ann says hi", ("t1",))]
    assert [(e.text, e.kind) for e in found.entities] == [("Ann", "Who")]
    assert [(e.start, e.end) for e in found.events] == [(date(2024, 1, 1), None)]
    assert found.topics == ()
    assert not found.is_empty


def test_an_extraction_that_cites_an_unknown_turn_or_a_bad_day_is_refused(tmp_path: Path) -> None:
    for bad, named in (
        ({"facts": [{"text": "x", "turn_ids": ["t9"]}]}, r"field 'facts\[0\].turn_ids' is 't9'"),
        ({"facts": [{"text": "x" * 2_001, "turn_ids": ["t1"]}]}, r"field 'facts\[0\].text' .*at most 2,000 letters"),
        ({"entities": [{"name": "x" * 241, "turn_ids": ["t1"]}]}, r"field 'entities\[0\].name' .*at most 240 bytes"),
        ({"events": [{"text": "x", "turn_ids": ["t1"], "start": "May"}]}, r"field 'events\[0\].start' is 'May'"),
    ):
        with pytest.raises(CorpusFormatError, match=rf"extractions\.jsonl: conversation 'c1': {named}"):
            read(tmp_path, line(), extractions=[{"conversation_id": "c1", **bad}])


def set_in(data: Any, path: list[Any], value: object) -> Any:
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (["sessions"], None, "field 'sessions' is None; expected a list"),
        (["sessions", 0], 1, r"field 'sessions\[0\]' is 1; expected an object"),
        (["sessions", 0, "session_id"], " ", r"field 'sessions\[0\].session_id' is ' '"),
        (["sessions", 0, "started_at"], "soon", r"field 'sessions\[0\].started_at' is 'soon'; expected an ISO 8601"),
        (["sessions", 1, "turns", 1, "turn_id"], "t1", r"turns\[1\].turn_id' is 't1'; expected an id that no earlier"),
        (["sessions", 1, "turns", 0, "text"], None, r"turns\[0\].text' is None; expected a string"),
        (["sessions", 1, "turns", 0, "text"], "a\x00b", r"turns\[0\].text' is .*NUL"),
        (["sessions", 1, "turns", 0, "speaker"], "\udc00", r"turns\[0\].speaker' is .*lone surrogates"),
        (["sessions", 1, "turns", 0, "image_caption"], 3, r"turns\[0\].image_caption' is 3; expected a string or null"),
        (["sessions", 1, "turns", 0, "spoken_at"], 17, r"turns\[0\].spoken_at' is 17"),
        (["questions", 0, "evidence_session_ids"], ["s9"], r"field 'questions\[0\].evidence_session_ids' is 's9'"),
        (["questions", 0, "evidence_turn_ids"], ["t9"], r"field 'questions\[0\].evidence_turn_ids' is 't9'"),
        (["questions", 0, "asked_at"], "32 May", r"field 'questions\[0\].asked_at' is '32 May'"),
        (["questions", 0, "text"], "", r"field 'questions\[0\].text' is ''"),
    ],
)
def test_a_malformed_line_names_file_conversation_field_and_value(
    tmp_path: Path, path: list[Any], value: object, named: str
) -> None:
    with pytest.raises(CorpusFormatError, match=rf"corpus\.jsonl: conversation 'c1': .*{named}"):
        read(tmp_path, set_in(line(), path, value))


def test_an_error_before_the_conversation_is_known_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(CorpusFormatError, match=r"corpus\.jsonl: field 'line 2' is \{\}; expected an object with"):
        read(tmp_path, line(), {})
    with pytest.raises(CorpusFormatError, match=r"field 'line 1' is 5; expected an object"):
        read(tmp_path, 5)
    with pytest.raises(CorpusFormatError, match="expected an id that no earlier line has"):
        read(tmp_path, line(), line())
    (tmp_path / "broken.jsonl").write_text(json.dumps(line()) + '\n{"a": \n')
    with pytest.raises(CorpusFormatError, match=r"broken\.jsonl: field 'line 2' is .*expected valid JSON"):
        load_corpus("jsonl", str(tmp_path / "broken.jsonl"))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_file_that_holds_too_much_is_refused_before_all_of_it_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"0" * 2_000) if name.endswith(".gz") else b"0" * 2_000)
    assert read_bytes(str(path), limit=2_000) == b"0" * 2_000
    with pytest.raises(CorpusFileError, match=r"it has more than 1,999 bytes when decompressed; split it"):
        read_bytes(str(path), limit=1_999)


def test_a_question_id_must_be_new(tmp_path: Path) -> None:
    data = line()
    data["questions"].append(data["questions"][0])
    with pytest.raises(CorpusFormatError, match=r"'c1:q1'; expected an id that no earlier question has"):
        read(tmp_path, data)


@pytest.mark.parametrize(
    ("name", "conversations", "turns", "questions", "facts", "unanswerable"),
    [
        ("sample", 8, 746, 176, 0, 0),
        ("threads", 40, 8472, 2480, 4281, 0),
        ("voices", 42, 4478, 1413, 1755, 42),
        ("duets", 64, 9648, 5372, 3355, 116),
        ("projects", 64, 4452, 3392, 0, 192),
    ],
)
def test_the_bundled_corpora_are_complete(
    name: str, conversations: int, turns: int, questions: int, facts: int, unanswerable: int
) -> None:
    corpus = load_corpus("jsonl", name)
    assert len(corpus.conversations) == conversations
    assert sum(len(c.turns) for c in corpus.conversations) == turns
    assert len(corpus.questions) == questions
    assert corpus.skipped == ({"no evidence turn given": unanswerable} if unanswerable else {})
    assert sum(len(c.extractions.facts) for c in corpus.conversations) == facts


@pytest.mark.long
@pytest.mark.parametrize("pair", list(itertools.combinations(BUNDLED, 2)))
def test_no_question_of_one_bundled_corpus_is_in_another(pair: tuple[str, str]) -> None:
    one, other = (load_corpus("jsonl", name) for name in pair)
    assert not {c.space for c in one.conversations} & {c.space for c in other.conversations}
    assert not {q.text for q in one.questions} & {q.text for q in other.questions}
    texts, others = ({t.text for c in corpus.conversations for t in c.turns} for corpus in (one, other))
    assert not {text for text in texts & others if len(text.split()) > 4}


def test_conversations_can_be_chosen_by_name() -> None:
    corpus = load_corpus("jsonl", "sample", conversations=("harbor",))
    assert [c.space for c in corpus.conversations] == ["harbor"]
    assert {q.space for q in corpus.questions} == {"harbor"}
    with pytest.raises(CorpusFormatError, match=r"'harbour'; expected a conversation of the corpus.*harbor"):
        load_corpus("jsonl", "sample", conversations=("harbour",))


def test_conversations_without_turns_are_left_out_with_a_note(tmp_path: Path) -> None:
    corpus = read(tmp_path, line(), {"conversation_id": "none", "sessions": []})
    assert [c.space for c in corpus.conversations] == ["c1"]
    assert corpus.notes == ("left out 1 conversation without turns, such as 'none'",)


@pytest.mark.parametrize(
    ("field", "name"), [("conversation_id", "é" * 129), ("conversation_id", "a\tb"), ("turn_id", "a\x1fb")]
)
def test_names_that_no_index_could_hold_are_refused(tmp_path: Path, field: str, name: str) -> None:
    data = line()
    (data if field == "conversation_id" else data["sessions"][1]["turns"][0])[field] = name
    with pytest.raises(CorpusFormatError, match=rf"{field}.*1 to 240 bytes without control characters"):
        read(tmp_path, data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("speaker", "A" * 200_000),
        ("text", "x" * 1_000_001),
        ("spoken_at", "0001-01-01T00:00:00+14:00"),
        ("spoken_at", "9999-12-31T23:59:59-12:00"),
    ],
)
def test_a_turn_that_no_store_takes_is_named_with_its_field(tmp_path: Path, field: str, value: str) -> None:
    data = line()
    data["sessions"][1]["turns"][1][field] = value
    with pytest.raises(CorpusFormatError, match=rf"conversation 'c1': field '.*{field}' is '.*; expected") as raised:
        read(tmp_path, data)
    assert len(str(raised.value)) < 400


def test_a_day_of_an_event_outside_the_range_is_refused(tmp_path: Path) -> None:
    event = {"text": "The end.", "turn_ids": ["t1"], "start": "9999-12-01", "end": "9999-12-31"}
    with pytest.raises(CorpusFormatError, match="expected a time from 1000 to 2999"):
        read(tmp_path, line(), extractions=[{"conversation_id": "c1", "events": [event]}])

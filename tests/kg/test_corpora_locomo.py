from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from locigraph.kg.corpora import Corpus, load_corpus
from locigraph.kg.corpora.locomo import FORMAT
from locigraph.kg.errors import CorpusFormatError

REAL = Path(__file__).parents[3] / "shared" / "data" / "locomo" / "locomo10.json"


def sample() -> dict[str, Any]:
    """Sessions 2 and 10 stand in the wrong order, as sorting by text would put them."""
    return {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Ben",
            "session_10_date_time": "12:05 am on 9 May, 2023",
            "session_10": [{"speaker": "Ben", "dia_id": "D10:1", "text": "Later."}],
            "session_2_date_time": "1:56 pm on 8 May, 2023",
            "session_2": [
                {"speaker": "Ann", "dia_id": "D2:1", "text": "Hi!"},
                {"speaker": "Ben", "dia_id": "D2:2", "text": "", "blip_caption": "a red boat"},
            ],
        },
        "qa": [{"question": "Who says hi?", "answer": "Ann", "evidence": ["D2:1"], "category": 4}],
    }


def read(tmp_path: Path, *samples: Any) -> Corpus:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps(list(samples)), encoding="utf-8")
    return load_corpus("locomo", str(path), categories=None)


def evidence(tmp_path: Path, *cited: str) -> tuple[Corpus, tuple[str, ...]]:
    data = sample()
    data["qa"].append({"question": "Which?", "answer": 3, "evidence": list(cited), "category": 1})
    corpus = read(tmp_path, data)
    found = [q for q in corpus.questions if q.text == "Which?"]
    return corpus, found[0].evidence if found else ()


def test_turns_come_in_the_order_of_their_sessions_with_time_and_caption(tmp_path: Path) -> None:
    turns = read(tmp_path, sample()).conversations[0].turns
    assert [(t.turn_id, t.session_id, t.position, t.speaker) for t in turns] == [
        ("D2:1", "D2", 0, "Ann"), ("D2:2", "D2", 1, "Ben"), ("D10:1", "D10", 2, "Ben"),
    ]  # fmt: skip
    assert turns[0].spoken_at == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert turns[2].spoken_at == datetime(2023, 5, 9, 0, 5, tzinfo=UTC)
    assert turns[1].utterance == "Ben:  [shares a red boat]"


@pytest.mark.parametrize(
    ("cited", "expected"),
    [
        (["D2:1; D10:1"], ("D2:1", "D10:1")),
        (["D2:1 D2:2 D10:1"], ("D2:1", "D2:2", "D10:1")),
        (["D:10:1"], ("D10:1",)),
        (["D2:02", "D02:1"], ("D2:2", "D2:1")),
        (["(D2:1)", "D2:1"], ("D2:1",)),
    ],
)
def test_slips_in_cited_turns_are_normalised(tmp_path: Path, cited: list[str], expected: tuple[str, ...]) -> None:
    corpus, found = evidence(tmp_path, *cited)
    assert found == expected
    assert len(corpus.notes) == 1  # only the unknown hash


def test_a_citation_that_cannot_be_resolved_is_counted_and_named(tmp_path: Path) -> None:
    corpus, found = evidence(tmp_path, "D", "D2:1", "D9:9")
    assert found == ("D2:1",)
    assert corpus.notes[0] == (
        "2 cited turns could not be resolved: conv-1 question 1: D; conv-1 question 1: D9:9 (no turn D9:9)"
    )


def test_questions_without_resolvable_evidence_are_counted_by_reason(tmp_path: Path) -> None:
    data = sample()
    data["qa"] += [
        {"question": "a", "answer": "x", "evidence": ["D"], "category": 1},
        {"question": "b", "answer": "x", "evidence": [], "category": 1},
        {"question": "c", "answer": "x", "category": 2},
    ]
    corpus = read(tmp_path, data)
    assert corpus.skipped == {"evidence cannot be resolved": 1, "no evidence given": 2}
    assert [q.question_id for q in corpus.questions] == ["conv-1:0"]


def test_adversarial_questions_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    data = sample()
    data["qa"].append({"question": "Trick?", "adversarial_answer": "x", "evidence": ["D2:1"], "category": 5})
    corpus = read(tmp_path, data)
    assert [q.category for q in corpus.questions] == ["single-hop"]
    assert corpus.skipped == {"category adversarial not asked for": 1}
    asked = load_corpus("locomo", corpus.path, categories=("adversarial",))
    assert [(q.text, q.answer) for q in asked.questions] == [("Trick?", None)]


def test_what_is_left_out_is_counted_of_the_chosen_conversations_alone(tmp_path: Path) -> None:
    one, two = sample(), {**sample(), "sample_id": "conv-2"}
    left_out = [
        {"question": "Trick?", "evidence": ["D2:1"], "category": 5},
        {"question": "a", "answer": "x", "evidence": ["D9:9"], "category": 1},
        {"question": "b", "answer": "x", "evidence": [], "category": 1},
    ]
    path = read(tmp_path, one, {**two, "qa": [*two["qa"], *left_out]}).path
    chosen = load_corpus("locomo", path, conversations=["conv-1"])
    assert ([q.question_id for q in chosen.questions], chosen.skipped) == (["conv-1:0"], {})
    assert not any("could not be resolved" in note for note in chosen.notes)
    other = load_corpus("locomo", path, conversations=["conv-2"])
    assert other.skipped == {
        "category adversarial not asked for": 1, "evidence cannot be resolved": 1, "no evidence given": 1,
    }  # fmt: skip
    assert other.notes[0] == "1 cited turns could not be resolved: conv-2 question 2: D9:9 (no turn D9:9)"


def test_a_category_that_no_question_has_is_an_error_with_a_hint(tmp_path: Path) -> None:
    path = read(tmp_path, sample()).path
    with pytest.raises(CorpusFormatError, match=r"'single-hpo'; expected a category .* nearest is 'single-hop'"):
        load_corpus("locomo", path, categories=("single-hpo",))


def test_a_file_of_unknown_hash_is_read_with_a_note_that_names_the_known(tmp_path: Path) -> None:
    corpus = read(tmp_path, sample())
    assert any(corpus.sha256 in note and next(iter(FORMAT.known_sha256)) in note for note in corpus.notes)


def broken(change: str) -> Any:  # noqa: PLR0912  (one line a fault reads best)
    data = sample()
    match change:
        case "id":
            del data["sample_id"]
        case "clock":
            data["conversation"]["session_2_date_time"] = "yesterday"
        case "no clock":
            del data["conversation"]["session_2_date_time"]
        case "session":
            data["conversation"]["session_2"] = "Hi!"
        case "turn":
            data["conversation"]["session_2"][0] = ["Hi!"]
        case "twice":
            data["conversation"]["session_2"][1]["dia_id"] = "D2:1"
        case "text":
            data["conversation"]["session_2"][0]["text"] = 7
        case "empty":
            data["conversation"]["session_2"][0]["text"] = " "
        case "surrogate":
            data["conversation"]["session_2"][0]["text"] = "half \ud83d"
        case "speaker":
            del data["conversation"]["session_2"][0]["speaker"]
        case "category":
            data["qa"][0]["category"] = 6
        case "category list":
            data["qa"][0]["category"] = [4]
        case "evidence":
            data["qa"][0]["evidence"] = [1]
        case "question":
            data["qa"][0]["question"] = None
        case "qa":
            del data["qa"]
        case "conversation":
            data["conversation"] = None
    return data


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("clock", "field 'conversation.session_2_date_time' is 'yesterday'; expected a time such as"),
        ("no clock", "field 'conversation.session_2_date_time' is None"),
        ("session", "field 'conversation.session_2' is 'Hi!'; expected a list"),
        ("turn", r"field 'conversation.session_2\[0\]' is \['Hi!'\]; expected an object"),
        ("twice", r"field 'conversation.session_2\[1\].dia_id' is 'D2:1'; expected an id that no earlier turn has"),
        ("text", r"field 'conversation.session_2\[0\].text' is 7; expected a string"),
        ("empty", r"field 'conversation.session_2\[0\].text' is ' '"),
        ("surrogate", r"field 'conversation.session_2\[0\].text' is 'half .*lone surrogates"),
        ("speaker", r"field 'conversation.session_2\[0\].speaker' is None; expected a non-empty string"),
        ("category", r"field 'qa\[0\].category' is 6; expected one of \[1, 2, 3, 4, 5\]"),
        ("category list", r"field 'qa\[0\].category' is \[4\]"),
        ("evidence", r"field 'qa\[0\].evidence\[0\]' is 1; expected a string"),
        ("question", r"field 'qa\[0\].question' is None"),
        ("qa", "field 'qa' is None; expected a list"),
        ("conversation", "field 'conversation' is None; expected an object"),
    ],
)
def test_a_malformed_file_names_file_conversation_field_and_value(tmp_path: Path, change: str, named: str) -> None:
    with pytest.raises(CorpusFormatError, match=rf"locomo\.json: conversation 'conv-1': {named}"):
        read(tmp_path, broken(change))


def test_what_is_wrong_before_a_conversation_is_known_names_its_place(tmp_path: Path) -> None:
    with pytest.raises(CorpusFormatError, match=r"locomo\.json: field '\[1\]\.sample_id' is None"):
        read(tmp_path, sample(), broken("id"))
    with pytest.raises(CorpusFormatError, match=r"field 'sample_id' is 'conv-1'; expected an id that no earlier"):
        read(tmp_path, sample(), sample())


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b'{"a": 1}', "expected a list of conversations"),
        (b"[1, 2", r"field 'line 1' is .*expected valid JSON"),
        (b"\xff\xff", "expected UTF-8 text"),
        (b"[" * 100_000, "expected readable JSON"),
        (b"[" + b"1" * 5_000 + b"]", "expected readable JSON"),
        (b"", "expected valid JSON"),
    ],
)
def test_a_file_that_is_no_json_is_refused_by_name(tmp_path: Path, content: bytes, named: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(CorpusFormatError, match=rf"broken\.json.*{named}"):
        load_corpus("locomo", str(path))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusFormatError, match=r"none\.json: no such file"):
        load_corpus("locomo", str(tmp_path / "none.json"))


@pytest.mark.skipif(not REAL.is_file(), reason=f"the published LoCoMo is not at {REAL}")
def test_the_published_file_gives_the_published_numbers() -> None:
    corpus = load_corpus("locomo", str(REAL))
    assert len(corpus.conversations) == 10
    assert len(corpus.questions) == 1_536
    assert corpus.skipped == {"no evidence given": 4, "category adversarial not asked for": 446}
    assert corpus.notes == (
        "3 cited turns could not be resolved: conv-42 question 58: D10:19 (no turn D10:19); "
        "conv-42 question 88: D; conv-47 question 38: D4:36 (no turn D4:36)",
    )
    assert not any(c.extractions.is_empty for c in corpus.conversations)


def corrected(tmp_path: Path, **line: Any) -> Corpus:
    path = tmp_path / "audit.jsonl"
    given = {"conversation_id": "conv-1", "qa_index": 0, "question": "Who says hi?", "correct_evidence": ["D2:2"]}
    path.write_text(json.dumps(given | line) + "\n")
    (tmp_path / "locomo.json").write_text(json.dumps([sample()]))
    return load_corpus("locomo", str(tmp_path / "locomo.json"), corrections=str(path))


def test_corrections_stand_beside_the_published_evidence(tmp_path: Path) -> None:
    corpus = corrected(tmp_path)
    assert corpus.corrections == {"conv-1:0": ("D2:2",)}
    assert corpus.questions[0].evidence == ("D2:1",)


def test_corrections_without_evidence_or_of_questions_not_read_are_noted(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [{"correct_evidence": []}, {"qa_index": 7}]
    for line in lines:
        corpus = corrected(tmp_path, **line)
        assert corpus.corrections == {}
        assert any("1 corrections name no evidence" in note for note in corpus.notes)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ({"question": "Who says bye?"}, "expected 'Who says hi.*as in the corpus"),
        ({"correct_evidence": ["D9:9"]}, "the id of a turn of this conversation"),
        ({"correct_evidence": "D2:2"}, "a list"),
    ],
)
def test_a_correction_that_does_not_fit_the_corpus_is_refused(tmp_path: Path, line: dict[str, Any], named: str) -> None:
    with pytest.raises(CorpusFormatError, match=named):
        corrected(tmp_path, **line)


@pytest.mark.skipif(not REAL.is_file(), reason=f"the published LoCoMo is not at {REAL}")
def test_the_published_corrections_are_read() -> None:
    corpus = load_corpus("locomo", str(REAL), corrections=str(REAL.parent / "audit.jsonl"))
    changed = [q for q in corpus.questions if set(corpus.corrections.get(q.question_id, q.evidence)) != set(q.evidence)]
    assert (len(corpus.corrections), len(changed)) == (155, 92)


def test_a_citation_of_thousands_of_digits_is_counted_and_cut(tmp_path: Path) -> None:
    corpus, found = evidence(tmp_path, "D1:" + "9" * 5_000, "D" + "1" * 5_000 + ":1")
    assert found == ()
    assert len(corpus.notes[0]) < 300

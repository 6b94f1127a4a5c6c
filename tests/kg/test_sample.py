from __future__ import annotations

from collections import Counter

import pytest

from locigraph.kg.corpora import Corpus, load_corpus


@pytest.fixture(scope="module")
def sample() -> Corpus:
    return load_corpus("jsonl", "sample")


def test_the_sample_is_large_enough_to_split_and_to_train_on(sample: Corpus) -> None:
    sessions = {(t.space, t.session_id) for c in sample.conversations for t in c.turns}
    assert len(sample.conversations) >= 6
    assert len(sessions) >= 40
    assert len(sample.questions) >= 100
    assert sample.skipped == {}


def test_every_question_cites_turns_that_its_conversation_holds(sample: Corpus) -> None:
    known = {(t.space, t.turn_id) for c in sample.conversations for t in c.turns}
    assert all(q.evidence for q in sample.questions)
    assert {(q.space, turn_id) for q in sample.questions for turn_id in q.evidence} <= known


def test_the_sample_has_all_five_categories_in_every_conversation(sample: Corpus) -> None:
    assert {q.category for q in sample.questions} == {"single-hop", "multi-hop", "temporal", "preference", "update"}
    assert set(Counter((q.space, q.category) for q in sample.questions)) == {
        (c.space, category) for c in sample.conversations for category in {q.category for q in sample.questions}
    }


def test_every_turn_is_dated_and_time_never_runs_backwards(sample: Corpus) -> None:
    for conversation in sample.conversations:
        times = [turn.spoken_at for turn in conversation.turns]
        assert None not in times
        assert times == sorted(t for t in times if t is not None)


def test_every_question_has_an_answer_and_is_asked_once(sample: Corpus) -> None:
    assert all(q.answer for q in sample.questions)
    assert len({(q.space, q.text) for q in sample.questions}) == len(sample.questions)

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from locigraph.gnn.sketch import HashedFeatures, bucket, stable_hash
from locigraph.kg.language.terms import terms
from locigraph.kg.snapshot import NO_TIME
from tests.fakes import FakeEncoder

WORDS = [f"w{i}" for i in range(8)]
DOCUMENTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=1, max_size=6)
SCALE = 0.01  # of the documents' sketches


def bm25(documents: Sequence[Sequence[str]], *, k1: float = 1.2, b: float = 0.75) -> list[dict[str, float]]:
    """Weight of each term in each document by the formula, as in Lucene, times the sketch's scale."""
    total = len(documents)
    average = max(1e-6, sum(map(len, documents)) / total)
    found = []
    for words in documents:
        row = {}
        for term, count in Counter(words).items():
            n = sum(term in other for other in documents)
            idf = math.log(1 + (total - n + 0.5) / (n + 0.5))
            row[term] = SCALE * idf * count * (k1 + 1) / (count + k1 * (1 - b + b * len(words) / average))
        found.append(row)
    return found


def query_of(sketch: HashedFeatures, words: Sequence[str]) -> NDArray[np.float32]:
    """The lexical part of a question of those words."""
    texts = [" ".join(words)]
    return sketch.questions(texts, FakeEncoder(4).encode(texts))[0, 4:-1]


WIDE = HashedFeatures(1024, 0, 0)


def columns(rows: NDArray[np.float32], *names: str) -> NDArray[np.float32]:
    """The numbers of some terms that share no bucket, without their signs, [documents, terms]."""
    places = [bucket(name, WIDE.lexical_dim) for name in names]
    assert len({column for column, _ in places}) == len(names)
    return np.stack([rows[:, column] * sign for column, sign in places], axis=1)


def test_the_weight_of_a_term_is_worked_by_hand() -> None:
    rows = WIDE.documents([["canoe", "canoe"], ["boat"]], kinds=["episode"] * 2)
    # idf = ln(1 + 1.5 / 1.5) = ln 2; average length 1.5
    expected = 0.01 * math.log(2) * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 2 / 1.5))
    assert columns(rows, "canoe", "boat")[0].tolist() == pytest.approx([expected, 0])
    assert np.count_nonzero(rows) == 2


@settings(max_examples=60)
@given(
    DOCUMENTS,
    st.lists(st.sampled_from(WORDS), max_size=6),
    st.floats(0, 3),
    st.floats(0, 1),
)
def test_where_no_terms_collide_the_inner_product_with_a_question_is_bm25(
    documents: list[list[str]], asked: list[str], k1: float, b: float
) -> None:
    sketch = HashedFeatures(1024, 0, 0, k1=k1, b=b)
    assert terms(" ".join(WORDS)) == WORDS
    assert len({bucket(word, sketch.lexical_dim)[0] for word in WORDS}) == len(WORDS)
    rows = sketch.documents(documents, kinds=["episode"] * len(documents))
    # A term that a question repeats counts once.
    exact = [sum(row.get(term, 0.0) for term in set(asked)) for row in bm25(documents, k1=k1, b=b)]
    np.testing.assert_allclose(rows @ query_of(sketch, asked), exact, atol=1e-6, rtol=1e-5)


def test_hashed_terms_of_both_signs_match_questions_with_their_own_sign() -> None:
    sketch = HashedFeatures(1024, 0, 0)
    assert {bucket(word, sketch.lexical_dim)[1] for word in WORDS} == {1.0, -1.0}
    rows = sketch.documents([[word] for word in WORDS], kinds=["episode"] * 8)
    scores = rows @ np.stack([query_of(sketch, [word]) for word in WORDS]).T
    assert (np.diag(scores) > 0).all()
    assert np.count_nonzero(scores) == len(WORDS)


def test_hashed_buckets_give_the_overlap_without_bias() -> None:
    # Many vocabularies of which each hashes otherwise: the errors have both signs and cancel.
    errors, exact = [], 0.0
    for trial in range(300):
        words = [f"trial{trial}word{i}" for i in range(12)]
        documents = [words[:8], words[8:], words[:1]]
        sketch = HashedFeatures(16, 0, 0)
        rows = sketch.documents(documents, kinds=["episode"] * 3)
        query = [*words[:2], words[10]]
        exact = sum(bm25(documents)[0].get(term, 0.0) for term in query)
        errors.append(float(rows[0] @ query_of(sketch, query)) - exact)
    deviation = float(np.std(errors))
    assert deviation > 0  # there are collisions
    assert abs(float(np.mean(errors))) < 4 * deviation / math.sqrt(300)


def test_length_is_normalised_within_a_kind_and_idf_counted_over_turns_and_facts() -> None:
    texts = [["a", "b"], ["a"], ["a"]]
    rows = columns(WIDE.documents(texts, kinds=["episode", "knowledge_node", "concept"]), "a", "b")
    alone = columns(WIDE.documents(texts[:2], kinds=["episode", "knowledge_node"]), "a", "b")
    np.testing.assert_array_equal(rows[:2], alone)
    assert rows[2, 0] == rows[1, 0]  # both are of their kind's mean length


def test_a_term_that_neither_turns_nor_facts_hold_is_the_rarest() -> None:
    rows = WIDE.documents([["a"], ["a"], ["b"]], kinds=["episode", "knowledge_node", "concept"])
    # Of two documents "a" is in both and "b" in none: ln(1 + .5 / 2.5) and ln(1 + 2.5 / .5).
    np.testing.assert_allclose(
        columns(rows, "a", "b"), SCALE * np.array([[math.log(1.2), 0], [math.log(1.2), 0], [0, math.log(6)]]), rtol=1e-6
    )


def test_k1_is_how_slowly_counts_saturate_and_b_how_much_length_matters() -> None:
    texts, kinds = [["a", "a", "b"], ["a"], ["b"]], ["episode"] * 3
    idf = math.log(1 + 1.5 / 2.5)  # "a" and "b" are each in two of three documents
    # k1 = 0: whether a term is there, and not how often, is all that counts.
    rows = columns(HashedFeatures(1024, 0, 0, k1=0.0).documents(texts, kinds=kinds), "a", "b") / (SCALE * idf)
    np.testing.assert_allclose(rows, [[1, 1], [1, 0], [0, 1]], rtol=1e-6)
    # b = 0: tf (k1 + 1) / (tf + k1) is 2 * 3 / 4 and 1 * 3 / 3, in long and short documents alike.
    rows = columns(HashedFeatures(1024, 0, 0, k1=2.0, b=0.0).documents(texts, kinds=kinds), "a", "b") / (SCALE * idf)
    np.testing.assert_allclose(rows, [[1.5, 1.0], [1.0, 0.0], [0.0, 1.0]], rtol=1e-6)
    # b = 1: norms 2 * 3 / (5 / 3) = 3.6 and 2 / (5 / 3) = 1.2.
    rows = columns(HashedFeatures(1024, 0, 0, k1=2.0, b=1.0).documents(texts, kinds=kinds), "a", "b") / (SCALE * idf)
    np.testing.assert_allclose(rows, [[6 / 5.6, 3 / 4.6], [3 / 2.2, 0.0], [0.0, 3 / 2.2]], rtol=1e-6)


def test_documents_without_terms_have_empty_sketches() -> None:
    assert not HashedFeatures(4, 0, 0).documents([[], []], kinds=["episode", "concept"]).any()
    assert HashedFeatures(4, 0, 0).documents([], kinds=[]).shape == (0, 4)


def test_hashes_are_the_same_on_every_machine() -> None:
    assert stable_hash("canoe") == 17139863577399215115
    assert bucket("canoe", 1024) == (
        17139863577399215115 % 1024,
        1.0 if 17139863577399215115 >> 40 & 1 else -1.0,
    )


# --- speakers and dates ----------------------------------------------------------------------------------------


def seconds(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp())  # type: ignore[misc, arg-type]  # year, month, day


def test_a_question_that_names_speaker_and_day_matches_that_turn_best() -> None:
    context = HashedFeatures(1, 64, 192)
    question = context.question("What did Ann buy on 7 May 2023?", None)
    turn = context.node("Ann", seconds(2023, 5, 7), NO_TIME)
    next_day = context.node("Ann", seconds(2023, 5, 8), NO_TIME)
    other = context.node("Ben", seconds(2021, 1, 1), NO_TIME)
    scores = [float(question @ row) for row in (turn, next_day, other)]
    assert scores[0] > scores[1] > scores[2]
    assert scores[0] == pytest.approx(4)  # name, month, month of the year, day


def test_a_question_may_name_a_speaker_in_part_in_full_or_without_accents() -> None:
    context = HashedFeatures(1, 64, 0)
    jose = context.node("María José O'Brien", NO_TIME, NO_TIME)
    assert float(jose @ jose) == pytest.approx(1)
    in_part, in_full, plain = (
        float(context.question(f"What did {name} paint?", None) @ jose)
        for name in ("José", "María José O'Brien", "Jose")
    )
    decomposed = float(context.question(unicodedata.normalize("NFD", "What did José paint?"), None) @ jose)
    assert in_part == plain == decomposed == pytest.approx(0.5)  # one of four words, each 1/2
    assert in_full == pytest.approx(1.5)  # a single letter may be an abbreviation
    assert float(context.question("What did Ben paint on TV?", None) @ jose) == 0


def test_names_and_dates_that_a_question_repeats_count_once() -> None:
    context = HashedFeatures(1, 64, 192)
    once = context.question("What did Ann paint in May 2023?", None)
    twice = context.question("What did Ann paint in May 2023, and was it Ann who sang in May 2023?", None)
    np.testing.assert_array_equal(twice, once)
    assert once[:64].any()
    assert once[64:].any()


def test_abbreviations_and_words_that_begin_a_sentence_are_no_names() -> None:
    assert not HashedFeatures(1, 64, 0).question("What is the NASA show on TV?", None).any()


def test_long_periods_are_known_by_their_year_only() -> None:
    context = HashedFeatures(1, 8, 64)
    year = context.node(None, seconds(2023, 1, 1), seconds(2023, 12, 31))
    assert np.abs(year).sum() == 1
    assert not context.node(None, NO_TIME, NO_TIME).any()
    assert not year[:8].any()


def test_relative_dates_need_the_time_of_asking() -> None:
    context = HashedFeatures(1, 8, 64)
    asked = context.question("What happened yesterday?", datetime(2023, 5, 8, tzinfo=UTC))
    assert float(asked @ context.node(None, seconds(2023, 5, 7), NO_TIME)) >= 2
    assert not context.question("what happened yesterday?", None).any()


def test_parts_of_width_0_are_left_out() -> None:
    for widths in ((0, 0), (0, 8), (8, 0)):
        context = HashedFeatures(1, *widths)
        assert context.node("Ann", seconds(2023, 5, 7), NO_TIME).shape == (sum(widths),)
        assert context.question("What did Ann do in May 2023?", None).shape == (sum(widths),)

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

from locigraph.gnn.lexical import (
    ContextHash,
    LexicalSketch,
    RelatedTerms,
    common_words,
    frequent_terms,
    question_terms,
    related_terms,
    stable_hash,
)
from locigraph.kg.snapshot import NO_TIME

WORDS = [f"w{i}" for i in range(8)]
DOCUMENTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=8), min_size=1, max_size=6)


def weights(documents: list[list[str]]) -> list[dict[str, float]]:
    """BM25 weight of each term in each document by the formula, as in Lucene, times the sketch's scale of .01."""
    total = len(documents)
    average = max(1e-6, sum(map(len, documents)) / total)
    found = []
    for words in documents:
        row = {}
        for term, count in Counter(words).items():
            n = sum(term in other for other in documents)
            idf = math.log(1 + (total - n + 0.5) / (n + 0.5))
            row[term] = 0.01 * idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * len(words) / average))
        found.append(row)
    return found


def query_of(sketch: LexicalSketch, terms: list[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    vector = np.zeros(sketch.dim)
    for term in terms:
        bucket, sign = sketch.bucket(term)
        vector[bucket] += sign
    return vector


def test_the_weight_of_a_term_is_worked_by_hand() -> None:
    sketch = LexicalSketch(4, ("canoe", "boat"))
    rows = sketch.documents([["canoe", "canoe"], ["boat"]], kinds=["episode"] * 2)
    # idf = ln(1 + 1.5 / 1.5) = ln 2; average length 1.5
    assert rows[0].tolist() == pytest.approx(
        [0.01 * math.log(2) * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 2 / 1.5)), 0, 0, 0]
    )


@settings(max_examples=60, deadline=None)
@given(DOCUMENTS, st.lists(st.sampled_from(WORDS), unique=True))
def test_with_dedicated_buckets_the_inner_product_is_the_exact_overlap(
    documents: list[list[str]], query: list[str]
) -> None:
    sketch = LexicalSketch(9, tuple(WORDS))
    rows = sketch.documents(documents, kinds=["episode"] * len(documents))
    exact = [sum(row.get(term, 0.0) for term in query) for row in weights(documents)]
    np.testing.assert_allclose(rows @ query_of(sketch, query), exact, atol=1e-7)


def test_hashed_buckets_give_the_overlap_without_bias() -> None:
    # Many vocabularies of which each hashes otherwise: the errors have both signs and cancel.
    errors, exact = [], 0.0
    for trial in range(300):
        words = [f"trial{trial}word{i}" for i in range(12)]
        documents = [words[:8], words[8:], words[:1]]
        sketch = LexicalSketch(16)
        rows = sketch.documents(documents, kinds=["episode"] * 3)
        query = [*words[:2], words[10]]
        exact = sum(weights(documents)[0].get(term, 0.0) for term in query)
        errors.append(float(rows[0] @ query_of(sketch, query)) - exact)
    deviation = float(np.std(errors))
    assert deviation > 0  # there are collisions
    assert abs(float(np.mean(errors))) < 4 * deviation / math.sqrt(300)


def test_dedicated_terms_share_their_bucket_with_no_other() -> None:
    sketch = LexicalSketch(6, ("a", "b", "c"))
    assert [sketch.bucket(term) for term in "abc"] == [(0, 1.0), (1, 1.0), (2, 1.0)]
    others = {sketch.bucket(f"other{i}") for i in range(200)}
    assert {bucket for bucket, _ in others} == {3, 4, 5}
    assert {sign for _, sign in others} == {1.0, -1.0}


def test_length_is_normalised_within_a_kind_and_idf_counted_over_the_named_kinds() -> None:
    sketch = LexicalSketch(3, ("a", "b"))
    texts = [["a", "b"], ["a"], ["a"]]
    rows = sketch.documents(texts, kinds=["episode", "knowledge_node", "concept"])
    alone = sketch.documents(texts[:2], kinds=["episode", "knowledge_node"])
    np.testing.assert_array_equal(rows[:2], alone)
    assert rows[2, 0] == rows[1, 0]  # both are of their kind's mean length


def test_saturation_length_and_idf_are_the_sketch_s_to_say() -> None:
    texts, kinds = [["a", "a", "b"], ["a"], ["b"]], ["episode", "episode", "concept"]
    plain = LexicalSketch(3, ("a", "b"), idf_of=("concept",), saturation=0.0)
    # One concept, with "b": idf ln(1 + 1.5 / 0.5) for "a" and ln(1 + 0.5 / 1.5) for "b", whatever their count.
    expected = [[math.log(4), math.log(4 / 3)], [math.log(4), 0], [0, math.log(4 / 3)]]
    np.testing.assert_allclose(plain.documents(texts, kinds=kinds)[:, :2], 0.01 * np.array(expected), rtol=1e-6)
    flat = LexicalSketch(3, ("a", "b"), idf_of=("concept",), saturation=2.0, length_norm=0.0)
    # tf * (k1 + 1) / (tf + k1): 2 * 3 / 4 and 1 * 3 / 3, in long and short documents alike.
    weights = flat.documents(texts, kinds=kinds)[:, 0] / (0.01 * math.log(4))
    np.testing.assert_allclose(weights, [1.5, 1.0, 0.0], rtol=1e-6)


def test_a_sketch_without_room_for_other_terms_is_refused() -> None:
    with pytest.raises(ValueError, match="2 buckets cannot dedicate 2"):
        LexicalSketch(2, ("a", "b"))
    with pytest.raises(ValueError, match="0 buckets cannot dedicate 1"):
        LexicalSketch(0, ("a",))


def test_a_model_without_lexical_part_has_a_sketch_without_buckets() -> None:
    sketch = LexicalSketch(0)
    assert sketch.documents([["a"], []], kinds=["episode"] * 2).shape == (2, 0)
    assert sketch.bucket("a") == (0, 0.0)


def test_hashes_are_the_same_on_every_machine() -> None:
    assert stable_hash("canoe") == 17139863577399215115
    assert LexicalSketch(1024).bucket("canoe") == LexicalSketch(1024).bucket("canoe")


def test_frequent_terms_count_documents_and_break_ties_by_name() -> None:
    assert frequent_terms([["b", "b", "b"], ["a", "c"], ["c"]], 2) == ("c", "a")


def test_terms_of_a_question_are_distinct_stems_in_order() -> None:
    assert question_terms("Which canoes did the canoe maker paint?") == ("cano", "maker", "paint")


# --- speakers and dates ----------------------------------------------------------------------------------------


def seconds(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp())  # type: ignore[misc, arg-type]  # year, month, day


def test_a_question_that_names_speaker_and_day_matches_that_turn_best() -> None:
    context = ContextHash(64, 192)
    question = context.question("What did Ann buy on 7 May 2023?", None)
    turn = context.node("Ann", seconds(2023, 5, 7), NO_TIME)
    next_day = context.node("Ann", seconds(2023, 5, 8), NO_TIME)
    other = context.node("Ben", seconds(2021, 1, 1), NO_TIME)
    scores = [float(question @ row) for row in (turn, next_day, other)]
    assert scores[0] > scores[1] > scores[2]
    assert scores[0] == pytest.approx(4)  # name, month, month of the year, day


def test_a_question_may_name_a_speaker_in_part_in_full_or_without_accents() -> None:
    context = ContextHash(64, 0)
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


def test_abbreviations_and_words_that_begin_a_sentence_are_no_names() -> None:
    assert not ContextHash(64, 0).question("What is the NASA show on TV?", None).any()


def test_long_periods_are_known_by_their_year_only() -> None:
    context = ContextHash(8, 64)
    year = context.node(None, seconds(2023, 1, 1), seconds(2023, 12, 31))
    assert np.abs(year).sum() == 1
    assert not context.node(None, NO_TIME, NO_TIME).any()
    assert not year[:8].any()


def test_relative_dates_need_the_time_of_asking() -> None:
    context = ContextHash(8, 64)
    asked = context.question("What happened yesterday?", datetime(2023, 5, 8, tzinfo=UTC))
    assert float(asked @ context.node(None, seconds(2023, 5, 7), NO_TIME)) >= 2
    assert not context.question("what happened yesterday?", None).any()


def test_parts_of_width_0_are_left_out() -> None:
    for widths in ((0, 0), (0, 8), (8, 0)):
        context = ContextHash(*widths)
        assert context.node("Ann", seconds(2023, 5, 7), NO_TIME).shape == (sum(widths),)
        assert context.question("What did Ann do in May 2023?", None).shape == (sum(widths),)


ANGLES = {"pet": 0.0, "dog": 30.0, "cat": 45.0, "cloud": 120.0}


def on_a_circle(texts: Sequence[str]) -> NDArray[np.float32]:
    turned = np.radians([ANGLES[text] for text in texts])
    return np.stack([np.cos(turned), np.sin(turned)], axis=1).astype(np.float32)


def test_related_terms_are_the_likest_others_scaled_from_the_least_cosine() -> None:
    related = related_terms({word: word for word in ANGLES}, on_a_circle, count=2, least=0.5)
    found = related.of(["pet"])
    # cos 30 = .866 and cos 45 = .707; likeness (cos - .5) / .5. The cloud's cosine is -.5.
    assert found == {"dog": pytest.approx(0.732, abs=1e-3), "cat": pytest.approx(0.414, abs=1e-3)}
    assert related.of(["cloud"]) == {}
    assert related.of(["unknown"]) == {}


def test_of_several_terms_each_relative_counts_once_and_none_of_them_is_its_own() -> None:
    related = related_terms({word: word for word in ANGLES}, on_a_circle, count=3, least=0.5)
    # Dog is 15 degrees from cat: likeness (.966 - .5) / .5.
    assert related.of(["pet", "cat"]) == {"dog": pytest.approx(0.932, abs=1e-3)}


def test_a_vocabulary_of_one_word_has_no_relatives() -> None:
    assert related_terms({"pet": "pet"}, on_a_circle, count=5, least=0.1).of(["pet"]) == {}
    assert RelatedTerms().of(["pet"]) == {}


def test_the_commonest_word_stands_for_a_stem_and_numbers_for_none() -> None:
    found = common_words(["The dogs and the dog", "dogs in 2023", "the"], count=5)
    assert found == {"dog": "dogs"}


def test_only_the_most_frequent_stems_are_kept() -> None:
    # A stem counts by all its words: dog three times, cat twice, ant and bee once.
    texts = ["dog dogs dog", "cat cats", "bee ant"]
    assert list(common_words(texts, count=2)) == ["cat", "dog"]
    assert list(common_words(texts, count=3)) == ["ant", "cat", "dog"]


def test_words_that_the_encoder_cannot_tell_apart_are_not_related() -> None:
    def unknown(texts: Sequence[str]) -> NDArray[np.float32]:
        return np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (len(texts), 1))

    assert related_terms({"a": "a", "b": "b"}, unknown, count=1, least=0.4).of(["a"]) == {}

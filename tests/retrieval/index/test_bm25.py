from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from locigraph.retrieval.index.bm25 import Bm25Index

WORD = st.sampled_from("abcdefg")
DOCUMENT = st.lists(WORD, max_size=12)
CORPUS = st.lists(DOCUMENT, min_size=1, max_size=12).filter(any)
QUERY = st.lists(st.sampled_from("abcdefgz"), min_size=1, max_size=6)


def index_of(documents: dict[int, list[str]] | list[list[str]]) -> Bm25Index[int]:
    index: Bm25Index[int] = Bm25Index()
    for key, words in documents.items() if isinstance(documents, dict) else enumerate(documents):
        index.add(key, words)
    return index


def test_score_matches_the_hand_worked_formula() -> None:
    index = index_of([["canoe", "red", "canoe"], ["boat"], ["kite"], ["drum", "drum"]])
    # N = 4, n(canoe) = 1, |d| = 3, avgdl = (3 + 1 + 1 + 2) / 4 = 1.75
    idf = math.log((4 - 1 + 0.5) / (1 + 0.5))
    expected = idf * 2 * 2.5 / (2 + 1.5 * (0.25 + 0.75 * 3 / 1.75))
    ((key, score),) = index.search(["canoe"], top_k=5)
    assert key == 0
    assert score == pytest.approx(expected)


@settings(max_examples=150)
@given(CORPUS, QUERY)
def test_scores_equal_those_of_rank_bm25_where_its_idf_is_above_zero(
    documents: list[list[str]], query: list[str]
) -> None:
    oracle = BM25Okapi(documents)  # its idf of a term in most documents is a quarter of the mean
    query = [term for term in query if oracle.idf.get(term, 1.0) > 0]
    scores = index_of(documents).scores(query)
    assert scores == pytest.approx(oracle.get_scores(query), abs=1e-9)


@settings(max_examples=150)
@given(CORPUS, QUERY)
def test_the_score_of_a_document_is_above_zero_if_and_only_if_it_holds_a_term(
    documents: list[list[str]], query: list[str]
) -> None:
    scores = index_of(documents).scores(query)
    assert (scores > 0).tolist() == [bool(set(words) & set(query)) for words in documents]
    assert (scores >= 0).all()


def test_of_three_turns_the_one_that_matches_every_word_is_first() -> None:
    index = index_of([["otter", "heron", "river"], ["heron", "near", "river"], ["otter", "photo"]])
    # N = 3. near, photo: ln(2.5 / 1.5); otter, heron, river: ln(1.5 / 2.5). The mean is below 0, so these three have
    # 0.25. avgdl = 8 / 3, and each term occurs once in a document.
    long, short = (0.25 * 2.5 / (1 + 1.5 * (0.25 + 0.75 * length / (8 / 3))) for length in (3, 2))
    found = index.search(["otter", "heron", "river"], top_k=3)
    assert [key for key, _ in found] == [0, 1, 2]
    assert [score for _, score in found] == pytest.approx([3 * long, 2 * long, short])


def test_terms_in_half_of_the_documents_count_a_quarter() -> None:
    # Two turns and the facts copied from them: every term is in 2 of 4 documents, so each idf is ln(2.5 / 2.5) = 0.
    index = index_of([["blue", "bike"], ["grey", "kitten"]] * 2)
    # |d| = avgdl, so a term that occurs once counts 2.5 / (1 + 1.5) = 1 times its idf.
    assert index.scores(["bike", "blue"]) == pytest.approx([0.5, 0, 0.5, 0])


def test_a_term_in_half_of_the_documents_has_a_quarter_of_a_mean_above_zero() -> None:
    # N = 4. a: ln(2.5 / 2.5) = 0; b, c: ln(3.5 / 1.5); |d| = avgdl = 1.
    mean = 2 * math.log(3.5 / 1.5) / 3
    assert index_of([["a"], ["a"], ["b"], ["c"]]).scores(["a"])[0] == pytest.approx(0.25 * mean)


def test_repeated_query_terms_count_repeatedly() -> None:
    index = index_of([["a", "b"], ["c"], ["d"]])
    assert index.scores(["a", "a"])[0] == pytest.approx(2 * index.scores(["a"])[0])


def test_idf_of_a_term_in_most_documents_is_a_quarter_of_the_mean() -> None:
    documents = [["a", "b"], ["a", "c"], ["a", "d"], ["e", "f"]]
    # a: ln(1.5 / 3.5) < 0; the other five: ln(3.5 / 1.5)
    mean = (math.log(1.5 / 3.5) + 5 * math.log(3.5 / 1.5)) / 6
    assert index_of(documents).scores(["a"])[0] == pytest.approx(0.25 * mean * 1 * 2.5 / (1 + 1.5))


@settings(max_examples=60)
@given(CORPUS, st.lists(QUERY, min_size=1, max_size=3), st.randoms())
def test_adding_one_by_one_between_searches_equals_building_at_once(
    documents: list[list[str]], queries: list[list[str]], rng: object
) -> None:
    grown: Bm25Index[int] = Bm25Index()
    for key, words in enumerate(documents):
        grown.add(key, words)
        grown.scores(queries[0])  # fills whatever is cached
    whole = index_of(documents)
    for query in queries:
        assert grown.scores(query).tolist() == whole.scores(query).tolist()


@settings(max_examples=100)
@given(CORPUS, st.data())
def test_removing_equals_never_having_added(documents: list[list[str]], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(range(len(documents)))))
    query = data.draw(QUERY)
    index = index_of(documents)
    index.scores(query)
    for key in gone:
        index.remove(key)
    kept = [key for key in range(len(documents)) if key not in gone]
    fresh = index_of({key: documents[key] for key in kept})
    left, expected = index.scores(query)[kept], fresh.scores(query)
    # A mean IDF of 0 but for rounding may be above 0 in one index and not in the other.
    assume(not any(((scores > 0) & (scores < 1e-9)).any() for scores in (left, expected)))
    assert left == pytest.approx(expected, abs=1e-12)
    assert not index.scores(query)[sorted(gone)].any()


@settings(max_examples=60)
@given(CORPUS, DOCUMENT, QUERY)
def test_adding_a_key_again_replaces_its_document(
    documents: list[list[str]], words: list[str], query: list[str]
) -> None:
    index = index_of(documents)
    index.add(0, words)
    first, *others = index_of([words, *documents[1:]]).scores(query)
    assert index.scores(query) == pytest.approx([0, *others, first], abs=1e-12)  # its new place is the last


def test_removing_an_unknown_key_is_an_error() -> None:
    with pytest.raises(KeyError):
        index_of([["a"]]).remove(7)


@settings(max_examples=100)
@given(CORPUS, QUERY, st.integers(1, 5), st.data())
def test_search_is_the_sorted_list_of_allowed_scores(
    documents: list[list[str]], query: list[str], top_k: int, data: st.DataObject
) -> None:
    allowed = data.draw(st.lists(st.booleans(), min_size=len(documents), max_size=len(documents)))
    order = data.draw(st.permutations(range(len(documents))))
    index = index_of({key: documents[key] for key in order})
    scored = zip(index.scores(query).tolist(), order, allowed, strict=True)
    expected = sorted((-score, key) for score, key, is_allowed in scored if score and is_allowed)
    found = index.search(query, top_k=top_k, allowed=np.asarray(allowed, dtype=bool))
    assert found == [(key, -negative) for negative, key in expected][:top_k]


def test_search_without_a_shared_term_finds_nothing() -> None:
    index = index_of([["a"], []])
    assert index.search(["z"], top_k=3) == []
    assert index.search([], top_k=3) == []
    assert Bm25Index[int]().search(["a"], top_k=3) == []

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
import torch
from torch import Tensor

from locigraph.gnn.encoders import QueryEncoder
from locigraph.gnn.sketch import HashedFeatures, bucket
from locigraph.kg.language.terms import terms
from locigraph.training.checkpoint import new_network
from locigraph.training.config import ModelConfig
from tests.fakes import FakeEncoder, make_turns
from tests.fakes_graph import HASHED as GRAPH_HASHED
from tests.fakes_graph import TEXT_DIM, Extra, make_inputs, make_snapshot

HASHED = HashedFeatures(16, 8, 16)
TEXTS = ["Who painted the canoe?", "Where is Ben's boat, the boat?", "Why?"]


WIDTHS = HASHED.widths(6)


def features(texts: list[str] = TEXTS) -> Tensor:
    return torch.from_numpy(HASHED.questions(texts, FakeEncoder(6).encode(texts)))


def encoder_of() -> QueryEncoder:
    return QueryEncoder(WIDTHS).eval()


def test_an_untrained_query_is_embedding_and_terms_side_by_side() -> None:
    vectors = encoder_of()(features())
    assert vectors.shape == (3, 6 + 16 + 24 + 1)
    np.testing.assert_allclose(vectors[:, :6].detach(), FakeEncoder(6).encode(TEXTS), atol=1e-6)
    lexical = vectors[0, 6:22].tolist()
    for term in ("cano", "paint"):
        column, sign = bucket(term, HASHED.lexical_dim)
        assert lexical[column] == pytest.approx(5.0 * sign)
    assert np.abs(lexical).sum() == pytest.approx(10.0)
    np.testing.assert_allclose(vectors[:, 22:-1].detach(), 0.1 * features()[:, 22:-1], atol=1e-6)
    assert vectors[:, -1].tolist() == [1, 1, 1]


def test_repeated_terms_count_once_and_a_question_of_stop_words_has_none() -> None:
    vectors = encoder_of()(features())
    column, sign = bucket("boat", HASHED.lexical_dim)
    assert vectors[1, 6 + column].item() == pytest.approx(5.0 * sign)
    assert terms(TEXTS[2]) == []
    assert not vectors[2, 6:22].any()


def test_names_and_dates_of_a_question_are_weighted_each() -> None:
    texts = ["What did Ben do in May 2023?"]
    encoder = encoder_of()
    with torch.no_grad():
        encoder.context_weight.copy_(torch.tensor([2.0, 3.0]))
    found = encoder(features(texts))[0, 22:-1]
    context = HASHED.question(texts[0], None)
    np.testing.assert_allclose(found.detach(), context * np.repeat([2.0, 3.0], [8, 16]), atol=1e-6)
    assert context[:8].any()
    assert context[8:].any()


def test_relative_dates_are_read_from_the_time_of_asking() -> None:
    texts = ["what happened yesterday?"]
    vectors = FakeEncoder(6).encode(texts)
    asked = HASHED.questions(texts, vectors, asked_at=[datetime(2023, 5, 8, tzinfo=UTC)])
    assert asked[:, 22:-1].any()
    assert not HASHED.questions(texts, vectors)[:, 22:-1].any()


def test_each_question_is_encoded_as_if_alone() -> None:
    encoder = encoder_of()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(0, 0.3)
    together = encoder(features())
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(encoder(features([text]))[0], together[row])


def test_a_model_without_context_works() -> None:
    without = HashedFeatures(16, 0, 0)
    questions = without.questions(TEXTS, FakeEncoder(6).encode(TEXTS))
    vectors = QueryEncoder(without.widths(6)).eval()(torch.from_numpy(questions))
    assert vectors.shape == (3, 6 + 16 + 1)
    assert torch.isfinite(vectors).all()


def test_no_questions_are_no_vectors() -> None:
    none = HASHED.questions([], np.zeros((0, 6), dtype=np.float32))
    assert none.shape == (0, sum(WIDTHS)) == (0, 47)
    assert encoder_of()(torch.from_numpy(none)).shape == (0, 47)


def test_times_of_asking_must_be_as_many_as_questions() -> None:
    with pytest.raises(ValueError, match="shorter"):
        HASHED.questions(TEXTS, FakeEncoder(6).encode(TEXTS), asked_at=[None])


def test_every_weight_gets_a_gradient() -> None:
    texts = ["What did Ben paint his canoe with in May 2023?"]
    encoder = encoder_of().train()
    encoder(features(texts)).square().sum().backward()
    for name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.all(), name


def test_the_score_of_a_turn_is_the_sum_of_its_blocks_scores() -> None:
    torch.manual_seed(0)
    model = ModelConfig(lexical_dim=GRAPH_HASHED.lexical_dim, speaker_dim=8, date_dim=16, attention_dim=4)
    network = new_network(model, TEXT_DIM).eval()
    with torch.no_grad():
        network.nodes.bias_traits.normal_()
    turns = make_turns(["I have a canoe", "What colour?"])
    vectors = network.nodes(
        make_inputs(make_snapshot(turns, [Extra("knowledge_node", "It is red", (0,))], [(2, "DERIVED_FROM", 0)]))
    )
    texts = ["What did Ann say about her canoe in January 2024?"]
    asked = torch.from_numpy(GRAPH_HASHED.questions(texts, FakeEncoder(TEXT_DIM).encode(texts)))
    scores = network.queries(asked) @ vectors.joined().T
    text, lexical, speaker, date, _ = torch.split(asked, [TEXT_DIM, GRAPH_HASHED.lexical_dim, 8, 16, 1], dim=1)
    its_speaker, its_date = vectors.context[:, :8], vectors.context[:, 8:]
    expected = (
        text @ vectors.text.T
        + 5 * lexical @ vectors.lexical.T
        + 0.1 * speaker @ its_speaker.T
        + 0.1 * date @ its_date.T
        + vectors.bias.T
    )
    torch.testing.assert_close(scores, expected)
    assert scores[0, 0] > scores[0, 1]

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
import torch

from locigraph.gnn.encoder import EncoderConfig
from locigraph.gnn.lexical import ContextHash, LexicalSketch, RelatedTerms, question_terms
from locigraph.gnn.query import QueryBatch, QueryEncoder, query_batch
from tests.fakes import FakeEncoder

CONTEXT = ContextHash(8, 16)
SKETCH = LexicalSketch(16, ("cano", "boat"))
CONFIG = EncoderConfig(text_dim=6, lexical_dim=16, context_dim=24, hidden_dim=8, layers=1, heads=2, free_dim=4)
TEXTS = ["Who painted the canoe?", "Where is Ben's boat, the boat?", "Why?"]


def batch(texts: list[str] = TEXTS) -> QueryBatch:
    return query_batch(texts, FakeEncoder(6).encode(texts), SKETCH, CONTEXT)


def encoder_of(config: EncoderConfig = CONFIG) -> QueryEncoder:
    torch.manual_seed(0)
    return QueryEncoder(config, speaker_dim=8).eval()


def test_an_untrained_query_is_embedding_and_terms_side_by_side() -> None:
    vectors = encoder_of()(batch())
    assert vectors.shape == (3, CONFIG.vector_dim)
    np.testing.assert_allclose(vectors[:, :6].detach(), FakeEncoder(6).encode(TEXTS), atol=1e-6)
    lexical = vectors[0, 6:22].tolist()
    bucket, sign = SKETCH.bucket("paint")
    assert lexical[0] == pytest.approx(5.0)  # cano, whose bucket is its own
    assert lexical[bucket] == pytest.approx(5.0 * sign)
    assert np.abs(lexical).sum() == pytest.approx(10.0)
    assert not vectors[:, 22:26].any()  # the free block starts at nothing
    assert vectors[:, -1].tolist() == [1, 1, 1]


def test_repeated_terms_count_once_and_a_question_of_stop_words_has_none() -> None:
    vectors = encoder_of()(batch())
    bucket, _ = SKETCH.bucket("boat")
    assert vectors[1, 6 + bucket].item() == pytest.approx(5.0)
    assert question_terms(TEXTS[2]) == ()
    assert not vectors[2, 6:22].any()


def test_names_and_dates_of_a_question_are_weighted_each() -> None:
    texts = ["What did Ben do in May 2023?"]
    encoder = encoder_of()
    with torch.no_grad():
        encoder.context_weight.copy_(torch.tensor([2.0, 3.0]))
    found = encoder(query_batch(texts, FakeEncoder(6).encode(texts), SKETCH, CONTEXT))[0, 26:-1]
    context = CONTEXT.question(texts[0], None)
    np.testing.assert_allclose(found.detach(), context * np.repeat([2.0, 3.0], [8, 16]), atol=1e-6)
    assert context[:8].any()
    assert context[8:].any()


def test_relative_dates_are_read_from_the_time_of_asking() -> None:
    texts = ["what happened yesterday?"]
    vectors = FakeEncoder(6).encode(texts)
    asked = query_batch(texts, vectors, SKETCH, CONTEXT, asked_at=[datetime(2023, 5, 8, tzinfo=UTC)])
    assert asked.context.any()
    assert not query_batch(texts, vectors, SKETCH, CONTEXT).context.any()


def test_each_question_is_encoded_as_if_alone() -> None:
    encoder = encoder_of()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(0, 0.3)
    together = encoder(batch())
    for row, text in enumerate(TEXTS):
        torch.testing.assert_close(encoder(batch([text]))[0], together[row])


def test_noise_and_dropout_of_terms_act_in_training_only() -> None:
    encoder, questions = encoder_of(), batch()
    quiet = encoder(questions)
    torch.testing.assert_close(encoder(questions, noise=1.0, term_dropout=0.9), quiet)
    encoder.train()
    noisy = encoder(questions, noise=1.0, term_dropout=1.0)
    assert not torch.allclose(noisy[:, :6], quiet[:, :6])
    assert not noisy[:, 6:22].any()
    torch.testing.assert_close(noisy[:, :6].norm(dim=1), torch.ones(3))


def test_a_model_without_lexical_context_and_free_part_works() -> None:
    config = EncoderConfig(text_dim=6, lexical_dim=0, context_dim=0, hidden_dim=8, layers=0, heads=2, free_dim=0)
    questions = query_batch(TEXTS, FakeEncoder(6).encode(TEXTS), LexicalSketch(0), ContextHash(0, 0))
    encoder = QueryEncoder(config, speaker_dim=0).eval()
    vectors = encoder(questions)
    assert vectors.shape == (3, 7)
    assert torch.isfinite(vectors).all()
    assert len(questions.to("cpu")) == 3


def test_related_terms_enter_with_their_likeness_and_a_learnt_weight() -> None:
    related = RelatedTerms(
        ("boat", "cano"), np.array([[1], [0]], dtype=np.int32), np.array([[0.5], [0.5]], dtype=np.float16)
    )
    sketch = LexicalSketch(16, ("cano", "boat"), related)
    texts = ["a canoe"]
    asked = query_batch(texts, FakeEncoder(6).encode(texts), sketch, CONTEXT)
    encoder = encoder_of()
    with torch.no_grad():
        encoder.related_weight.fill_(np.log(0.2))
    lexical = encoder(asked)[0, 6:22].tolist()
    assert lexical[:2] == pytest.approx([5.0, 5.0 * 0.2 * 0.5])
    assert not any(lexical[2:])

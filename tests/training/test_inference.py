from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from locigraph.training.checkpoint import hashed_features, new_network
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph, reader_of
from tests.fakes import MONDAY, FakeEncoder
from tests.fakes_graph import SMALL_MODEL, TEXT_DIM, make_snapshot, planted_space, small_checkpoint

ENCODER = FakeEncoder(TEXT_DIM)
SNAPSHOT, QUESTIONS = planted_space(1)


def test_vectors_are_those_of_the_active_turns_in_the_snapshots_order() -> None:
    checkpoint = small_checkpoint()
    active = SNAPSHOT.active.copy()
    active[2] = False
    rows, vectors = encode_graph(checkpoint, replace(SNAPSHOT, active=active))
    assert rows.tolist() == [0, 1, 3, 4, 5]
    assert vectors.shape == (5, TEXT_DIM + 64 + 8 + 16 + 1)
    assert vectors.dtype == np.float32
    # Half of a turn's text block is its own meaning, more than any neighbour's.
    nearest = (vectors[:, :TEXT_DIM] @ SNAPSHOT.embeddings[rows].T).argmax(1)
    assert nearest.tolist() == [0, 1, 2, 3, 4]


def test_a_snapshot_in_which_nothing_was_said_has_no_vectors() -> None:
    rows, vectors = encode_graph(small_checkpoint(), make_snapshot(()))
    assert len(rows) == 0
    assert vectors.shape == (0, TEXT_DIM + 64 + 8 + 16 + 1)


def test_dates_of_a_question_are_read_from_when_it_was_asked() -> None:
    checkpoint = small_checkpoint()
    encoder = CheckpointQueryEncoder(checkpoint, ENCODER)
    asked = "What happened yesterday?"
    dated, undated = encoder.encode_query(asked, asked_at=MONDAY), encoder.encode_query(asked)
    assert not np.array_equal(dated, undated)
    context = TEXT_DIM + SMALL_MODEL.lexical_dim
    np.testing.assert_array_equal(dated[:context], undated[:context])
    assert encoder.version == checkpoint.version


def test_a_graph_becomes_tensors_of_the_checkpoints_sizes_and_relations() -> None:
    inputs = reader_of(small_checkpoint(), SNAPSHOT).inputs()
    assert inputs.lexical.shape == (12, SMALL_MODEL.lexical_dim)
    assert inputs.context.shape == (12, SMALL_MODEL.speaker_dim + SMALL_MODEL.date_dim)
    assert int(inputs.relation.max()) < len(small_checkpoint().network.nodes.relations)


def test_the_scale_of_features_is_what_the_query_encoder_multiplies_by() -> None:
    network = new_network(SMALL_MODEL, TEXT_DIM)
    with torch.no_grad():
        for parameter in network.queries.parameters():
            parameter.normal_()
    checkpoint = replace(small_checkpoint(), weights=network.weights())
    texts = [question.text for question in QUESTIONS]
    features = hashed_features(SMALL_MODEL).questions(texts, ENCODER.encode(texts))
    expected = network.queries(torch.from_numpy(features)).detach().numpy()
    np.testing.assert_array_equal(features * checkpoint.query_scale, expected)
    encoder = CheckpointQueryEncoder(checkpoint, ENCODER)
    np.testing.assert_allclose([encoder.encode_query(text) for text in texts], expected, atol=1e-6)

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.store import Store
from locigraph.retrieval.text.node_vectors import embed_lacking, snapshot_with_vectors
from tests.fakes import OTHER_SPACE, SPACE, FakeEncoder, change_of, make_turns


@pytest.mark.parametrize("to_indexes", [True, False])
def test_the_texts_of_all_spaces_are_embedded_at_once_and_only_where_some_lack_a_vector(
    to_indexes: bool, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def embed(texts: list[str]) -> NDArray[np.float32]:
        asked.append(texts)
        return FakeEncoder(8).encode(texts)

    with Store(tmp_path / "graph.sqlite") as store:
        turns = make_turns(["I sold the bike."])
        for space in (SPACE, OTHER_SPACE):
            moved = [replace(turn, space=space) for turn in turns]
            store.append_turns(moved)
            store.commit(change_of(moved[0]))
        due = store.outbox_size()
        for _ in range(2):
            embed_lacking(store, [SPACE, OTHER_SPACE], "fake", embed, checks_vectors=False, to_indexes=to_indexes)
        assert asked == [["Ann: I sold the bike."] * 2]
        assert (store.outbox_size() > due) == to_indexes
        held = store.snapshot(OTHER_SPACE, embedding_model="fake").embeddings
        np.testing.assert_array_equal(held, FakeEncoder(8).encode(["Ann: I sold the bike."]))


def test_a_snapshot_gets_the_vectors_that_the_store_lacks_without_writing_them_and_no_damaged_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / "graph.sqlite"
    with Store(path) as store:
        (turn,) = make_turns(["I sold the bike."])
        store.append_turns([turn])
        store.commit(change_of(turn))
        encode = FakeEncoder(8).encode
        expected = encode(["Ann: I sold the bike."])
        lacked = snapshot_with_vectors(store, SPACE, "fake", encode)
        np.testing.assert_array_equal(lacked.embeddings, expected)
        assert len(store.unembedded(SPACE, "fake")) == 1
        store.put_embeddings(SPACE, "fake", store.unembedded(SPACE, "fake"), expected)
        held = snapshot_with_vectors(store, SPACE, "fake", lambda texts: encode(texts) * np.nan)
        np.testing.assert_array_equal(held.embeddings, expected)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE embeddings SET vector = x'0000c07f'")
        with pytest.raises(InvalidVectorError):
            snapshot_with_vectors(store, SPACE, "fake", encode)

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from locigraph.kg.errors import InvalidVectorError
from locigraph.kg.store import Store
from locigraph.retrieval.text.node_vectors import embed_lacking, snapshot_with_vectors
from tests.fakes import OTHER_SPACE, SPACE, FakeEncoder, UnusedEncoder, change_of, make_turns


@pytest.mark.parametrize("to_indexes", [True, False])
def test_the_texts_of_all_spaces_are_embedded_at_once_and_only_where_some_lack_a_vector(
    to_indexes: bool, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    class Recording(FakeEncoder):
        def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
            asked.append([*texts])
            return super().encode(texts)

    with Store(tmp_path / "graph.sqlite") as store:
        turns = make_turns(["I sold the bike."])
        for space in (SPACE, OTHER_SPACE):
            moved = [replace(turn, space=space) for turn in turns]
            store.append_turns(moved)
            store.commit(change_of(moved[0]))
        due = store.outbox_size()
        for _ in range(2):
            embed_lacking(store, [SPACE, OTHER_SPACE], Recording(8), checks_vectors=False, to_indexes=to_indexes)
        assert asked == [["Ann: I sold the bike."] * 2]
        assert (store.outbox_size() > due) == to_indexes
        held = store.snapshot(OTHER_SPACE, embedding_model="fake-bow").embeddings
        np.testing.assert_array_equal(held, FakeEncoder(8).encode(["Ann: I sold the bike."]))


def test_a_snapshot_gets_the_vectors_that_the_store_lacks_without_writing_them_and_no_damaged_ones(
    tmp_path: Path,
) -> None:
    path = tmp_path / "graph.sqlite"
    with Store(path) as store:
        (turn,) = make_turns(["I sold the bike."])
        store.append_turns([turn])
        store.commit(change_of(turn))
        encoder = FakeEncoder(8)
        expected = encoder.encode(["Ann: I sold the bike."])
        lacked = snapshot_with_vectors(store, SPACE, encoder)
        np.testing.assert_array_equal(lacked.embeddings, expected)
        assert len(store.unembedded(SPACE, encoder.model_id)) == 1
        store.put_embeddings(SPACE, encoder.model_id, store.unembedded(SPACE, encoder.model_id), expected)
        held = snapshot_with_vectors(store, SPACE, UnusedEncoder(8))
        np.testing.assert_array_equal(held.embeddings, expected)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE embeddings SET vector = x'0000c07f'")
        with pytest.raises(InvalidVectorError):
            snapshot_with_vectors(store, SPACE, encoder)

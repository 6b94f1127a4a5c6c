from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from locigraph.kg.store import Store
from locigraph.retrieval.text.node_vectors import embed_lacking
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

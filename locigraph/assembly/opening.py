"""Opens what settings name: corpus, text encoder, store and vector index."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from locigraph.assembly.defaults import model_and_dtype, shipped_adapter
from locigraph.assembly.settings import DEFAULT, CorpusSettings, EncoderSettings, IndexSettings
from locigraph.kg.corpora import Corpus, load_corpus
from locigraph.kg.counts import counted, is_or_are
from locigraph.kg.errors import LocigraphError, MissingStoreError, abridged, shortened
from locigraph.kg.files import working_folder
from locigraph.kg.store import Store
from locigraph.kg.store.engine import file_of
from locigraph.kg.store.standing import Standing
from locigraph.kg.types import Question, SpaceId
from locigraph.retrieval.text.text_encoder import CachedTextEncoder

_UNNAMED = "sample"  # the corpus that is read where none is named
_IDENTITY_LENGTH = 16  # hexadecimal digits of a store's identity in names on a server: none of 2^32 stores share them

if TYPE_CHECKING:
    from locigraph.retrieval.index.milvus import MilvusIndex


def read_corpus(settings: CorpusSettings, *, store: str | None = None) -> Corpus:
    """The corpus of the settings; the bundled sample where none is named.

    Args:
        settings: What to read.
        store: The store in which the corpus will be looked for or built; None for none.

    Raises:
        LocigraphError: If no corpus is named and there is a store that holds other conversations than the sample's.
    """
    read = load_corpus(**{**asdict(settings), "path": settings.path or _UNNAMED})  # the fields are its parameters
    if settings.path is None and store is not None:
        sample = {each.space for each in load_corpus("jsonl", _UNNAMED).conversations}  # not only those that are chosen
        with present_store(store) as graph:
            if graph is not None and not {*graph.spaces()} <= sample:
                raise LocigraphError(
                    f"no corpus is named, and store {graph.url!r} holds conversations other than the bundled sample's; "
                    "name the file with --corpus.path (sample for the bundled one)"
                )
    return read


def require_questions(corpus: Corpus, consequence: str) -> None:
    """Raise LocigraphError if no question of a corpus has evidence.

    Args:
        corpus: The corpus.
        consequence: What cannot be done then, as the end of the message: "no question has evidence, so ...".
    """
    if not corpus.questions:
        raise LocigraphError(f"{corpus.path}: no question has evidence, so {consequence}")


def text_encoder(settings: EncoderSettings) -> CachedTextEncoder:
    """The text encoder with its cache; ``default`` is the shipped adapter (``defaults`` asks the store first)."""
    model, dtype = model_and_dtype(settings)
    adapter = shipped_adapter(model) if settings.adapter == DEFAULT else settings.adapter
    if settings.cache_mb < 1:
        raise LocigraphError(f"encoder.cache_mb is {settings.cache_mb}; expected at least 1")
    if settings.device is not None:
        check_device(settings.device)
    return CachedTextEncoder(
        model,
        cache=text_cache(settings),
        cache_mb=settings.cache_mb,
        adapter=None if adapter is None else Path(adapter),
        device=settings.device,
        dtype=dtype,
    )


def text_cache(settings: EncoderSettings) -> Path:
    """Path of the text encoder's cache.

    By default, all stores and working directories of a user share one cache, so that commands reuse each other's
    vectors, and forgetting reaches it from anywhere.

    Raises:
        LocigraphError: If none is named and the user has no home folder.
    """
    if settings.cache is not None:
        return Path(settings.cache).absolute()
    folder = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not folder.is_absolute():  # the XDG specification says to ignore relative paths
        try:
            folder = Path.home() / ".cache"
        except RuntimeError as error:
            raise LocigraphError(
                "there is no home folder for the text cache; name a file with --encoder.cache, or set XDG_CACHE_HOME"
            ) from error
    return folder / "locigraph" / "text_cache.sqlite"


def held_out_encoder(settings: EncoderSettings, questions: Sequence[Question]) -> CachedTextEncoder:
    """The text encoder for a test with these questions.

    Raises:
        LeakError: If its adapter was trained or validated on one of their conversations.
    """
    from locigraph.training.folds import refuse_trained_on

    encoder = text_encoder(settings)
    if encoder.adapter is not None:
        refuse_trained_on(encoder.adapter, questions, option="encoder.adapter")
    return encoder


def present_store(path: str) -> AbstractContextManager[Store | None]:
    """A store, opened for reading; None if it does not exist yet."""
    file = file_of(path)
    if file is not None and not file.is_file():
        return nullcontext()
    try:
        return Store(path, access="read")
    except MissingStoreError:
        return nullcontext()


def existing_store(path: str, *, access: Literal["write", "read"] = "read") -> Store:
    """Open a store that an earlier command has created.

    Raises:
        LocigraphError: If it does not exist; no empty store is created.
    """
    file = file_of(path)
    if file is not None and file.is_dir():
        raise LocigraphError(f"store {path!r} is a folder; name the file in it, such as {file / 'graph.sqlite'}")
    if file is not None and not (file.is_file() and file.stat().st_size):
        state = "is an empty file" if file.is_file() else "does not exist"
        raise LocigraphError(f"store {path!r} {state}; run locigraph build, or name another with --store")
    return Store(path, access=access)


def space_of(name: str | None, store: str) -> str | None:
    """The space that a command means by a name: that of this name, or else the only one of this title.

    Names come first, and a name that is neither is returned as it is, for the error of whoever looks for the space.

    Raises:
        LocigraphError: If several spaces have the title, or there is no store.
    """
    if name is None:
        return None
    with existing_store(store) as graph:
        if name in graph.scopes():
            return name
        found = [space for space, title in graph.titles().items() if title == name]
    if len(found) > 1:
        shown = ", ".join(map(repr, found[:3])) + (", ..." if len(found) > 3 else "")
        raise LocigraphError(f"{len(found)} spaces have the title {shortened(name)}; name one of them: {shown}")
    return found[0] if found else name


def partial_memory(graph: Store, standings: Mapping[SpaceId, Standing]) -> list[str]:
    """A line for each space with pending or failed turns: how many there are, and what to do."""
    lines = []
    for space, standing in standings.items():
        pending, failed, causes = standing.pending, standing.failed, []
        if pending:
            causes.append(
                f"{pending:,} {is_or_are(pending)} not consolidated yet (run locigraph build again, or add to it)"
            )
        if failed:
            causes.append(f"{failed:,} failed, with text but no facts (run locigraph build with --retry_failed true)")
        if causes:
            total = graph.turn_counts(space).total()
            lines.append(f"space {space!r} is incomplete: of {counted(total, 'turn')}, {' and '.join(causes)}")
    return lines


def vector_index(settings: IndexSettings, store: Store, *, is_reader: bool = False) -> MilvusIndex:
    """The vector index; by default a file beside the store.

    On a server, the names of a store's collections begin with its identity, so that many stores can use one server.

    Args:
        settings: Where it is.
        store: The graph.
        is_reader: Whether to open it for reading only; then a missing embedded index is an error and is not created.

    Raises:
        LocigraphError: If none is named for a store on a server, or there is none to read.
    """
    from locigraph.retrieval.index.milvus import MilvusIndex

    uri = index_uri(settings, store.url)
    if "://" not in uri:
        if working_folder() != store.opened_in:  # since when the process has changed its folder
            uri = str(store.opened_in / uri)
        if is_reader and not Path(uri).exists():
            raise LocigraphError(
                f"index {uri!r} does not exist; run locigraph verify, which makes it from the store, or name another "
                "with --index.uri"
            )
        return MilvusIndex(uri, is_reader=is_reader)
    identity = (store.known_identity() or "") if is_reader else store.identity()
    namespace = f"store_{identity[:_IDENTITY_LENGTH]}_"
    return MilvusIndex(uri, access=settings, namespace=namespace, is_reader=is_reader)


def index_uri(settings: IndexSettings, store: str) -> str:
    """Path or URL of the vector index; by default a file beside the store.

    Raises:
        LocigraphError: If none is named for a store on a server.
    """
    file = file_of(store)
    if settings.uri is None and file is None:
        raise LocigraphError(
            f"store {store.partition('@')[2] or store!r} is no file, so it has no folder for the index; name an index "
            "with --index.uri"
        )
    return settings.uri or str(file).removesuffix(".sqlite") + ".index.db"


def are_writable(store: str, index: IndexSettings) -> bool:
    """Whether the files of a store and of its index may be written; those of servers are taken to be."""
    file, uri = file_of(store), index_uri(index, store)
    places = [] if file is None else [file.absolute(), file.absolute().parent]
    if "://" not in uri:
        found = Path(uri).absolute()
        places.append(found if found.exists() else found.parent)
    return all(os.access(place, os.W_OK) for place in places)


def check_device(device: str) -> None:
    """Raise LocigraphError, before any work, if torch cannot use a device."""
    if device == "cpu":
        return

    import torch

    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter where torch was built without CUDA
        raise LocigraphError(f"device {device!r} cannot be used here: {abridged(error, 120)}") from error

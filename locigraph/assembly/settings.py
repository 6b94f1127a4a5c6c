"""The parts of a configuration that several commands share. Field names are keys in YAML and on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from locigraph.kg.name_list import Names, names_in
from locigraph.retrieval.index.milvus_server import ServerAccess
from locigraph.retrieval.text import DEFAULT_CACHE_MB

#: Number format of the text encoder where none is named.
DEFAULT_DTYPE: Literal["float32"] = "float32"
#: Stands for the adapter or checkpoint that a store remembers, or the shipped one.
DEFAULT = "default"


@dataclass(frozen=True)
class CorpusSettings:
    """Conversations to read.

    Attributes:
        path: File, folder or ZIP file, or the name of a bundled corpus (``sample``, ``threads``, ``voices``,
            ``duets``, ``projects``, ``languages``); null for ``sample``, if the store holds no other conversations.
        format: Format of the corpus: <formats>; null for the one whose signs the file shows.
        extractions: JSONL of recorded extractions, or ``sample`` for those of the bundled conversation ``harbor``; null
            takes ``recorded_extractions.jsonl.gz`` beside the corpus.
        corrections: JSONL of corrected evidence; results against it are reported in addition. null for none.
        categories: Question categories to use; null takes the usual ones of the format.
        conversations: Names of the conversations to use; null takes all.
        space: Name of the space, for a file that holds one conversation; null takes the name in the file, or the name
            of the file if its format has none.
    """

    path: str | None = None
    format: str | None = None
    extractions: str | None = None
    corrections: str | None = None
    categories: Names | None = None
    conversations: Names | None = None
    space: str | None = None

    def __post_init__(self) -> None:
        for name in ("categories", "conversations"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else names_in(given))


@dataclass(frozen=True)
class EncoderSettings:
    """The text encoder.

    Commands that build graphs of their own, such as ``evaluate``, do not use what a store remembers.

    Attributes:
        model: Hugging Face name or directory of a sentence-transformers model, whose default prompt is used, and no
            others. A directory is identified by its path and a hash of its files. null for the one that the store
            remembers, or all-MiniLM-L6-v2.
        adapter: Folder of an adapter for the model (locigraph adapt), which v2 uses; null for the model without one;
            ``default`` for the one that the store remembers, or the shipped one.
        device: torch device; null lets torch choose.
        dtype: ``bfloat16`` is faster on processors that compute in it and slower on others; its vectors have a cosine
            of .998 to those of ``float32``. null for the one that the store remembers, or ``float32``.
        cache: SQLite file that caches every vector, so that no text is encoded twice; null for the user's cache,
            ``locigraph/text_cache.sqlite`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
        cache_mb: Size in MiB that this file may have; then a tenth of the vectors is deleted, and made again if needed.
    """

    model: str | None = None
    adapter: str | None = None
    device: str | None = None
    dtype: Literal["float32", "bfloat16"] | None = None
    cache: str | None = None
    cache_mb: int = DEFAULT_CACHE_MB


#: The text encoder of the commands that use a memory: what its store remembers.
REMEMBERED = EncoderSettings(adapter=DEFAULT)


@dataclass(frozen=True)
class GraphSettings:
    """A further built graph to train on.

    Attributes:
        store: Path or URL of the graph.
        corpus: The corpus it was built from; null for the command's own corpus, from which another extractor built it.
        dtype: Precision of the text encoder it was built with; null for the command's own.
    """

    store: str
    corpus: CorpusSettings | None = None
    dtype: Literal["float32", "bfloat16"] | None = None


@dataclass(frozen=True)
class ScribeSettings:
    """A separate language model for the scribe; fields that are null take the values of the architect.

    Attributes:
        base_url: URL of an OpenAI-compatible endpoint.
        model: Name of the model there.
        api_key_env: Environment variable that holds the key.
        input_price: Price of a million tokens that it reads.
        output_price: Price of a million tokens that it writes.
    """

    base_url: str | None = None
    model: str | None = None
    api_key_env: str | None = None
    input_price: float | None = None
    output_price: float | None = None


@dataclass(frozen=True)
class ModelSettings:
    """A language model.

    Attributes:
        base_url: URL of an OpenAI-compatible endpoint.
        model: Name of the model there.
        api_key_env: Environment variable that holds the key; local endpoints usually need none.
        cassette: SQLite file that records requests and replies, so that none is sent twice; ``sample`` is bundled.
        mode: ``auto`` sends only requests that are not recorded, ``record`` sends all again, ``replay`` sends none.
        temperature: Sampling temperature of the replies; null for models without such a parameter.
        max_output_tokens: Largest number of tokens in a reply; null for models without a parameter ``max_tokens``.
        timeout_s: Longest wait for one reply, in seconds.
        deadline_s: Longest time for one request with all its retries, in seconds.
        input_price: Price of a million tokens that the model reads, in any currency.
        output_price: Price of a million tokens that it writes.
    """

    base_url: str | None = None
    model: str = ""
    api_key_env: str = "OPENAI_API_KEY"
    cassette: str = "runs/llm.sqlite"
    mode: Literal["auto", "record", "replay"] = "auto"
    temperature: float | None = 0.0
    max_output_tokens: int | None = 2_000
    timeout_s: float = 120.0
    deadline_s: float = 600.0
    input_price: float = 0.0
    output_price: float = 0.0


@dataclass(frozen=True)
class LLMSettings(ModelSettings):
    """The language models of the extractor ``llm``: the architect, which plans, and the scribe, which writes.

    Attributes:
        scribe: Another model for the scribe.
        concurrency: Largest number of conversations at a time; the turns of each are processed one after another.
    """

    scribe: ScribeSettings = ScribeSettings()
    concurrency: int = 8


@dataclass(frozen=True)
class WriterSettings(ModelSettings):
    """The language model that writes the questions about facts from which pre-training learns.

    Without ``base_url`` they are written by rules.

    Attributes:
        concurrency: Largest number of concurrent requests.
        max_tokens: Limit on the tokens that it reads and writes in one run; at the limit the command stops with exit
            code 3.
        max_cost: The same limit for the cost, in the currency of the prices.
    """

    concurrency: int = 4
    max_tokens: int | None = None
    max_cost: float | None = None


#: A language model with short timeouts, since a user waits for its replies.
QUICK_LLM = ModelSettings(timeout_s=10.0, deadline_s=10.0)


@dataclass(frozen=True)
class IndexSettings(ServerAccess):
    """The vector index.

    Attributes:
        uri: Path of a Milvus Lite file or URL of a server; null takes ``graph.index.db`` beside ``graph.sqlite``.
    """

    uri: str | None = None

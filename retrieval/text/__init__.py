"""Text to vectors: the text encoder, its cache and its adapters."""

#: Size of the cache of vectors in MiB, with room for two and a half million vectors of 384 numbers.
DEFAULT_CACHE_MB = 4_096

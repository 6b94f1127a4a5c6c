"""Text to vectors: the text encoder, its cache and its adapters."""

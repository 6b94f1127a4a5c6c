"""Commands that train text adapters and graph networks, and bring embeddings up to date."""

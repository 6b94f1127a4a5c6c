"""Commands that compare strategies, settings and language models on questions with known answers."""

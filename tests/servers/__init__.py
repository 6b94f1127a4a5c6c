"""Starts a PostgreSQL and a Milvus server on this machine, for tests and trials, from packages and without a container.

``make servers`` starts both and prints the options that make the commands use them; ``make servers-stop`` ends them.
They are not meant for data that matters: PostgreSQL trusts every local user, and Milvus has no password.
"""

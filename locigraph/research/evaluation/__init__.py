"""Evaluation of retrieval without LLM judges: scores, significance tests and the report.

``summarise`` (``summary.py``) scores the rankings of all strategies, ``text_table`` (``report.py``) shows the result in
the terminal and ``write_report`` writes it to files. Everything is a pure function of its arguments and seed, except
what writes files. The package knows no strategy and no corpus by name: which strategies are compared, and how
each is explained, are arguments.
"""

"""Effect on recall of storing the sessions of a conversation as spaces of one user instead of as one space.

    python -m benchmarks.scopes [--corpus sample] [--conversations NAME ...]

Every conversation is added twice: as one space, and with a space for each session, all of one user. The same questions
are put to the one space and to the user. With a space for each session, v2 counts words in smaller spaces, a fact that
is stated in two sessions becomes two facts, and a turn has no neighbours in other sessions.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks import records
from locigraph.assembly import opening
from locigraph.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.kg.types import Turn
from locigraph.memory import Memory
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.metrics import evidence_recall

_DEPTH = 10


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", default="sample", help="corpus with the questions: a bundled name or a file")
    parser.add_argument("--conversations", nargs="*", default=None, help="conversations of the corpus; all by default")
    parser.add_argument("--strategies", nargs="+", default=["v2", "v1", "bm25", "dense"], help="names of strategies")
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    options = records.options_of(parser)
    corpus = opening.read_corpus(CorpusSettings(path=options.corpus, conversations=options.conversations))
    encoder = EncoderSettings(adapter="default", cache=options.cache)
    scores: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory.open(f"{folder}/graph.sqlite", encoder=encoder) as memory,
    ):
        for conversation in corpus.conversations:
            memory.add_many([*records.turns_to_add(conversation.turns), *_by_session(conversation.turns)])
        memory.flush()
        for strategy in options.strategies:
            for question in corpus.questions:
                for is_joint in (False, True):
                    hits = memory.recall(
                        question.text,
                        space=None if is_joint else question.space,
                        user=question.space if is_joint else None,
                        top_k=_DEPTH,
                        strategy=strategy,
                        fold=None,
                    )
                    ranking = turns_of_hits(hits, top_k=_DEPTH)
                    scores[strategy, "user" if is_joint else "one space"].append(
                        evidence_recall(ranking, frozenset(question.evidence), _DEPTH)
                    )
    print(f"{len(corpus.questions)} questions, recall@{_DEPTH}")
    rows = []
    for (strategy, name), found in scores.items():
        mean = float(np.mean(found))
        rows.append({"strategy": strategy, "asked": name, f"recall@{_DEPTH}": mean})
        print(f"{strategy:<10}{name:<12}{mean:.3f}")
    records.write(options, {"questions": len(corpus.questions), "rows": rows}, corpora=[corpus])


def _by_session(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    for turn in records.turns_to_add(turns):
        yield turn | {"space": f"{turn['space']}/{turn['session']}", "user": turn["space"]}


if __name__ == "__main__":
    main()

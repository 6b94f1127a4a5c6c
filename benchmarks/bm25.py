"""Our BM25 index beside ``rank_bm25.BM25Okapi``: ``python -m benchmarks.bm25 [--documents 1000 10000]``.

Both hold the same turns of the bundled corpora, repeated with other numbers. Prints the time of the processor of one
question, and of one question after a document was added, for which ``rank_bm25`` counts all documents again; and the
largest difference of their scores over terms whose IDF is above 0 (see ``Bm25Index`` for the others).
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from benchmarks import records
from benchmarks.growth import cpu_ms, talk
from locigraph.kg.language.terms import terms
from locigraph.retrieval.index.bm25 import Bm25Index, bm25_index

_QUESTIONS = ("Where did Ana spend her holiday?", "Who sold the boat?", "What did the doctor say about the knee?")


def measured(size: int, rounds: int) -> dict[str, float]:
    """Medians over the rounds, in milliseconds, with so many documents; and the largest difference of the scores."""
    documents = [terms(turn["text"]) for turn in itertools.islice(talk(), size + rounds)]
    held, new = documents[:size], documents[size:]
    ours, theirs = bm25_index(held), BM25Okapi(held)
    asked = [[term for term in terms(text) if theirs.idf.get(term, 1.0) > 0] for text in _QUESTIONS]
    apart = max(float(np.abs(ours.scores(query) - theirs.get_scores(query)).max()) for query in asked)
    times: dict[str, list[float]] = {}
    for number, (document, query) in enumerate(zip(new, itertools.cycle(asked), strict=False), start=1):
        work: dict[str, Callable[[], object]] = {
            "rank_bm25, a question": partial(_nearest, theirs, query),
            "rank_bm25, an addition and a question": partial(_counted_again, documents[: size + number], query),
            "ours, an addition and a question": partial(_added, ours, size + number, document, query),
            "ours, a question": partial(ours.search, query, top_k=10),
        }
        for name, each in work.items():
            times.setdefault(name, []).append(cpu_ms(each))
    return {name: float(np.median(values)) for name, values in times.items()} | {"largest difference": apart}


def _nearest(index: BM25Okapi, query: list[str]) -> NDArray[np.int64]:
    return np.argsort(-index.get_scores(query))[:10]


def _counted_again(documents: list[list[str]], query: list[str]) -> NDArray[np.int64]:
    return _nearest(BM25Okapi(documents), query)


def _added(index: Bm25Index[int], key: int, document: list[str], query: list[str]) -> list[tuple[int, float]]:
    index.add(key, document)
    return index.search(query, top_k=10)


def main() -> None:
    """Print a table, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=[1_000, 10_000], help="sizes of the index")
    parser.add_argument("--rounds", type=int, default=9, help="documents that are added one by one at each size")
    args = records.options_of(parser)
    found = {size: measured(size, args.rounds) for size in args.documents}
    print(f"{'':40}" + "".join(f"{size:>12,}" for size in found))
    for name in next(iter(found.values())):
        print(f"{name:40}" + "".join(f"{each[name]:>12.3g}" for each in found.values()))
    records.write(args, {"documents": {str(size): each for size, each in found.items()}})


if __name__ == "__main__":
    main()

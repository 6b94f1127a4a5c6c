"""v1's fusion: recall@10 and nDCG@10 by RRF's constant, the weight of the ANN arm and the depth of both, on a graph.

    locigraph build --corpus.path threads --consolidation rules --store data/rules.sqlite
    python -m benchmarks.fusion --store data/rules.sqlite
    python -m benchmarks.fusion --store data/rules.sqlite --adapter checkpoints/text --held_back true \
        --ann_weight .5 1 1.5 2 3 4 --depth 50

Vectors are searched exactly. The defaults of ``HybridRetriever`` and the weight of ``v1-weighted-adapted`` were chosen
by this benchmark on corpora that are not used for tests; the weight on conversations that the adapter did not learn
from.
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np

from benchmarks import records
from locigraph.assembly import opening
from locigraph.retrieval.index.documents import LexicalIndex
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.strategies.hybrid import HybridRetriever

_METRICS = ("recall@10", "ndcg@10")


def main() -> None:
    """Print one row for each constant and weight, one pair of columns for each depth."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    records.add_corpus(parser)
    parser.add_argument(
        "--held_back",
        default="false",
        choices=["true", "false"],
        help="test only on the adapter's validation conversations",
    )
    parser.add_argument("--ann_weight", type=float, nargs="+", default=[1.0], help="weights of the ANN arm to try")
    parser.add_argument("--rrf_k", type=int, nargs="+", default=[1, 2, 5, 10, 20, 60], help="RRF constants to try")
    parser.add_argument("--depth", type=int, nargs="+", default=[20, 50, 100], help="candidates per arm to try")
    options = records.options_of(parser)

    corpus, encoder = records.opened(options)
    if options.held_back == "true":
        assert encoder.adapter is not None
        held_back = {*encoder.adapter.details["identity"]["validation"]}
        corpus = corpus.of_conversations([c.space for c in corpus.conversations if c.space in held_back])
    with opening.existing_store(options.store) as store:
        lexical = LexicalIndex(lambda space, as_of: store.snapshot(space, as_of=as_of))
        vectors = MemoryVectors()
        for space in sorted({question.space for question in corpus.questions}):
            vectors.add_snapshot(store.snapshot(space, embedding_model=encoder.model_id))
        encoder.encode([q.text for q in corpus.questions], progress="encode questions")
        print(f"{len(corpus.questions)} questions; recall@10 / nDCG@10")
        print(f"{'rrf_k':>6}{'weight':>8}" + "".join(f"{f'depth {depth}':>18}" for depth in options.depth))
        rows = []
        for rrf_k, weight in itertools.product(options.rrf_k, options.ann_weight):
            cells = []
            for depth in options.depth:
                v1 = HybridRetriever(lexical, vectors, encoder, rrf_k=rrf_k, ann_weight=weight, depth=depth)
                scores = records.scores(v1, corpus.questions, depth=depth, title=f"k {rrf_k}, depth {depth}")
                means = {metric: float(np.mean([score[metric] for score in scores])) for metric in _METRICS}
                rows.append({"rrf_k": rrf_k, "ann_weight": weight, "depth": depth, **means})
                cells.append(" / ".join(f"{mean:.4f}" for mean in means.values()))
            print(f"{rrf_k:>6}{weight:>8g}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
    measured = {"questions": len(corpus.questions), "rows": rows}
    records.write(options, measured, corpora=[corpus], text_encoder=encoder.model_id)


if __name__ == "__main__":
    main()

"""Evidence in contexts of equal length, by strategy.

``python -m benchmarks.token_budgets --corpus FILE --format locomo --store graph.sqlite [--cache FILE]`` packs what
each strategy finds into contexts of 500, 1,000 and 4,000 tokens (``retrieval.packing``) and prints the share of the
evidence turns that the context holds, itself or by what was drawn from them, and the tokens that were used. The graph
must be built, and indexed for strategies that search the vector index.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from locigraph.kg.store import Store
from locigraph.kg.types import SpaceId
from locigraph.retrieval.packing import Budget, ContextLine, pack
from locigraph.scripts import opening
from locigraph.scripts.settings import CorpusSettings, EncoderSettings, IndexSettings
from locigraph.scripts.strategies import built_strategies, chosen

_FEWEST_TOKENS_OF_A_LINE = 10


def main() -> None:
    """Print a table of recall and tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--format", default="locomo")
    parser.add_argument("--store", required=True)
    parser.add_argument("--cache", default=EncoderSettings().cache)
    parser.add_argument("--adapter", default=None)
    parser.add_argument("--strategies", default="v1,sum,dense,bm25,gaama,assomem,magma,tempr,hipporag")
    parser.add_argument("--tokens", type=int, nargs="+", default=[500, 1000, 4000])
    options = parser.parse_args()
    names = chosen(options.strategies, checkpoint=None, adapter=options.adapter)
    read = opening.read_corpus(CorpusSettings(path=options.corpus, format=options.format))
    encoder = opening.text_encoder(EncoderSettings(adapter=options.adapter, cache=options.cache))
    spaces = [conversation.space for conversation in read.conversations]
    print(f"{'strategy':<18}" + "".join(f"{f'recall in {tokens:,}':>18}{'used':>7}" for tokens in options.tokens))
    with (
        Store(Path(options.store)) as store,
        opening.vector_index(IndexSettings(), options.store) as index,
        built_strategies(store, encoder, names, spaces=spaces, index=index) as retrievers,
    ):
        snapshots = {space: store.snapshot(SpaceId(space)) for space in spaces}
        for name, retriever in retrievers.items():
            shares: list[list[float]] = []
            used: list[list[int]] = []
            for question in read.questions:
                wanted = max(options.tokens) // _FEWEST_TOKENS_OF_A_LINE
                found = retriever.retrieve(question.text, question.space, as_of=question.asked_at, top_k=wanted)
                contexts = [
                    pack(found.hits, snapshots[question.space], Budget(tokens=tokens)) for tokens in options.tokens
                ]
                held = [
                    {turn for line in context.lines if isinstance(line, ContextLine) for turn in line.turn_ids}
                    for context in contexts
                ]
                gold = set(question.evidence)
                shares.append([len(turns & gold) / len(gold) for turns in held])
                used.append([context.tokens for context in contexts])
            columns = zip(np.mean(shares, axis=0), np.mean(used, axis=0), strict=True)
            print(f"{name:<18}" + "".join(f"{share:>18.3f}{tokens:>7.0f}" for share, tokens in columns), flush=True)


if __name__ == "__main__":
    main()

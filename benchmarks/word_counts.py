"""What it costs v2 that the words of a space are counted again only now and then.

    python -m benchmarks.word_counts --corpus locomo10.json --format locomo --store locomo.sqlite --adapter shipped

The words of each space are counted over its first turns and facts alone, as if it had grown by a factor since they were
last counted, which is the worst state before they are counted again; then v2's recall@10 and nDCG@10 are compared with
those of fresh counts. Questions that were asked earlier than the last turn are asked of the present graph, too.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from tqdm import tqdm

from benchmarks import records
from locigraph.gnn.sketch import LexicalStatistics
from locigraph.kg.store import Store
from locigraph.retrieval.metrics import evidence_recall, ndcg
from locigraph.retrieval.text.node_vectors import snapshot_with_vectors
from locigraph.training.checkpoint import load_checkpoint
from locigraph.training.inference import CheckpointQueryEncoder, encode_graph, reader_of

_CHECKPOINT = Path("checkpoints/default")


def main() -> None:
    """Print a table, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    records.add_corpus(parser)
    parser.add_argument("--factors", type=float, nargs="+", default=[1, 1.5, 2, 4], help="growth since the last count")
    args = records.options_of(parser)
    corpus, encoder = records.opened(args)
    checkpoint = load_checkpoint(_CHECKPOINT, text_encoder=encoder.model_id)
    queries = CheckpointQueryEncoder(checkpoint, encoder)
    scores: dict[float, list[tuple[float, float]]] = {factor: [] for factor in args.factors}
    with Store(args.store, access="read") as graph:
        for conversation in tqdm(corpus.conversations, desc="spaces", unit="space"):
            asked = [q for q in corpus.questions if q.space == conversation.space and q.evidence]
            if not asked:
                continue
            vectors = np.stack([queries.encode_query(q.text, asked_at=q.asked_at) for q in asked])
            snapshot = snapshot_with_vectors(graph, conversation.space, encoder)
            reader = reader_of(checkpoint, snapshot)
            for factor in args.factors:
                known = snapshot.first_turn_place < len(snapshot.turn_ids) / factor
                counts: LexicalStatistics = reader.counted(known)
                rows, stored = encode_graph(checkpoint, snapshot, statistics=counts)
                turns = [snapshot.turns_of[row][0] for row in rows.tolist()]
                best = np.argsort(-(vectors @ stored.T), axis=1, kind="stable")[:, :10]
                for question, ranking in zip(asked, best, strict=True):
                    found = [turns[i] for i in ranking]
                    gold = {*question.evidence}
                    scores[factor].append((evidence_recall(found, gold, 10), ndcg(found, gold, 10)))
    means = {factor: np.mean(each, axis=0).tolist() for factor, each in scores.items()}
    for factor, (recall, gain) in means.items():
        print(f"counted at 1/{factor:g} of the turns: recall@10 {recall:.4f}, nDCG@10 {gain:.4f}")
    measured = {str(factor): {"recall@10": recall, "ndcg@10": gain} for factor, (recall, gain) in means.items()}
    records.write(args, {"factors": measured}, corpora=[corpus], text_encoder=encoder.model_id)


if __name__ == "__main__":
    main()

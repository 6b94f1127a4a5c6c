"""What AssoMem's parts are worth: recall@10 with each signal off, without clues, with fixed and with learnt weights.

    locigraph build --corpus.path locomo10.json --corpus.format locomo --consolidation recorded --store graph.sqlite
    python -m benchmarks.assomem --corpus locomo10.json --format locomo --store graph.sqlite

Learnt weights come from five folds by conversation: those of a fold from its training conversations alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np

from locigraph.kg.types import Question
from locigraph.retrieval.evaluation import evidence_recall
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.strategies.assomem import (
    FIXED_WEIGHTS,
    SIGNALS,
    AssoMemRetriever,
    Weights,
    weights_by_type,
)
from locigraph.retrieval.strategies.magma import intent_of
from locigraph.scripts.assembly import opening
from locigraph.scripts.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.training.folds import plan_folds

_TOP_K = 10


def main() -> None:
    """Print a row for each variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--format", default="locomo")
    parser.add_argument("--store", required=True)
    parser.add_argument("--adapter", default=None)
    parser.add_argument("--cache")
    options = parser.parse_args()
    read = opening.read_corpus(CorpusSettings(path=options.corpus, format=options.format))
    encoder = opening.text_encoder(EncoderSettings(adapter=options.adapter, cache=options.cache))
    folds = plan_folds(read.questions, folds=5, validation=2, seed=0)
    with opening.existing_store(options.store) as store:
        snapshots = {
            (q.space, q.asked_at): store.snapshot(q.space, as_of=q.asked_at, embedding_model=encoder.model_id)
            for q in {(q.space, q.asked_at): q for q in read.questions}.values()
        }

        def recall(
            questions: Sequence[Question], weights: Callable[[str], Weights], clues: int | None = 100
        ) -> list[float]:
            made = AssoMemRetriever(lambda space, as_of: snapshots[space, as_of], encoder, weights=weights, clues=clues)
            found = []
            for question in questions:
                hits = made.retrieve(question.text, question.space, as_of=question.asked_at, top_k=_TOP_K).hits
                found.append(evidence_recall(turns_of_hits(hits, top_k=_TOP_K), set(question.evidence), _TOP_K))
            return found

        def show(name: str, scores: Sequence[float]) -> None:
            print(f"{name:<48}{np.mean(scores):>8.3f}", flush=True)

        print(f"{'':<48}{'recall@10':>8}")
        show("fixed weights .6/.3/.1", recall(read.questions, lambda text: FIXED_WEIGHTS))
        show("without clues: all memories are candidates", recall(read.questions, lambda text: FIXED_WEIGHTS, None))
        for number, name in enumerate(SIGNALS):
            show(f"without {name}", recall(read.questions, _kept(*(at for at in range(len(SIGNALS)) if at != number))))
            show(f"{name} alone", recall(read.questions, _kept(number)))
        plain = AssoMemRetriever(lambda space, as_of: snapshots[space, as_of], encoder)
        for kinds, type_of in (("intent", intent_of), ("all questions alike", lambda text: "")):
            for temperature in (1.0, 0.1, 0.01):
                scores = []
                for fold in folds:
                    known = [q for q in read.questions if q.space in fold.train]
                    weights = weights_by_type(plain, known, type_of, temperature=temperature)
                    scores += recall([q for q in read.questions if q.space in fold.test], weights)
                shown = " ".join(f"{weight:.2f}" for weight in weights(read.questions[0].text))
                show(f"learnt by {kinds}, temperature {temperature:g}; such as {shown}", scores)


def _kept(*signals: int) -> Callable[[str], Weights]:
    """The fixed weights of some signals, and 0 for the others."""
    first, second, third = (weight if at in signals else 0.0 for at, weight in enumerate(FIXED_WEIGHTS))
    return lambda text: (first, second, third)


if __name__ == "__main__":
    main()

"""Contribution of the parts of published strategies: recall@10 of GAAMA, MAGMA and AssoMem with some parts left out.

    locigraph build --corpus.path locomo10.json --corpus.format locomo --consolidation recorded --store graph.sqlite
    python -m benchmarks.published_parts --corpus locomo10.json --format locomo --store graph.sqlite --output parts.json

GAAMA without PageRank, MAGMA without its search, AssoMem with each signal off or alone, with the search for clues, and
with learnt weights. The weights are learnt in five folds by conversation, from the training conversations of each fold
alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks import records
from locigraph.assembly import opening
from locigraph.kg.embedded_text import TextEncoder
from locigraph.kg.types import Question
from locigraph.research.published.assomem import (
    FIXED_WEIGHTS,
    SIGNALS,
    AssoMemRetriever,
    Weights,
)
from locigraph.research.published.assomem_weights import TEMPERATURES, typed_signals, weights_of_types
from locigraph.research.published.gaama import GaamaRetriever
from locigraph.research.published.magma import MagmaRetriever, intent_of
from locigraph.retrieval.protocols import Retriever, SnapshotLoader
from locigraph.training.folds import plan_folds
from locigraph.training.leaks import Fold

_TOP_K = 10
_FOLDS, _VALIDATION, _SEED = 5, 2, 0

#: Name of a strategy, the change made to it, and recall@10 of each question.
Row = tuple[str, str, list[float]]


def main() -> None:
    """Print a row for each variant, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="corpus with the questions: a bundled name or a file")
    parser.add_argument("--format", default="locomo", help="format of the corpus")
    parser.add_argument("--store", required=True, help="graph of the corpus")
    parser.add_argument("--adapter", default=None, help="folder of the text encoder's adapter")
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    options = records.options_of(parser)
    corpus, encoder = records.opened(options)
    questions = [question for question in corpus.questions if question.evidence]
    folds = plan_folds(questions, folds=_FOLDS, validation=_VALIDATION, seed=_SEED)
    found = []
    with opening.existing_store(options.store) as store:
        snapshots = {
            (q.space, q.asked_at): store.snapshot(q.space, as_of=q.asked_at, embedding_model=encoder.model_id)
            for q in {(q.space, q.asked_at): q for q in questions}.values()
        }
        print(f"{'strategy':<10}{'variant':<66}{'recall@10':>9}")
        for strategy, variant, scores in rows(lambda *asked: snapshots[asked], encoder, questions, folds):
            mean = float(np.mean(scores))
            found.append({"strategy": strategy, "variant": variant, f"recall@{_TOP_K}": mean})
            print(f"{strategy:<10}{variant:<66}{mean:>9.3f}", flush=True)
    measured = {"questions": len(questions), "folds": _FOLDS, "rows": found}
    records.write(options, measured, corpora=[corpus], text_encoder=encoder.model_id, seed=_SEED)


def rows(
    load: SnapshotLoader, encoder: TextEncoder, questions: Sequence[Question], folds: Sequence[Fold]
) -> Iterator[Row]:
    """The variants one after another; the first of each strategy is unchanged.

    Args:
        load: Reads the snapshot of a space as of a time, with embeddings.
        encoder: Text encoder that made these embeddings.
        questions: All questions, with evidence.
        folds: Folds of their conversations, in which AssoMem's weights are learnt.
    """
    yield "gaama", "as it is", recalls(GaamaRetriever(load, encoder), questions)
    yield "gaama", "without PageRank", recalls(GaamaRetriever(load, encoder, ppr_weight=0.0), questions)
    yield "magma", "as it is", recalls(MagmaRetriever(load, encoder), questions)
    yield "magma", "without the beam search: anchors alone", recalls(MagmaRetriever(load, encoder, depth=0), questions)

    assomem = partial(AssoMemRetriever, load, encoder)
    yield "assomem", "as it is: fixed weights .6/.3/.1", recalls(assomem(), questions)
    yield "assomem", "with clues: candidates are the memories of the best 100", recalls(assomem(clues=100), questions)
    for number, name in enumerate(SIGNALS):
        others = _kept(*(at for at in range(len(SIGNALS)) if at != number))
        yield "assomem", f"without {name}", recalls(assomem(weights=others), questions)
        yield "assomem", f"{name} alone", recalls(assomem(weights=_kept(number)), questions)
    plain = assomem()
    for kinds, type_of in (("intent", intent_of), ("all questions alike", lambda text: "")):
        samples = [typed_signals(plain, [q for q in questions if q.space in fold.train], type_of) for fold in folds]
        for temperature in TEMPERATURES:
            scores = []
            for fold, known in zip(folds, samples, strict=True):
                weights = weights_of_types(known, type_of, temperature=temperature)
                scores += recalls(assomem(weights=weights), [q for q in questions if q.space in fold.test])
            shown = " ".join(f"{weight:.2f}" for weight in weights(questions[0].text))
            yield "assomem", f"learnt by {kinds}, temperature {temperature:g}; such as {shown}", scores


def recalls(retriever: Retriever, questions: Sequence[Question]) -> list[float]:
    """recall@10 of each question."""
    return [found[f"recall@{_TOP_K}"] for found in records.scores(retriever, questions, depth=_TOP_K)]


def _kept(*signals: int) -> Callable[[str], Weights]:
    """The fixed weights of some signals, and 0 for the others."""
    first, second, third = (weight if at in signals else 0.0 for at, weight in enumerate(FIXED_WEIGHTS))
    return lambda text: (first, second, third)


if __name__ == "__main__":
    main()

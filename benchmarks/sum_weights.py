"""Weights for the six signals of ``sum``: recall@10 and nDCG@10 with equal, given and searched ones, on a built graph.

    locigraph build --corpus.path threads --store data/threads.sqlite --encoder.adapter checkpoints/text
    python -m benchmarks.sum_weights --store data/threads.sqlite --adapter checkpoints/text

The search changes one weight at a time until no change is better. Weights that are searched on the tested corpus itself
are roughly an upper bound of what fixed weights can reach, not a baseline. ``--against`` compares each set of weights
with a strategy of an evaluation's ``rankings.jsonl``, paired by question and clustered by conversation.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from benchmarks import records
from locigraph.assembly import opening
from locigraph.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.kg.corpora import Corpus
from locigraph.kg.types import Question, SpaceId
from locigraph.research.evaluation.significance import cluster_bootstrap, sign_flip_test
from locigraph.retrieval.metrics import score_ranking
from locigraph.retrieval.strategies.turn_signals import TEXT_SIGNALS as SIGNALS
from locigraph.retrieval.strategies.turn_signals import TurnSignals
from locigraph.retrieval.text.text_encoder import CachedTextEncoder

_VALUES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
_METRICS = ("recall@10", "ndcg@10")
Signals = NDArray[np.float64]


class Asked:
    """The signals of all questions, computed once, so that trying other weights costs only a matrix product."""

    def __init__(
        self, questions: Sequence[Question], signals: Sequence[Signals], turns: Sequence[Sequence[str]]
    ) -> None:
        self.questions, self._signals, self._turns = questions, signals, turns

    def scores(self, weights: Sequence[float]) -> NDArray[np.float64]:
        """recall@10 and nDCG@10 of each question, [questions, 2]."""
        rows = []
        for question, signals, turns in zip(self.questions, self._signals, self._turns, strict=True):
            best = np.argsort(-(np.asarray(weights) @ signals), kind="stable")[:50]
            found = score_ranking([turns[i] for i in best], set(question.evidence))
            rows.append([found[metric] for metric in _METRICS])
        return np.asarray(rows)

    def search(self, start: Sequence[float]) -> list[float]:
        """The weights with the best sum of both mean metrics that changing one weight at a time finds."""
        best, reached = list(start), float(self.scores(start).mean(0).sum())
        improved = True
        while improved:
            improved = False
            for signal in tqdm(range(len(SIGNALS)), desc="weights", unit="signal", leave=False):
                for value in _VALUES:
                    tried = [*best[:signal], value, *best[signal + 1 :]]
                    if any(tried) and (total := float(self.scores(tried).mean(0).sum())) > reached + 1e-9:
                        best, reached, improved = tried, total, True
        return best


def ask(corpus: Corpus, encoder: CachedTextEncoder, path: str) -> Asked:
    """Signals of every question with evidence of a corpus, on the graph in a file."""
    questions = sorted((q for q in corpus.questions if q.evidence), key=lambda q: (q.space, str(q.asked_at)))
    vectors = encoder.encode([q.text for q in questions], progress="encode questions")
    signals, turns = [], []
    with opening.existing_store(path) as store:
        held: tuple[object, TurnSignals] | None = None
        for question, vector in zip(tqdm(questions, desc="signals", unit="question"), vectors, strict=True):
            key = question.space, question.asked_at
            if held is None or held[0] != key:
                snapshot = store.snapshot(
                    SpaceId(question.space), as_of=question.asked_at, embedding_model=encoder.model_id
                )
                held = key, TurnSignals(snapshot, SIGNALS)
            signals.append(held[1].of(question.text, vector))
            turns.append([held[1].snapshot.turns_of[row][0] for row in held[1].rows])
    return Asked(questions, signals, turns)


def against(asked: Asked, scores: NDArray[np.float64], path: str, strategy: str) -> dict[str, float]:
    """Mean difference in recall@10 of a strategy of an evaluation minus these scores, with its interval and p-value."""
    of_question: dict[str, list[float]] = {}
    for line in Path(path).read_text().splitlines():
        entry = json.loads(line)
        if entry["strategy"] == strategy:
            found = score_ranking(entry["ranking"], set(entry["gold"]))["recall@10"]
            of_question.setdefault(entry["question_id"], []).append(found)
    differences = [
        float(np.mean(of_question[q.question_id])) - s for q, s in zip(asked.questions, scores[:, 0], strict=True)
    ]
    clusters = [str(q.space) for q in asked.questions]
    low, high = cluster_bootstrap(differences, clusters)
    p = sign_flip_test(differences, clusters)
    return {"difference": float(np.mean(differences)), "low": float(low), "high": float(high), "p": float(p)}


def main() -> None:
    """Print a row for equal, given and searched weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    records.add_corpus(parser)
    parser.add_argument(
        "--weights", type=float, nargs=len(SIGNALS), help=f"weights to compare with, of {', '.join(SIGNALS)}"
    )
    parser.add_argument("--against", help="rankings.jsonl of an evaluation of the same questions, to compare with")
    parser.add_argument("--strategy", default="v2", help="strategy of that evaluation to compare with")
    options = records.options_of(parser)
    corpus = opening.read_corpus(CorpusSettings(path=options.corpus, format=options.format))
    encoder = opening.text_encoder(
        EncoderSettings(dtype=options.dtype, cache=options.cache, adapter=options.adapter, device="cpu")
    )
    asked = ask(corpus, encoder, options.store)
    equal = [1.0] * len(SIGNALS)
    tried = {"equal": equal, "searched here": asked.search(equal)}
    if options.weights:
        tried["given"] = options.weights
    print(f"{len(asked.questions)} questions; weights of {', '.join(SIGNALS)}; recall@10 / nDCG@10")
    rows = []
    for name, weights in tried.items():
        scores = asked.scores(weights)
        row: dict[str, Any] = {"weights": dict(zip(SIGNALS, weights, strict=True))}
        row |= dict(zip(_METRICS, scores.mean(0).tolist(), strict=True))
        told = ""
        if options.against:
            found = row["against"] = against(asked, scores, options.against, options.strategy)
            interval = f"[{found['low']:+.3f}, {found['high']:+.3f}], p {found['p']:.3f}"
            told = f"  {options.strategy} minus this: {found['difference']:+.3f} {interval}"
        rows.append({"name": name, **row})
        means = " / ".join(f"{row[metric]:.4f}" for metric in _METRICS)
        print(f"{name:>14}  {' '.join(f'{w:g}' for w in weights):<24}  {means}{told}")
    measured = {"questions": len(asked.questions), "rows": rows}
    records.write(options, measured, corpora=[corpus], text_encoder=encoder.model_id)


if __name__ == "__main__":
    main()

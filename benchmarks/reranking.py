"""What a reranker adds to strategies, and what it costs.

``python -m benchmarks.reranking --corpus projects --store graph.sqlite [--reranker default] [--strategies v2,v1]``:
asks every question with evidence in each strategy, reranks the best hits, and prints recall@10 and nDCG@10 before and
after, their difference with the p of a sign-flip test over conversations, and the processor time of reranking. A
question about a conversation that the reranker has learnt from is left out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks import records
from locigraph.assembly.search_parts import trained_reranker
from locigraph.assembly.settings import EncoderSettings
from locigraph.kg.types import Question
from locigraph.memory import Memory
from locigraph.research.evaluation.significance import sign_flip_test
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.metrics import score_ranking
from locigraph.retrieval.protocols import Hit
from locigraph.retrieval.rerank import LearntReranker

_METRICS = ("recall@10", "ndcg@10")
_MORE = 20  # hits beyond those that are reranked, which keep their places


def reranked(
    memory: Memory, reranker: LearntReranker, questions: Sequence[Question], strategy: str
) -> tuple[list[dict[str, float]], list[dict[str, float]], float]:
    """Scores of each question before and after reranking, and the processor time of reranking one, in ms."""
    before, after, spent = [], [], 0.0
    for question in tqdm(questions, desc=strategy, unit="question"):
        hits = memory.recall(
            question.text, space=question.space, as_of=question.asked_at, top_k=reranker.depth + _MORE, fold=None,
            include_superseded=True, strategy=strategy,
        )  # fmt: skip
        started = time.process_time()
        again = reranker.rerank(question.text, [*hits], [hit.text for hit in hits])
        spent += time.process_time() - started
        before.append(_scores([*hits], question))
        after.append(_scores(again, question))
    return before, after, 1_000 * spent / len(questions)


def _scores(hits: Sequence[Hit], question: Question) -> dict[str, float]:
    return score_ranking(turns_of_hits(hits, top_k=50), {*question.evidence})


def row(
    before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]], spaces: Sequence[str], took: float
) -> dict[str, Any]:
    """Means before and after, their differences and p, by metric."""
    made: dict[str, Any] = {"cpu_ms": round(took, 1)}
    for metric in _METRICS:
        one, other = (np.array([each[metric] for each in scores]) for scores in (before, after))
        made[metric] = {
            "before": round(float(one.mean()), 4),
            "after": round(float(other.mean()), 4),
            "difference": round(float((other - one).mean()), 4),
            "p": float(f"{float(sign_flip_test(other - one, spaces)):.3g}"),
        }
    return made


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.reranking", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    records.add_corpus(parser)
    parser.add_argument("--reranker", default="default", help="default for the shipped reranker, or a folder")
    parser.add_argument("--strategies", default="v2,v1", help="strategies of locigraph recall, separated by commas")
    options = records.options_of(parser)
    trained = trained_reranker(options.reranker)
    if trained is None:
        parser.error(f"--reranker is {options.reranker}: this is no reranker of locigraph train-reranker")
    corpus, encoder = records.opened(options)
    questions = [each for each in corpus.questions if each.evidence and each.space not in trained.spaces]
    if not questions:
        parser.error(f"the reranker has learnt from all conversations of {options.corpus} that have questions")
    reranker, spaces = LearntReranker(trained), [question.space for question in questions]
    settings = EncoderSettings(adapter=options.adapter, cache=options.cache, dtype=options.dtype)
    found: dict[str, Any] = {"questions": len(questions), "conversations": len({*spaces}), "strategies": {}}
    with Memory.open(options.store, encoder=settings) as memory:
        for strategy in options.strategies.split(","):
            before, after, took = reranked(memory, reranker, questions, strategy)
            found["strategies"][strategy] = row(before, after, spaces, took)
    print(json.dumps(found, indent=1))
    found["reranker"] = trained.version
    records.write(options, found, corpora=[corpus], text_encoder=encoder.model_id)


if __name__ == "__main__":
    main()

"""Effect of second passes over a built graph on the results of strategies that learn nothing.

    locigraph build --corpus.path locomo10.json --corpus.format locomo --consolidation recorded --store locomo.sqlite
    python -m benchmarks.second_pass --store locomo.sqlite --corpus locomo10.json --passes classify resolve

Each pass runs on a copy of the store, which is kept in the folder of ``--keep``, if given. Every strategy runs all
questions before and after the pass, with exact search. Prints recall@10 and nDCG@10, their differences with p-values
of the sign-flip test over conversations, and recall@10 by category.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import records
from locigraph.assembly import graphs
from locigraph.assembly.search_parts import SearchParts
from locigraph.consolidation.classification import Classifier
from locigraph.consolidation.linking import Linker
from locigraph.consolidation.merging import Merger, same_names
from locigraph.consolidation.resolution import CONCEPT_MERGE
from locigraph.kg.store import Store
from locigraph.kg.types import Question, SpaceId
from locigraph.research.contenders import CONTENDERS
from locigraph.research.evaluation.significance import sign_flip_test
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.metrics import score_ranking
from locigraph.retrieval.protocols import Retriever
from locigraph.retrieval.strategies.hybrid import HybridRetriever
from locigraph.retrieval.text.text_encoder import CachedTextEncoder, plain_and_adapted

PASSES: dict[str, Callable[[Store, CachedTextEncoder, SpaceId], object]] = {
    "classify": lambda store, encoder, space: Classifier(store, encoder).run(space),
    "resolve": lambda store, encoder, space: Merger(store, encoder).run(space),
    "link": lambda store, encoder, space: Linker(store).run(space),
}
_METRICS = ("recall@10", "ndcg@10")
Scores = NDArray[np.float64]


def ask(
    store: Store, encoder: CachedTextEncoder, strategies: Sequence[str], questions: Sequence[Question]
) -> dict[str, Scores]:
    """recall@10 and nDCG@10 of each question by strategy, [questions, 2]."""
    spaces = list(dict.fromkeys(question.space for question in questions))
    found = {}
    with SearchParts(store, encoder, spaces=spaces) as parts:
        for name in strategies:
            row = CONTENDERS[name]
            assert row.make is not None
            retriever = hybrid(parts) if name == "v1" else row.make(parts, row)
            scores = records.scores(retriever, questions, title=name)
            found[name] = np.array([[score[metric] for metric in _METRICS] for score in scores])
    return found


def duplicates(store: Store, encoder: CachedTextEncoder) -> tuple[int, int]:
    """Number of entities and concepts that mean the same as an older one, and number of all entities and concepts."""
    held = again = 0
    for space in store.spaces():
        seen = store.snapshot(space, embedding_model=encoder.model_id)
        held += len(seen.active_rows(("entity", "concept")))
        again += len(same_names(seen, CONCEPT_MERGE, {}))
    return again, held


def hybrid(parts: SearchParts) -> Retriever:
    """v1 with exact search in memory, so that a copy of a store needs no index."""
    vectors = MemoryVectors()
    encoder = parts.encoder.without_adapter()
    for space in parts.spaces:
        vectors.add_snapshot(parts.store.snapshot(space, embedding_model=encoder.model_id))
    return HybridRetriever(parts.indexes.words, vectors, encoder)


def recall_and_ndcg(ranking: Sequence[str], evidence: Sequence[str]) -> list[float]:
    """recall@10 and nDCG@10."""
    scores = score_ranking(ranking, set(evidence))
    return [scores[metric] for metric in _METRICS]


def compared(questions: Sequence[Question], scores: Scores, before: Scores | None) -> dict[str, Any]:
    """Means of each metric, and of recall@10 by category; with differences from ``before`` if that is given."""
    clusters = [str(question.space) for question in questions]
    everything = list(range(len(questions)))
    made: dict[str, Any] = {"questions": len(questions)}
    for column, metric in enumerate(_METRICS):
        made[metric] = _mean(scores, before, everything, column)
        if before is not None:
            made[metric]["p"] = float(sign_flip_test(scores[:, column] - before[:, column], clusters))
    categories = sorted({question.category for question in questions})
    made["categories"] = {
        category: _mean(scores, before, [i for i in everything if questions[i].category == category], 0)
        for category in categories
    }
    return made


def _mean(scores: Scores, before: Scores | None, rows: Sequence[int], column: int) -> dict[str, float]:
    made = {"mean": float(scores[rows, column].mean())}
    return made if before is None else made | {"difference": float((scores - before)[rows, column].mean())}


def shown(made: Mapping[str, Any]) -> str:
    """The result of ``compared`` as a line."""

    def cell(entry: Mapping[str, float]) -> str:
        if "difference" not in entry:
            return f"{entry['mean']:.3f}"
        p = f", p {entry['p']:.3f}" if "p" in entry else ""
        return f"{entry['mean']:.3f} ({entry['difference']:+.3f}{p})"

    cells = [cell(made[metric]) for metric in _METRICS]
    return "  ".join([*cells, *(f"{category} {cell(entry)}" for category, entry in made["categories"].items())])


def main() -> None:
    """Print a line for each strategy before and after each pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="corpus with the questions: a bundled name or a file")
    parser.add_argument("--format", default="locomo", help="format of the corpus")
    parser.add_argument("--conversations", nargs="*", help="conversations of the corpus; all by default")
    parser.add_argument("--store", required=True, help="graph of the corpus; the passes run on copies of it")
    parser.add_argument("--passes", nargs="*", choices=list(PASSES), default=list(PASSES), help="second passes to try")
    parser.add_argument(
        "--strategies", nargs="+", default=["v1", "sum", "gaama", "hipporag"], help="names of strategies"
    )
    parser.add_argument("--adapter", help="folder of the text encoder's adapter")
    parser.add_argument("--cache", help="file of the text encoder's cache of vectors; by default the user's")
    parser.add_argument("--keep", help="folder in which to keep the copies of the store; without it they are deleted")
    options = records.options_of(parser)
    corpus, encoder = records.opened(options, conversations=options.conversations)
    questions = [question for question in corpus.questions if question.evidence]
    encoder.encode([question.text for question in questions], progress="encode questions")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        before: dict[str, Scores] = {}
        rows, named = [], {}
        for name in ("nothing", *options.passes):
            path = folder / f"{name}.sqlite"
            shutil.copyfile(options.store, path)
            with Store(path) as store:
                for space in store.spaces() if name != "nothing" else []:
                    print(f"{name} {space}: {PASSES[name](store, encoder.without_adapter(), space)}", flush=True)
                again, held = duplicates(store, encoder.without_adapter())
                named[name] = {"duplicates": again, "entities_and_concepts": held}
                told = f"{again} of {held} entities and concepts mean the same as an older one"
                print(f"after {name}: {told} ({again / max(1, held):.4f})", flush=True)
                for each in plain_and_adapted(encoder):
                    graphs.embed_all(store.spaces(), store, each)
                for strategy, scores in ask(store, encoder, options.strategies, questions).items():
                    row = compared(questions, scores, before.get(strategy))
                    rows.append({"after": name, "strategy": strategy, **row})
                    print(f"after {name}: {strategy}  {shown(row)}", flush=True)
                    before.setdefault(strategy, scores)
    records.write(options, {"rows": rows, "names": named}, corpora=[corpus], text_encoder=encoder.model_id)


if __name__ == "__main__":
    main()

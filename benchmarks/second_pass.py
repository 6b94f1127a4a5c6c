"""What second passes over a built graph change for strategies that learn nothing.

    locigraph build --corpus.path locomo10.json --corpus.format locomo --consolidation recorded --store locomo.sqlite
    python -m benchmarks.second_pass --store locomo.sqlite --corpus locomo10.json --passes classify reflect

Each pass runs on a copy of the store, which it leaves where ``--keep`` says. Strategies are asked all questions before
and after it; searches are exact. Printed are recall@10 and nDCG@10, their differences with the sign-flip test over
conversations, and recall@10 by category.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from locigraph.consolidation.classification import Classifier
from locigraph.consolidation.linking import Linker
from locigraph.consolidation.merging import Merger, same_names
from locigraph.consolidation.reflection import Reflector
from locigraph.consolidation.resolution import CONCEPT_MERGE
from locigraph.kg.store import Store
from locigraph.kg.types import Question, SpaceId
from locigraph.retrieval.evaluation import score_ranking, sign_flip_test
from locigraph.retrieval.hits import turns_of_hits
from locigraph.retrieval.index.memory_vectors import MemoryVectors
from locigraph.retrieval.protocols import Retriever
from locigraph.retrieval.strategies.hybrid import HybridRetriever
from locigraph.retrieval.text.text_encoder import CachedTextEncoder
from locigraph.scripts.assembly import graphs, opening
from locigraph.scripts.assembly.search_parts import SearchParts
from locigraph.scripts.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.scripts.assembly.strategies import STRATEGIES

PASSES: dict[str, Callable[[Store, CachedTextEncoder, SpaceId], object]] = {
    "classify": lambda store, encoder, space: Classifier(store, encoder).run(space),
    "resolve": lambda store, encoder, space: Merger(store, encoder).run(space),
    "reflect": lambda store, encoder, space: Reflector(store, encoder).run(space),
    "link": lambda store, encoder, space: Linker(store).run(space),
}
_DEPTH = 50
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
            row = STRATEGIES[name]
            assert row.make is not None
            retriever = hybrid(parts) if name == "v1" else row.make(parts, row)
            rows = []
            for question in tqdm(questions, desc=name, unit="question"):
                hits = retriever.retrieve(question.text, question.space, as_of=question.asked_at, top_k=_DEPTH).hits
                scores = score_ranking(turns_of_hits(hits, top_k=_DEPTH), set(question.evidence))
                rows.append([scores[metric] for metric in _METRICS])
            found[name] = np.array(rows)
    return found


def duplicates(store: Store, encoder: CachedTextEncoder) -> str:
    """The share of the entities and concepts that mean the same as an older one."""
    held = again = 0
    for space in store.spaces():
        seen = store.snapshot(space, embedding_model=encoder.model_id)
        held += len(seen.active_rows(("entity", "concept")))
        again += len(same_names(seen, CONCEPT_MERGE))
    return f"{again} of {held} entities and concepts mean the same as an older one ({again / max(1, held):.4f})"


def hybrid(parts: SearchParts) -> Retriever:
    """v1 with exact search in memory, so that a copy of a store needs no index."""
    vectors = MemoryVectors()
    encoder = parts.encoder.without_adapter()
    for space in parts.spaces:
        vectors.add_snapshot(parts.store.snapshot(space, embedding_model=encoder.model_id))
    return HybridRetriever(parts.words, vectors, encoder)


def shown(questions: Sequence[Question], scores: Scores, before: Scores | None) -> str:
    """A line of means, differences and recall@10 by category."""
    clusters = [str(question.space) for question in questions]
    cells = []
    for column in range(len(_METRICS)):
        cell = f"{scores[:, column].mean():.3f}"
        if before is not None:
            differences = scores[:, column] - before[:, column]
            cell += f" ({differences.mean():+.3f}, p {sign_flip_test(differences, clusters):.3f})"
        cells.append(cell)
    for category in sorted({question.category for question in questions}):
        rows = [i for i, question in enumerate(questions) if question.category == category]
        cell = f"{category} {scores[rows, 0].mean():.3f}"
        cells.append(cell if before is None else f"{cell} ({(scores[rows, 0] - before[rows, 0]).mean():+.3f})")
    return "  ".join(cells)


def main() -> None:
    """Print a line for each strategy before and after each pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--format", default="locomo")
    parser.add_argument("--store", required=True)
    parser.add_argument("--passes", nargs="*", choices=list(PASSES), default=list(PASSES))
    parser.add_argument("--strategies", nargs="+", default=["v1", "sum", "gaama", "hipporag"])
    parser.add_argument("--adapter")
    parser.add_argument("--cache")
    parser.add_argument("--keep", help="folder for the copies; they are deleted without it")
    options = parser.parse_args()
    read = opening.read_corpus(CorpusSettings(path=options.corpus, format=options.format))
    questions = [question for question in read.questions if question.evidence]
    encoder = opening.text_encoder(EncoderSettings(adapter=options.adapter, cache=options.cache))
    encoder.encode([question.text for question in questions], progress="encode questions")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        before: dict[str, Scores] = {}
        for name in ("nothing", *options.passes):
            path = folder / f"{name}.sqlite"
            shutil.copyfile(options.store, path)
            with Store(path) as store:
                for space in store.spaces() if name != "nothing" else []:
                    print(f"{name} {space}: {PASSES[name](store, encoder.without_adapter(), space)}", flush=True)
                print(f"after {name}: {duplicates(store, encoder.without_adapter())}", flush=True)
                for each in dict.fromkeys([encoder.without_adapter(), encoder]):
                    graphs.embed_all(store.spaces(), store, each)
                for strategy, scores in ask(store, encoder, options.strategies, questions).items():
                    print(f"after {name}: {strategy}  {shown(questions, scores, before.get(strategy))}", flush=True)
                    before.setdefault(strategy, scores)


if __name__ == "__main__":
    main()

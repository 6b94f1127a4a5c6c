"""What categories and reflections are worth to v2: rows of the network's table of relations, trained in folds.

    locigraph build --corpus.path locomo10.json --corpus.format locomo --consolidation recorded --store locomo.sqlite
    python -m benchmarks.second_pass_network --store locomo.sqlite --corpus locomo10.json --rows reflection category

A copy of the store is classified and reflected upon. A turn takes in the reflections and categories of what was drawn
from it: the graph joins these to facts, so an edge from each to the turn is added to the snapshot. The weights of the
new relations start at 0. Five folds, one seed, exact search.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.second_pass import PASSES, shown
from locigraph.consolidation.classification import category_types
from locigraph.gnn.relations import RELATIONS, NetworkRelation
from locigraph.kg.snapshot import Snapshot
from locigraph.kg.store import Store
from locigraph.kg.types import Question
from locigraph.kg.views import Views
from locigraph.retrieval.evaluation import score_ranking
from locigraph.scripts.assembly import graphs, opening
from locigraph.scripts.assembly.settings import CorpusSettings, EncoderSettings
from locigraph.scripts.experiments import learning
from locigraph.training.comparison import rank_exactly
from locigraph.training.config import Settings, TrainerConfig
from locigraph.training.folds import plan_folds

ROWS = {
    "reflection": NetworkRelation("reflection", "knowledge_node", "DERIVED_FROM_FACT"),
    "category": NetworkRelation("category", "concept", "CONTAINS"),
}


def with_turns(seen: Snapshot) -> Snapshot:
    """The snapshot with edges from reflections and categories to the turns that their facts come from."""
    source, target, labels = [], [], []
    turns: dict[int, list[int]] = {}
    for node, turn in seen.provenance.tolist():
        turns.setdefault(node, []).append(int(seen.episode_rows[turn]))
    for label, types in (("DERIVED_FROM_FACT", ["reflection"]), ("CONTAINS", list(category_types().values()))):
        ends = (seen.relations == label) & np.isin(seen.source, seen.active_rows(types))
        pairs = {
            (node, episode)
            for node, fact in zip(seen.source[ends].tolist(), seen.target[ends].tolist(), strict=True)
            if not seen.labels[node].startswith("other ")
            for episode in turns.get(fact, [])
        }
        for node, episode in sorted(pairs):
            source.append(node)
            target.append(episode)
            labels.append(label)

    return replace(
        seen,
        source=np.append(seen.source, np.array(source, dtype=np.int64)),
        target=np.append(seen.target, np.array(target, dtype=np.int64)),
        relations=np.append(seen.relations, np.array(labels, dtype=np.str_)),
        families=np.append(seen.families, np.array(labels, dtype=np.str_)),
        weights=np.append(seen.weights, np.ones(len(labels), dtype=np.float32)),
    )


def main() -> None:
    """Print recall@10 and nDCG@10 without and with the rows, over more and more folds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--format", default="locomo")
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), default=list(ROWS))
    parser.add_argument("--adapter", default="checkpoints/text")
    parser.add_argument("--cache", default=EncoderSettings().cache)
    options = parser.parse_args()
    read = opening.read_corpus(CorpusSettings(path=options.corpus, format=options.format))
    encoder = opening.text_encoder(EncoderSettings(adapter=options.adapter, cache=options.cache))
    encoder.encode([question.text for question in read.questions], progress="encode questions")
    with tempfile.TemporaryDirectory() as copied, Store(shutil.copy(options.store, f"{copied}/g.sqlite")) as store:
        for space in store.spaces():
            for passed in PASSES.values():
                passed(store, encoder.without_adapter(), space)
        graphs.embed_all(store.spaces(), store, encoder)
        views = Views.of_corpus(
            lambda space, as_of: with_turns(store.snapshot(space, as_of=as_of, embedding_model=encoder.model_id)), read
        )
        trainer = learning.fold_trainer(read, views, TrainerConfig(csv_log=False), encoder, seed=0)
        asked: list[Question] = []
        scores: dict[str, list[list[float]]] = {"without": [], "with": []}
        for fold in plan_folds(read.questions, folds=5, validation=2, seed=0):
            tested = [question for question in read.questions if question.space in fold.test]
            asked += tested
            for name, held in scores.items():
                with ExitStack() as added, tempfile.TemporaryDirectory() as folder:
                    for row in options.rows if name == "with" else []:
                        RELATIONS.add(ROWS[row])
                        added.callback(RELATIONS.remove, row)
                    made = trainer.train(fold, Settings(), folder=Path(folder), seed=0, name=f"{name}, {fold.index}")
                    found = rank_exactly(made, tested, views, encoder.encode, name=name).rankings
                    held += [recall_and_ndcg(found[q.question_id], q.evidence) for q in tested]
            whole = {name: np.array(rows) for name, rows in scores.items()}
            print(f"{fold.index + 1} folds without: {shown(asked, whole['without'], None)}")
            print(f"with {' and '.join(options.rows)}: {shown(asked, whole['with'], whole['without'])}", flush=True)


def recall_and_ndcg(ranking: Sequence[str], evidence: Sequence[str]) -> list[float]:
    """recall@10 and nDCG@10."""
    scores = score_ranking(ranking, set(evidence))
    return [scores["recall@10"], scores["ndcg@10"]]


if __name__ == "__main__":
    main()
